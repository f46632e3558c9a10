//! A visitor whose id is taken.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use pronto::admin::FIRST_VISITOR;

/// The place of the own id in a greeting.
const NODE: core::ops::Range<usize> = 18..20;
/// A refusal of node 1: another live process has the id.
const ID_TAKEN: &[u8; 9] = b"PRNT\x02\x05\x00\x01\x00";

/// Refuses a greeting, and returns the id that it names.
fn refuse(mut stream: TcpStream) -> Option<u16> {
    let mut preamble = [0; 8];
    stream.read_exact(&mut preamble).ok()?;
    stream.write_all(b"pronto\x03a").ok()?;
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut greeting = vec![0; u32::from_le_bytes(len).try_into().ok()?];
    stream.read_exact(&mut greeting).ok()?;
    stream.write_all(&u32::try_from(ID_TAKEN.len()).ok()?.to_le_bytes()).ok()?;
    stream.write_all(ID_TAKEN).ok()?;
    Some(u16::from_le_bytes(greeting[NODE].try_into().ok()?))
}

/// Shows: operations.visitor-ids
#[test]
fn a_visitor_whose_id_is_taken_takes_another_one_a_few_times() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tcp:{}", listener.local_addr().expect("a bound socket"));
    let ids = Arc::new(Mutex::new(BTreeSet::new()));
    let found = Arc::clone(&ids);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            found.lock().expect("no holder panics").extend(refuse(stream));
        }
    });
    let mut ping = Command::new(env!("CARGO_BIN_EXE_pronto"));
    let ping = ping.args(["ping", "1", "--at", &address, "--timeout", "3"]).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&ping.stderr);
    assert!(!ping.status.success() && stderr.contains("has the id of the dialling node"), "{stderr}");
    let ids = ids.lock().expect("no holder panics");
    assert!(ids.iter().all(|id| *id >= FIRST_VISITOR.0), "{ids:?}");
    // Four random ids are hardly ever one.
    assert!((2..=4).contains(&ids.len()), "{ids:?}");
}

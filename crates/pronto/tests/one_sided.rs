//! One-sided access to a peer's memory (grant, read, write, atomics, revocation), on every transport.

use core::time::Duration;

use pronto::{AccessError, Message, Node, RemoteMemory, Rights};

#[derive(Message, Debug)]
#[message(name = "test.memory")]
struct Memory {
    memory: RemoteMemory,
}

#[derive(Message, Debug)]
#[message(name = "test.lend", reply = Memory)]
struct Lend {}

const TIMEOUT: Duration = Duration::from_secs(10);
const LEN: usize = 1 << 20;

fn check(transport: &str) {
    let listen = match transport {
        "shm" => format!("shm:@pronto-one-sided-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let lender = Node::builder(1).listen(&listen).start().expect("the node starts");
    let address = lender.listening()[0].to_string();
    let borrower = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let to_lender = borrower.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let to_borrower = lender.wait_for_peer(2, TIMEOUT).expect("the peer connects");

    let theirs = lender.region(LEN).expect("memory");
    theirs.write(4096, b"granted").expect("the range is valid");
    let grant = to_borrower.grant(&theirs, 4096..8192, Rights::ALL).expect("granted");
    let remote = RemoteMemory::from(grant.remote);
    assert_eq!(remote.len(), 4096);

    let mine = borrower.region(LEN).expect("memory");
    to_lender.read_memory(remote, &mine, 0, TIMEOUT).expect("the access is permitted");
    let mut seen = [0; 7];
    mine.read(0, &mut seen).expect("the range is valid");
    assert_eq!(&seen, b"granted");

    mine.write(64, b"written").expect("the range is valid");
    let part = remote.part(100..107).expect("the range is valid");
    to_lender.write_memory(&mine, 64, part, TIMEOUT).expect("the access is permitted");
    theirs.read(4096 + 100, &mut seen).expect("the range is valid");
    assert_eq!(&seen, b"written");

    let word = remote.part(1024..1032).expect("the range is valid");
    assert_eq!(to_lender.fetch_add(word, 5, TIMEOUT), Ok(0));
    assert_eq!(to_lender.fetch_add(word, 5, TIMEOUT), Ok(5));
    assert_eq!(to_lender.compare_swap(word, 10, 77, TIMEOUT), Ok(10));
    assert_eq!(
        to_lender.compare_swap(word, 10, 78, TIMEOUT),
        Ok(77),
        "the word had another value, so it must be unchanged"
    );

    to_borrower.revoke(grant.id).expect("the grant exists");
    assert_eq!(to_lender.fetch_add(word, 1, TIMEOUT), Err(AccessError::Refused));
    assert_eq!(borrower.status().peers[0].open_calls, 0);
}

/// Shows: calls.one-sided
#[test]
fn shm() {
    check("shm");
}

/// Shows: calls.one-sided, calls.one-sided-passive, calls.revoke
#[test]
fn tcp() {
    check("tcp");
}

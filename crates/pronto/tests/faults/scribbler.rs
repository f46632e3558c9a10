//! Shared memory with a malicious peer: it overwrites its segments, floods the node with wake-ups, and offers memory that it could
//! take away. It runs in a child process, as an attacker would.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, sendmsg,
    socket, socketpair,
};
use pronto::{Class, DownCause, Epoch, Event, NodeId};
use pronto_core::fabric::{FabricError, PeerFault, QueuePair};
use pronto_core::session::{Authenticated, Identity, Limits, agree, greet};
use pronto_wire::{Greeting, Kind};

use crate::child::{Child, command, report};
use crate::raw::Raw;
use crate::rig::{TIMEOUT, add, client, counter, event, refused, shared_run, started, until};

/// Attacks of the peer.
const ATTACKS: [&str; 4] = ["ones", "noise", "rewrite", "flood"];

/// Shows: operations.corrupt
#[test]
fn attacks_in_shared_memory_affect_no_other_peer() {
    let _shared = shared_run();
    for attack_name in ATTACKS {
        let (node, address) = started(1, "shm", &format!("scribble-{attack_name}"));
        let (good, peer) = client(2, &address);
        let events = node.events();
        let mut attacker = Child::start("scribble", &[&address, attack_name]);
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        attacker.expect_line("ready");
        attacker.send_command("go");
        let done = attacker.expect_line("did ");
        assert_ne!(done, "0", "{attack_name}: the attack did nothing");
        let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        let Event::PeerDown { peer: NodeId(9), cause, .. } = down else { panic!("{down:?}") };
        assert!(matches!(cause, DownCause::Corrupt(FabricError::Peer(_))), "{attack_name}: {cause:?}");
        if attack_name == "flood" {
            assert!(matches!(cause, DownCause::Corrupt(FabricError::Peer(PeerFault::WakeFlood(_)))));
        }
        assert_eq!(counter(&node, 9, "corrupt_peers"), 1);
        add(&peer);
        assert_eq!(counter(&good, 1, "links_lost"), 0);
    }
}

/// Runs the attacker's process.
pub(crate) fn attack(arguments: &[&str]) {
    let [address, attack_name] = arguments else { panic!("{arguments:?}") };
    let mut raw = Raw::greet(9, address);
    raw.post(Class::Control, Kind::Heartbeat, &[]).unwrap();
    report("ready");
    command();
    let done = match *attack_name {
        "flood" => flood(&raw),
        "ones" => scribble(|_| 0xff),
        "noise" => {
            let mut state = 0x9e37_79b9_u32;
            scribble(move |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
        }
        // Changes message slots that were already read, as if they had been written in another lap.
        "rewrite" => scribble(|old| old.wrapping_add(1)),
        other => panic!("unknown attack_name {other}"),
    };
    report(&format!("did {done}"));
    while !command().is_empty() {}
}

/// Overwrites every memory file that this process has mapped for writing. Returns the number of bytes.
fn scribble(mut new: impl FnMut(u8) -> u8) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut written = 0;
    for line in maps.lines().filter(|line| line.contains("rw-s") && line.contains("memfd:")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        // The control words, tables and message slots lie at the beginning; send memory is much longer.
        let mut bytes = vec![0; usize::try_from(end - start).unwrap().min(1 << 20)];
        memory.read_exact_at(&mut bytes, start).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = new(*byte));
        memory.write_all_at(&bytes, start).unwrap();
        written += bytes.len();
    }
    written
}

/// Wakes the node repeatedly without sending a message. Returns the number of wake-ups.
fn flood(raw: &Raw) -> usize {
    let channel = raw.pairs[0].channel().unwrap().fd;
    let mut sent = 0;
    for _ in 0..200_000 {
        match send(channel, &[1], MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => sent += 1,
            Err(_) => break,
        }
    }
    sent
}

/// Shows: operations.not-pronto
#[test]
fn memory_that_can_be_taken_away_is_refused() {
    let _shared = shared_run();
    let (node, address) = started(1, "shm", "unsealed");
    let (_good, peer) = client(2, &address);
    // Performs a handshake manually, with memory files that are not sealed.
    let name = address.strip_prefix("shm:@").unwrap();
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
    let me = Identity { node: NodeId(9), epoch: Epoch(5), name: String::new(), types: Vec::new() };
    let limits = Limits::default();
    let greeting = greet(&me, &limits, NodeId(1), None).encode();
    let send_packet = |bytes: &[u8]| send(socket.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
    send_packet(&u32::try_from(greeting.len()).unwrap().to_le_bytes());
    send_packet(&greeting);
    let mut reply = vec![0; 1 << 16];
    assert_eq!(recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()), Ok(4));
    let len = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()).unwrap();
    let theirs = Greeting::decode(&reply[..len]).unwrap();
    let session = theirs.session.unwrap();
    let agreement = agree(&me, &limits, Authenticated::claimed(theirs), session, None).unwrap();

    let mut offer = b"PSHM\x03\0\0\0".to_vec();
    let mut files: Vec<OwnedFd> = Vec::new();
    for class in Class::ALL {
        let limits = agreement.connection(class);
        for number in [
            limits.send_depth,
            limits.receive_depth,
            limits.max_send_payload,
            limits.max_receive_payload,
            limits.send_memory,
        ] {
            offer.extend_from_slice(&number.to_le_bytes());
        }
        for _ in 0..2 {
            let file = File::from(memfd_create("unsealed", MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len(64 << 20).unwrap();
            files.push(file.into());
        }
        for _ in 0..2 {
            let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
            files.push(pair.unwrap().1);
        }
    }
    let numbers: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&offer)], &rights, MsgFlags::empty(), None).unwrap();
    until("the link is refused", || refused(&node, "bad_memory") == 1);
    assert!(node.status().peers.iter().all(|known| known.node != NodeId(9) || !known.linked));
    add(&peer);
}

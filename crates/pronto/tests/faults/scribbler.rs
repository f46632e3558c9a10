//! Shared memory with a peer that means harm: it scribbles over its segments, floods with wake-ups, and shows memory that
//! it could take away. It runs in a process of its own, as an attacker would.

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
use pronto_core::session::{Identity, Limits, agree, greet};
use pronto_wire::{Greeting, Kind};

use crate::child::{Child, command, say};
use crate::raw::Raw;
use crate::rig::{SOON, add, beside_others, client, counter, event, refused, started, until};

/// What the peer does with its memory, and whether that alone must give it away.
const MISCHIEF: [&str; 4] = ["ones", "noise", "rewrite", "flood"];

#[test]
fn mischief_in_shared_memory_hurts_nobody_else() {
    let _beside = beside_others();
    for mischief in MISCHIEF {
        let (node, address) = started(1, "shm", &format!("scribble-{mischief}"));
        let (good, peer) = client(2, &address);
        let events = node.events();
        let mut attacker = Child::start("scribble", &[&address, mischief]);
        event(&events, SOON, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        attacker.hears("ready");
        attacker.tell("go");
        let done = attacker.hears("did ");
        assert_ne!(done, "0", "{mischief}: nothing was done");
        let down = event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
        let Event::PeerDown { peer: NodeId(9), cause, .. } = down else { panic!("{down:?}") };
        assert!(matches!(cause, DownCause::Corrupt(FabricError::Peer(_))), "{mischief}: {cause:?}");
        if mischief == "flood" {
            assert!(matches!(cause, DownCause::Corrupt(FabricError::Peer(PeerFault::WakeFlood(_)))));
        }
        assert_eq!(counter(&node, 9, "corrupt_peers"), 1);
        add(&peer);
        assert_eq!(counter(&good, 1, "links_lost"), 0);
    }
}

/// What the attacker's process does.
pub(crate) fn scribbles(arguments: &[&str]) {
    let [address, mischief] = arguments else { panic!("{arguments:?}") };
    let mut raw = Raw::greets(9, address);
    raw.say(Class::Control, Kind::Heartbeat, &[]).unwrap();
    say("ready");
    command();
    let done = match *mischief {
        "flood" => flood(&raw),
        "ones" => scribble(|_| 0xff),
        "noise" => {
            let mut state = 0x9e37_79b9_u32;
            scribble(move |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
        }
        // Only the line that is already read: as if it had been sent with another lap.
        "rewrite" => scribble(|old| old.wrapping_add(1)),
        other => panic!("unknown mischief {other}"),
    };
    say(&format!("did {done}"));
    while !command().is_empty() {}
}

/// Writes over every memory file that this process has mapped for writing. Returns how many bytes.
fn scribble(mut new: impl FnMut(u8) -> u8) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut written = 0;
    for line in maps.lines().filter(|line| line.contains("rw-s") && line.contains("memfd:")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        // The control words, tables and lines lie at the beginning; send memory is much longer.
        let mut bytes = vec![0; usize::try_from(end - start).unwrap().min(1 << 20)];
        memory.read_exact_at(&mut bytes, start).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = new(*byte));
        memory.write_all_at(&bytes, start).unwrap();
        written += bytes.len();
    }
    written
}

/// Wakes the node over and over, with nothing to show for it.
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

#[test]
fn memory_that_can_be_taken_away_is_refused() {
    let _beside = beside_others();
    let (node, address) = started(1, "shm", "unsealed");
    let (_good, peer) = client(2, &address);
    // By hand what a handshake does, with memory files that are not sealed.
    let name = address.strip_prefix("shm:@").unwrap();
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
    let me = Identity { node: NodeId(9), epoch: Epoch(5), name: String::new(), types: Vec::new() };
    let limits = Limits::default();
    let greeting = greet(&me, &limits, NodeId(1), None).encode();
    let say = |bytes: &[u8]| send(socket.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
    say(&u32::try_from(greeting.len()).unwrap().to_le_bytes());
    say(&greeting);
    let mut answer = vec![0; 1 << 16];
    assert_eq!(recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()), Ok(4));
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
    let theirs = Greeting::decode(&answer[..len]).unwrap();
    let session = theirs.session.unwrap();
    let agreement = agree(&me, &limits, theirs, session, None).unwrap();

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
    until("it is refused", || refused(&node, "bad_memory") == 1);
    assert!(node.status().peers.iter().all(|known| known.node != NodeId(9) || !known.linked));
    add(&peer);
}

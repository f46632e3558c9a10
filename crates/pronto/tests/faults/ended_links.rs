//! Links over shared memory that end while both processes live: each end closes its descriptors, even if the peer keeps its own.

use core::time::Duration;

use nix::sys::signal::Signal;
use pronto::Class;
use pronto_wire::{Acks, Header, Kind, RawHeader};

use crate::child::Child;
use crate::raw::Raw;
use crate::rig::{TIMEOUT, Watch, address, exclusive_run, shared_run};

/// Links that end in a test. Their descriptors exceed [`SLACK`].
const ROUNDS: u16 = 8;
/// Additional descriptors that a node may keep after its first links, for other reasons.
const SLACK: usize = 4;

/// Returns the number of descriptors of a process.
fn descriptors(process: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

#[track_caller]
fn assert_closed(process: &Child, before: usize) {
    let watch = Watch::start();
    while descriptors(process) > before + SLACK {
        let now = descriptors(process);
        assert!(watch.passed() < TIMEOUT, "descriptors are left open: {now} now, {before} before");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn links_of_corrupt_peers_leave_no_descriptors() {
    let _shared = shared_run();
    let (child, listening) = Child::node(1, &address("shm", "ended-corrupt"));
    let before = descriptors(&child);
    let mut raws = Vec::new();
    for id in 9..9 + ROUNDS {
        let mut raw = Raw::greet(id, &listening);
        let mut unknown = *Header { kind: Kind::Heartbeat, acks: Acks::default() }.emit().as_array();
        unknown[4] = 200;
        raw.send(Class::Control, &RawHeader::from_array(unknown), &[]).unwrap();
        assert_eq!(child.expect_line(&format!("down {id} ")), "Corrupt");
        raws.push(raw);
    }
    assert_closed(&child, before);
    raws.iter().for_each(Raw::wait_until_closed);
}

#[test]
fn links_of_silent_peers_leave_no_descriptors() {
    let _shared = shared_run();
    let (child, listening) = Child::node(1, &address("shm", "ended-silent"));
    let before = descriptors(&child);
    // These peers send nothing.
    let raws: Vec<_> = (9..9 + ROUNDS).map(|id| Raw::greet(id, &listening)).collect();
    assert!(descriptors(&child) > before + SLACK, "the links must have descriptors");
    for _ in 0..ROUNDS {
        let down = child.expect_line("down ");
        assert!(down.ends_with(" Silent"), "{down}");
    }
    assert_closed(&child, before);
    raws.iter().for_each(Raw::wait_until_closed);
}

/// One of two nodes is stopped for longer than the liveness limit. In the end each has the descriptors of one link.
#[test]
fn both_ends_of_a_replaced_link_keep_the_descriptors_of_one_link() {
    let _exclusive = exclusive_run();
    let (one, listening) = Child::node(1, &address("shm", "ended-both-1"));
    let other = Child::start("node", &["2", &address("shm", "ended-both-2"), &format!("1={listening}")]);
    let links = |peers: [&Child; 2]| {
        peers[0].expect_line("up 2");
        peers[1].expect_line("up 1");
    };
    links([&one, &other]);
    let before = [&one, &other].map(descriptors);
    let rounds = 3;
    for _ in 0..rounds {
        other.signal(Signal::SIGSTOP);
        assert_eq!(one.expect_line("down 2 "), "Silent");
        other.signal(Signal::SIGCONT);
        other.expect_line("down 1 ");
        links([&one, &other]);
    }
    for (node, before) in [&one, &other].into_iter().zip(before) {
        assert_closed(node, before);
    }
}

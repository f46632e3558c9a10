//! Links over shared memory that end while both processes live: each end gives its descriptors back, also to a peer that keeps its own.

use core::time::Duration;

use nix::sys::signal::Signal;
use pronto::Class;
use pronto_wire::{Acks, Header, Kind, RawHeader};

use crate::child::Child;
use crate::raw::Raw;
use crate::rig::{Watch, address, alone, beside_others};

/// Links that end in a test: more than the descriptors that a node may have more for other reasons.
const ROUNDS: u16 = 8;
/// Descriptors that a node may have more after the first links than before, whatever becomes of them.
const SLACK: usize = 4;

/// Descriptors that a process has.
fn descriptors(process: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

#[track_caller]
fn are_given_back(process: &Child, before: usize) {
    let watch = Watch::start();
    while descriptors(process) > before + SLACK {
        let now = descriptors(process);
        assert!(watch.passed() < PATIENCE, "descriptors are left open: {now}, where there were {before}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Nothing that has to happen takes as long.
const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn links_of_corrupt_peers_leave_no_descriptors() {
    let _beside = beside_others();
    let (child, listening) = Child::node(1, &address("shm", "ended-corrupt"));
    let before = descriptors(&child);
    let mut raws = Vec::new();
    for id in 9..9 + ROUNDS {
        let mut raw = Raw::greets(id, &listening);
        let mut unknown = *Header { kind: Kind::Heartbeat, acks: Acks::default() }.emit().as_array();
        unknown[4] = 200;
        raw.send(Class::Control, &RawHeader::from_array(unknown), &[]).unwrap();
        assert_eq!(child.hears(&format!("down {id} ")), "Corrupt");
        raws.push(raw);
    }
    are_given_back(&child, before);
    raws.iter().for_each(Raw::is_left);
}

#[test]
fn links_of_silent_peers_leave_no_descriptors() {
    let _beside = beside_others();
    let (child, listening) = Child::node(1, &address("shm", "ended-silent"));
    let before = descriptors(&child);
    // They live, and say nothing.
    let raws: Vec<_> = (9..9 + ROUNDS).map(|id| Raw::greets(id, &listening)).collect();
    assert!(descriptors(&child) > before + SLACK, "links without descriptors");
    for _ in 0..ROUNDS {
        let down = child.hears("down ");
        assert!(down.ends_with(" Silent"), "{down}");
    }
    are_given_back(&child, before);
    raws.iter().for_each(Raw::is_left);
}

/// Two nodes, of which one stands still for longer than the other waits: each has one link in the end, and what belongs to it.
#[test]
fn both_ends_of_a_link_that_was_given_up_and_made_anew_have_the_descriptors_of_one() {
    let _alone = alone();
    let (one, listening) = Child::node(1, &address("shm", "ended-both-1"));
    let other = Child::start("node", &["2", &address("shm", "ended-both-2"), &format!("1={listening}")]);
    let links = |peers: [&Child; 2]| {
        peers[0].hears("up 2");
        peers[1].hears("up 1");
    };
    links([&one, &other]);
    let before = [&one, &other].map(descriptors);
    let rounds = 3;
    for _ in 0..rounds {
        other.signal(Signal::SIGSTOP);
        assert_eq!(one.hears("down 2 "), "Silent");
        other.signal(Signal::SIGCONT);
        other.hears("down 1 ");
        links([&one, &other]);
    }
    for (node, before) in [&one, &other].into_iter().zip(before) {
        are_given_back(node, before);
    }
}

//! A wire that breaks between two nodes which live: the session goes on, and every call is answered exactly once.

use core::time::Duration;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronto::{DownCause, Event, Executed, Node, Peer, WaitPolicy};

use crate::proxy::Proxy;
use crate::raw::Raw;
use crate::rig::{
    Add, Fetch, SOON, Sum, Work, add, all, assert_all_back, beside_others, client, counter, event, lasts,
    started, until,
};

type Executions = Arc<Mutex<HashMap<u64, u64>>>;

/// A server that counts executions by key, and takes its time over each.
fn counting() -> (Node, String, Executions) {
    let executions = Executions::default();
    let counts = Arc::clone(&executions);
    let node = Node::builder(1)
        .wait(WaitPolicy::Block)
        .listen("tcp:127.0.0.1:0")
        .handle(move |_, work: Work| {
            let mut counts = counts.lock().unwrap();
            let times = counts.entry(work.key).or_default();
            *times += 1;
            Sum { total: *times }
        })
        .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
        .start()
        .unwrap();
    let address = node.listening()[0].to_string();
    (node, address, executions)
}

/// Calls with a key of its own each time, until told to stop.
fn works(peer: &Peer, caller: u64, done: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = peer.call(&Work { key: caller << 32 | count }).unwrap();
        assert_eq!(answer.total, 1, "executed more than once");
        count += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    count
}

#[test]
fn calls_survive_a_cut_and_execute_once() {
    let _beside = beside_others();
    let (node, address, executions) = counting();
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    let events = [caller.events(), node.events()];
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (cuts, calls) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|n| {
                let (peer, done, stop) = (&peer, &done, &stop);
                scope.spawn(move || works(peer, n, done, stop))
            })
            .collect();
        let mut cuts = 0;
        for _ in 0..5 {
            let before = done.load(Ordering::Relaxed);
            until("there is load", || done.load(Ordering::Relaxed) > before + 100);
            assert!(wire.cut() > 0);
            cuts += 1;
            for events in &events {
                event(events, SOON, |event| matches!(event, Event::LinkLost { .. }));
                let limit = Duration::from_secs(3);
                event(events, limit, |event| matches!(event, Event::LinkResumed { .. }));
            }
        }
        let before = done.load(Ordering::Relaxed);
        until("it goes on", || done.load(Ordering::Relaxed) > before + 100);
        stop.store(true, Ordering::Relaxed);
        (cuts, callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>())
    });
    let executions = executions.lock().unwrap();
    assert_eq!(executions.len() as u64, calls, "each call was executed");
    assert!(executions.values().all(|times| *times == 1), "and executed once");
    assert!(counter(&caller, 1, "links_resumed") >= cuts);
    assert!(counter(&caller, 1, "requests_resent") > 0, "some calls were under way");
    assert!(!events.iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
    drop(executions);
    assert_all_back(&caller, &peer);
}

#[test]
fn large_replies_survive_a_cut() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "large");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    let events = caller.events();
    for round in 0..5_usize {
        let pending: Vec<_> = (0..8).map(|_| peer.start(&Fetch { len: 1 << 20 }).unwrap()).collect();
        let before = wire.bytes();
        until("some of it is on its way", || wire.bytes() > before + (round << 19));
        wire.cut();
        for call in pending {
            assert_eq!(call.wait().unwrap().bytes.len(), 1 << 20);
        }
        event(&events, SOON, |event| matches!(event, Event::LinkResumed { .. }));
    }
    assert_eq!(counter(&caller, 1, "links_resumed"), 5);
    assert_eq!(counter(&node, 2, "replies_lost"), 0);
    assert_all_back(&caller, &peer);
}

#[test]
fn many_large_replies_need_no_more_memory_than_one() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "many");
    let (caller, peer) = client(2, &address);
    // All slots in turn, so that each slot's last answer would be kept if it were never acknowledged.
    for _ in 0..3 {
        let pending: Vec<_> = (0..40).filter_map(|_| peer.start(&Fetch { len: 1 << 20 }).ok()).collect();
        assert!(pending.len() >= 32);
        for call in pending {
            assert_eq!(call.wait().unwrap().bytes.len(), 1 << 20);
        }
    }
    assert_eq!(counter(&node, 2, "replies_lost"), 0);
    assert_all_back(&caller, &peer);
}

#[test]
fn a_partition_longer_than_the_limit_ends_the_session() {
    let _beside = beside_others();
    let node = crate::rig::server(1, "tcp:127.0.0.1:0").liveness(Duration::from_secs(1)).start().unwrap();
    let wire = Proxy::to(&node.listening()[0].to_string());
    let caller = Node::builder(2)
        .wait(WaitPolicy::Block)
        .liveness(Duration::from_secs(1))
        .peer(1, &wire.address())
        .start()
        .unwrap();
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    add(&peer);
    let events = [caller.events(), node.events()];
    let epoch = node.epoch();
    wire.goes_dead();
    let pending = peer.start(&Work { key: 1 }).unwrap();
    let error = pending.wait().unwrap_err();
    assert_eq!(error, pronto::CallError::PeerDown { executed: Executed::Maybe });
    for events in &events {
        let down = event(events, Duration::from_secs(4), |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    }
    wire.recovers();
    let up = event(&events[0], SOON, |event| matches!(event, Event::PeerUp(_)));
    assert!(matches!(up, Event::PeerUp(info) if info.epoch == epoch), "the same life: {up:?}");
    peer_answers(&caller);
}

/// Right after the partition the first links may still be those from before it.
fn peer_answers(caller: &Node) {
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    until("calls are answered again", || peer.call(&Add { values: vec![1] }).is_ok());
}

#[test]
fn a_wire_that_stays_cut_ends_the_session_at_the_limit() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "stays");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    let events = [caller.events(), node.events()];
    add(&peer);
    wire.closes();
    for events in &events {
        event(events, SOON, |event| matches!(event, Event::LinkLost { .. }));
        let down = event(events, Duration::from_secs(6), |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    }
    wire.recovers();
    event(&events[0], SOON, |event| matches!(event, Event::PeerUp(_)));
    peer_answers(&caller);
}

/// Links that come and go between two ticks of the serving thread: their sessions end at the limit all the same.
#[test]
fn sessions_of_links_that_live_for_a_moment_end_at_the_limit() {
    let _beside = beside_others();
    let limit = Duration::from_millis(600);
    for id in 10..14 {
        let node = crate::rig::server(1, "tcp:127.0.0.1:0").liveness(limit).start().unwrap();
        let events = node.events();
        drop(Raw::greets(id, &node.listening()[0].to_string()));
        // Far beyond the limit, and below the time that an idle node sleeps.
        let soon = Duration::from_secs(5);
        event(&events, soon, |event| matches!(event, Event::PeerDown { cause: DownCause::Silent, .. }));
    }
}

/// Quiet sessions with a short limit stay up: their heartbeats are as short.
#[test]
fn a_short_limit_has_short_heartbeats() {
    let _beside = beside_others();
    for transport in crate::rig::TRANSPORTS {
        let limit = Duration::from_millis(600);
        let listen = crate::rig::address(transport, "short");
        let node = crate::rig::server(1, &listen).liveness(limit).start().unwrap();
        let address = node.listening()[0].to_string();
        let caller = Node::builder(2).liveness(limit).peer(1, &address).start().unwrap();
        let peer = caller.wait_for_peer(1, SOON).unwrap();
        let events = [caller.events(), node.events()];
        lasts(Duration::from_secs(3));
        for events in &events {
            let seen = all(events);
            assert!(
                !seen.iter().any(|event| matches!(event, Event::PeerDown { .. })),
                "{transport}: {seen:?}"
            );
        }
        add(&peer);
    }
}

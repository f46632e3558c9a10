//! Broken connections between two live nodes: the session resumes, and every call ends exactly once.

use core::time::Duration;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronto::{DownCause, Event, Executed, Node, NodeId, Peer, WaitPolicy};

use crate::proxy::Proxy;
use crate::raw::Raw;
use crate::rig::{
    Add, Fetch, Sum, TIMEOUT, Work, add, all, assert_all_released, client, counter, event, shared_run,
    started, until,
};

type Executions = Arc<Mutex<HashMap<u64, u64>>>;

/// Starts a server that counts executions by key.
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

/// Makes calls, each with its own key, until `stop` is set. Returns their number.
fn works(peer: &Peer, caller: u64, done: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let reply = peer.call(&Work { key: caller << 32 | count }).unwrap();
        assert_eq!(reply.total, 1, "executed more than once");
        count += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    count
}

/// Shows: protocol.survives, protocol.duplicates, operations.link-breaks, operations.resent, messages.once
#[test]
fn calls_survive_a_cut_and_execute_once() {
    let _shared = shared_run();
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
                event(events, TIMEOUT, |event| matches!(event, Event::LinkLost { .. }));
                event(events, TIMEOUT, |event| matches!(event, Event::LinkResumed { .. }));
            }
        }
        let before = done.load(Ordering::Relaxed);
        until("calls continue", || done.load(Ordering::Relaxed) > before + 100);
        stop.store(true, Ordering::Relaxed);
        (cuts, callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>())
    });
    let executions = executions.lock().unwrap();
    assert_eq!(executions.len() as u64, calls, "each call must be executed");
    assert!(executions.values().all(|times| *times == 1), "each call must be executed only once");
    assert!(counter(&caller, 1, "links_resumed") >= cuts);
    assert!(counter(&caller, 1, "requests_resent") > 0, "the cuts must meet open calls");
    assert!(!events.iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
    drop(executions);
    assert_all_released(&caller, &peer);
}

/// Shows: protocol.response-kept, operations.links
#[test]
fn large_replies_survive_a_cut() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "large");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    let events = caller.events();
    for round in 0..5_usize {
        let pending: Vec<_> = (0..8).map(|_| peer.start(&Fetch { len: 1 << 20 }).unwrap()).collect();
        let before = wire.bytes();
        until("some replies are in flight", || wire.bytes() > before + (round << 19));
        wire.cut();
        for call in pending {
            assert_eq!(call.wait().unwrap().bytes.len(), 1 << 20);
        }
        event(&events, TIMEOUT, |event| matches!(event, Event::LinkResumed { .. }));
    }
    assert_eq!(counter(&caller, 1, "links_resumed"), 5);
    assert_eq!(counter(&node, 2, "replies_lost"), 0);
    assert_all_released(&caller, &peer);
}

/// Shows: protocol.response-kept
#[test]
fn many_large_replies_need_no_more_memory_than_one() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "many");
    let (caller, peer) = client(2, &address);
    // Uses all slots in turn. Each slot's last response would be kept if it were never acknowledged.
    for _ in 0..3 {
        let pending: Vec<_> = (0..40).filter_map(|_| peer.start(&Fetch { len: 1 << 20 }).ok()).collect();
        assert!(pending.len() >= 32);
        for call in pending {
            assert_eq!(call.wait().unwrap().bytes.len(), 1 << 20);
        }
    }
    assert_eq!(counter(&node, 2, "replies_lost"), 0);
    assert_all_released(&caller, &peer);
}

/// Shows: protocol.end-executed, protocol.another-session, operations.silent
#[test]
fn a_partition_longer_than_the_limit_ends_the_session() {
    let _shared = shared_run();
    let node = crate::rig::server(1, "tcp:127.0.0.1:0").liveness(Duration::from_secs(1)).start().unwrap();
    let wire = Proxy::to(&node.listening()[0].to_string());
    let caller = Node::builder(2)
        .wait(WaitPolicy::Block)
        .liveness(Duration::from_secs(1))
        .peer(1, &wire.address())
        .start()
        .unwrap();
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    add(&peer);
    let events = [caller.events(), node.events()];
    let epoch = node.epoch();
    wire.go_silent();
    let pending = peer.start(&Work { key: 1 }).unwrap();
    let error = pending.wait().unwrap_err();
    let (peer, cause) = (NodeId(1), Some(DownCause::Silent));
    assert_eq!(error, pronto::CallError::PeerDown { peer, cause, executed: Executed::Maybe });
    for events in &events {
        let down = event(events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    }
    wire.recover();
    let up = event(&events[0], TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    assert!(matches!(up, Event::PeerUp(info) if info.epoch == epoch), "the same incarnation: {up:?}");
    until_calls_succeed(&caller);
}

/// Waits until calls succeed. Right after the partition the first links may still be those from before it.
fn until_calls_succeed(caller: &Node) {
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    until("calls succeed again", || peer.call(&Add { values: vec![1] }).is_ok());
}

/// Shows: protocol.survives
#[test]
fn a_wire_that_stays_cut_ends_the_session_at_the_limit() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "stays");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    let events = [caller.events(), node.events()];
    add(&peer);
    wire.close();
    for events in &events {
        event(events, TIMEOUT, |event| matches!(event, Event::LinkLost { .. }));
        let down = event(events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    }
    wire.recover();
    event(&events[0], TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    until_calls_succeed(&caller);
}

/// Links that begin and end between two ticks of the serving thread: their sessions still end at the limit.
#[test]
fn sessions_of_short_lived_links_end_at_the_limit() {
    let _shared = shared_run();
    let limit = Duration::from_millis(600);
    for id in 10..14 {
        let node = crate::rig::server(1, "tcp:127.0.0.1:0").liveness(limit).start().unwrap();
        let events = node.events();
        drop(Raw::greet(id, &node.listening()[0].to_string()));
        // Far beyond the limit, and below the time that an idle node sleeps.
        let soon = Duration::from_secs(5);
        event(&events, soon, |event| matches!(event, Event::PeerDown { cause: DownCause::Silent, .. }));
    }
}

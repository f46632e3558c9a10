//! A node that is stopped for a while (SIGSTOP): a short stop causes no event, a long one causes one PeerDown and one PeerUp.

use core::time::Duration;

use nix::sys::signal::Signal;
use pronto::{CallError, Event, Executed, NodeId, Pending, Region, Request};

use crate::child::Child;
use crate::raw::encoded_in;
use crate::rig::{
    Mark, PooledMark, Sum, TIMEOUT, TRANSPORTS, Watch, Work, add, address, all, assert_all_released, client,
    event, exclusive_run, pause, shared_run,
};

/// Shows: operations.short-stop
#[test]
fn a_stop_of_one_second_causes_no_event() {
    let _exclusive = exclusive_run();
    for transport in TRANSPORTS {
        assert!((0..5).any(|_| stop_during_calls(transport)), "no stop lasted one second");
    }
}

/// Stops a node with open calls, and asserts that no event occurs. Returns false if the stop lasted too long.
fn stop_during_calls(transport: &str) -> bool {
    let (child, listening) = Child::node(1, &address(transport, "second"));
    let (node, peer) = client(2, &listening);
    let events = node.events();
    let watch = Watch::start();
    add(&peer);
    child.signal(Signal::SIGSTOP);
    let pending: Vec<_> = (0..20).map(|key| peer.start(&Work { key }).unwrap()).collect();
    pause(Duration::from_secs(1));
    child.signal(Signal::SIGCONT);
    let ends: Vec<_> = pending.into_iter().map(Pending::wait).collect();
    if watch.passed() > Duration::from_secs(2) {
        eprintln!("this machine was delayed: {:?}", watch.passed());
        return false;
    }
    for end in ends {
        assert_eq!(end.unwrap().total, 1, "{transport}: executed once");
    }
    assert_eq!(all(&events), [], "{transport}");
    assert_all_released(&node, &peer);
    true
}

/// The worst moment for a stop is when a heartbeat is due. If this machine itself is delayed, the stop may last too long, and is tried
/// again.
///
/// Shows: operations.short-stop
#[test]
fn a_stop_of_one_second_at_the_worst_moment_causes_no_event() {
    let _exclusive = exclusive_run();
    assert!((0..5).any(|_| stop_at_the_worst_moment()), "no stop lasted one second");
}

/// Stops quiet nodes at several moments of their heartbeat interval, and asserts that no event occurs. Returns false if a stop lasted too
/// long.
fn stop_at_the_worst_moment() -> bool {
    let pairs: Vec<_> = (0..4)
        .flat_map(|n| TRANSPORTS.map(|transport| (n, transport)))
        .map(|(n, transport)| {
            let (child, listening) = Child::node(1, &address(transport, &format!("worst-{n}")));
            let (node, peer) = client(2, &listening);
            add(&peer);
            (child, node.events(), node)
        })
        .collect();
    // Heartbeats are due 1.8 s after the last message; the stops begin 1.4 s to 2 s after it.
    pause(Duration::from_millis(1300));
    let stop = |child: &Child| {
        pause(Duration::from_millis(90));
        let watch = Watch::start();
        child.signal(Signal::SIGSTOP);
        watch
    };
    let stops: Vec<_> = pairs.iter().map(|(child, _, _)| (child, stop(child))).collect();
    pause(Duration::from_secs(1) - Duration::from_millis(90) * 7);
    let resume = |(child, stopped): &(&Child, Watch)| {
        child.signal(Signal::SIGCONT);
        let stopped = stopped.passed();
        let watch = Watch::start();
        pause(Duration::from_millis(90));
        // In this time the child sends the heartbeat that was due.
        (stopped, watch.passed())
    };
    let took: Vec<_> = stops.iter().map(resume).collect();
    let (long, late) = (Duration::from_millis(1_100), Duration::from_millis(190));
    if took.iter().any(|(stopped, then)| *stopped > long || *then > late) {
        eprintln!("this machine was delayed: {took:?}");
        return false;
    }
    pause(Duration::from_secs(2));
    for (_, events, _) in &pairs {
        assert_eq!(all(events), []);
    }
    true
}

/// Shows: protocol.another-session, protocol.down, operations.long-stop
#[test]
fn five_seconds_are_one_down_and_one_up() {
    let _exclusive = exclusive_run();
    let stopped = TRANSPORTS.map(|transport| {
        let (child, listening) = Child::node(1, &address(transport, "five"));
        let (node, peer) = client(2, &listening);
        add(&peer);
        let info = node.status().peers[0].info.unwrap();
        (child, node.events(), node, peer, info)
    });
    // The sessions are quiet now, so the time of the last message is known exactly.
    pause(Duration::from_secs(2));
    for (child, ..) in &stopped {
        child.signal(Signal::SIGSTOP);
    }
    pause(Duration::from_secs(5));
    // A node that was late itself waits longer for its peers.
    for (_, events, _, _, before) in &stopped {
        let down = event(events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { peer: NodeId(1), epoch, .. } if epoch == before.epoch));
    }
    for (child, ..) in &stopped {
        child.signal(Signal::SIGCONT);
    }
    for (child, events, node, peer, before) in &stopped {
        let up = event(events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
        let Event::PeerUp(after) = up else { unreachable!() };
        assert_eq!(after.epoch, before.epoch, "the incarnation must be the same");
        assert_ne!(after.session, before.session, "the session must be a new one");
        add(peer);
        // The stopped node also reports one PeerDown and one PeerUp.
        child.expect_line("down 2");
        child.expect_line("up 2");
        pause(Duration::from_secs(1));
        let rest = all(events);
        assert!(!rest.iter().any(|event| matches!(event, Event::PeerDown { .. })), "{rest:?}");
        assert_all_released(node, peer);
    }
}

/// After a call has ended, its caller may overwrite the region of the request. A callee that was stopped meanwhile finds the request when
/// it continues, and must not execute it with the new bytes.
///
/// Shows: calls.by-reference
#[test]
fn a_request_by_reference_is_not_executed_after_its_call_has_ended() {
    let _shared = shared_run();
    assert_not_executed_late("inline", |number| Mark { number, padding: vec![0; LONG] });
    assert_not_executed_late("pooled", |number| PooledMark { number, padding: vec![0; LONG] });
}

/// Bytes of padding, too many for an inline message, so that the callee reads the request from the region.
const LONG: usize = 10_000;

fn assert_not_executed_late<M: Request<Reply = Sum>>(name: &str, numbered: impl Fn(u64) -> M) {
    let (child, listening) = Child::node(1, &address("shm", &format!("late-{name}")));
    let (node, peer) = client(2, &listening);
    add(&peer);
    let events = node.events();
    let bytes = encoded_in(2 * LONG, &numbered(1));
    let region: Region = node.region(bytes.len()).unwrap();
    region.write(0, &bytes).unwrap();
    child.stop_all_threads();
    let call = peer.start_from::<M>(&region, 0..bytes.len() as u64).unwrap();
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    let outcome = call.wait();
    assert!(
        matches!(outcome, Err(CallError::PeerDown { executed: Executed::Maybe, .. })),
        "the request must have been posted: {outcome:?}"
    );
    region.write(0, &encoded_in(2 * LONG, &numbered(2))).unwrap();
    child.signal(Signal::SIGCONT);
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    assert_eq!(peer.call(&numbered(3)).unwrap().total, 3);
    let executed = child.expect_line("executed ");
    assert_eq!(executed, "3", "the callee executed bytes that the caller wrote after the end of its call");
}

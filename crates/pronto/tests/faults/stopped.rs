//! A node that stands still for a while (SIGSTOP): shortly is nobody's business, long is one PeerDown and one PeerUp.

use core::time::Duration;

use nix::sys::signal::Signal;
use pronto::{CallError, Event, Executed, NodeId, Region, Request};

use crate::child::Child;
use crate::raw::encoded_in;
use crate::rig::{
    Mark, PooledMark, SOON, Sum, TRANSPORTS, Watch, Work, add, address, all, alone, assert_all_back,
    beside_others, client, event, lasts,
};

#[test]
fn a_second_is_nobodys_business() {
    let _alone = alone();
    for transport in TRANSPORTS {
        let (child, listening) = Child::node(1, &address(transport, "second"));
        let (node, peer) = client(2, &listening);
        add(&peer);
        let events = node.events();
        child.signal(Signal::SIGSTOP);
        let pending: Vec<_> = (0..20).map(|key| peer.start(&Work { key }).unwrap()).collect();
        lasts(Duration::from_secs(1));
        child.signal(Signal::SIGCONT);
        for call in pending {
            assert_eq!(call.wait().unwrap().total, 1, "{transport}: executed once");
        }
        assert_eq!(all(&events), [], "{transport}");
        assert_all_back(&node, &peer);
    }
}

/// The worst moment to stop: when a heartbeat is due. Where this machine stands still itself meanwhile, a stop is longer than it should
/// be, and too long to be nobody's business: then it is tried once more.
#[test]
fn a_second_at_the_worst_moment() {
    let _alone = alone();
    assert!((0..5).any(|_| are_stopped_at_the_worst_moment()), "no stop took a second");
}

/// Quiet nodes are stopped at several moments of their heartbeat, which nobody notices. False if that took longer than it should.
fn are_stopped_at_the_worst_moment() -> bool {
    let pairs: Vec<_> = (0..4)
        .flat_map(|n| TRANSPORTS.map(|transport| (n, transport)))
        .map(|(n, transport)| {
            let (child, listening) = Child::node(1, &address(transport, &format!("worst-{n}")));
            let (node, peer) = client(2, &listening);
            add(&peer);
            (child, node.events(), node)
        })
        .collect();
    // Heartbeats are due 1.85 s after the last word: stops begin 1.4 s to 2 s after it.
    lasts(Duration::from_millis(1300));
    let stop = |child: &Child| {
        lasts(Duration::from_millis(90));
        let watch = Watch::start();
        child.signal(Signal::SIGSTOP);
        watch
    };
    let stops: Vec<_> = pairs.iter().map(|(child, _, _)| (child, stop(child))).collect();
    lasts(Duration::from_secs(1) - Duration::from_millis(90) * 7);
    let went_on = |(child, stopped): &(&Child, Watch)| {
        child.signal(Signal::SIGCONT);
        let stopped = stopped.passed();
        let watch = Watch::start();
        lasts(Duration::from_millis(90));
        // With that the child has had time to say what was due meanwhile.
        (stopped, watch.passed())
    };
    let took: Vec<_> = stops.iter().map(went_on).collect();
    let (long, late) = (Duration::from_millis(1_100), Duration::from_millis(190));
    if took.iter().any(|(stopped, then)| *stopped > long || *then > late) {
        eprintln!("this machine stood still: {took:?}");
        return false;
    }
    lasts(Duration::from_secs(2));
    for (_, events, _) in &pairs {
        assert_eq!(all(events), []);
    }
    true
}

#[test]
fn five_seconds_are_one_down_and_one_up() {
    let _alone = alone();
    let stopped = TRANSPORTS.map(|transport| {
        let (child, listening) = Child::node(1, &address(transport, "five"));
        let (node, peer) = client(2, &listening);
        add(&peer);
        let info = node.status().peers[0].info.unwrap();
        (child, node.events(), node, peer, info)
    });
    // Quiet by now: who was last heard when is known exactly.
    lasts(Duration::from_secs(2));
    for (child, ..) in &stopped {
        child.signal(Signal::SIGSTOP);
    }
    lasts(Duration::from_secs(5));
    for (child, ..) in &stopped {
        child.signal(Signal::SIGCONT);
    }
    for (child, events, node, peer, before) in &stopped {
        let down = event(events, SOON, |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { peer: NodeId(1), epoch, .. } if epoch == before.epoch));
        let up = event(events, SOON, |event| matches!(event, Event::PeerUp(_)));
        let Event::PeerUp(after) = up else { unreachable!() };
        assert_eq!(after.epoch, before.epoch, "the same life");
        assert_ne!(after.session, before.session, "another session");
        add(peer);
        // At the node that was stopped it was at most one as well.
        child.hears("down 2");
        child.hears("up 2");
        lasts(Duration::from_secs(1));
        let rest = all(events);
        assert!(!rest.iter().any(|event| matches!(event, Event::PeerDown { .. })), "{rest:?}");
        assert_all_back(node, peer);
    }
}

/// A caller whose call has ended may write to the region that the request was sent from. A callee that stood still meanwhile finds
/// the request when it goes on, and must not execute it with the new bytes.
#[test]
fn a_request_by_reference_is_not_executed_after_its_caller_gave_it_up() {
    let _beside = beside_others();
    is_not_executed_late("inline", |number| Mark { number, padding: vec![0; LONG] });
    is_not_executed_late("pooled", |number| PooledMark { number, padding: vec![0; LONG] });
}

/// Too long for a message line, so that the callee reads it from the region.
const LONG: usize = 10_000;

fn is_not_executed_late<M: Request<Reply = Sum>>(name: &str, numbered: impl Fn(u64) -> M) {
    let (child, listening) = Child::node(1, &address("shm", &format!("late-{name}")));
    let (node, peer) = client(2, &listening);
    add(&peer);
    let events = node.events();
    let bytes = encoded_in(2 * LONG, &numbered(1));
    let region: Region = node.region(bytes.len()).unwrap();
    region.write(0, &bytes).unwrap();
    child.stands_still();
    let call = peer.start_from::<M>(&region, 0..bytes.len() as u64).unwrap();
    event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
    let outcome = call.wait();
    assert!(
        matches!(outcome, Err(CallError::PeerDown { executed: Executed::Maybe })),
        "the request was not posted: {outcome:?}"
    );
    region.write(0, &encoded_in(2 * LONG, &numbered(2))).unwrap();
    child.signal(Signal::SIGCONT);
    event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
    assert_eq!(peer.call(&numbered(3)).unwrap().total, 3);
    let executed = child.hears("executed ");
    assert_eq!(executed, "3", "the callee executed what the caller wrote after the end of its call");
}

//! `kill -9` of a node under load, and its restart: every call ends once, in time, and nothing is left over.

use core::time::Duration;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pronto::{CallError, DownCause, Epoch, Event, Executed, NodeId, Peer};

use crate::child::Child;
use crate::rig::{
    Add, SOON, TRANSPORTS, Watch, Work, address, assert_all_back, beside_others, client, event, free_address,
    until,
};

/// How a caller's calls ended.
#[derive(Default)]
struct Ends {
    answered: AtomicU64,
    down_maybe: AtomicU64,
    not_sent: AtomicU64,
}

/// Calls until told to stop; every end must be one of those that a dead peer explains.
fn calls(peer: &Peer, ends: &Ends, stop: &AtomicBool) -> u64 {
    let mut begun = 0;
    while !stop.load(Ordering::Relaxed) {
        begun += 1;
        let watch = Watch::start();
        let end = match peer.call(&Add { values: vec![begun, 1] }) {
            Ok(sum) => {
                assert_eq!(sum.total, begun + 1, "another call's answer");
                &ends.answered
            }
            Err(CallError::PeerDown { executed: Executed::Maybe }) => &ends.down_maybe,
            Err(error) => {
                assert_eq!(error.executed(), Executed::No, "{error:?}");
                std::thread::park_timeout(Duration::from_micros(200));
                &ends.not_sent
            }
        };
        end.fetch_add(1, Ordering::Relaxed);
        assert!(watch.passed() < Duration::from_secs(8), "a call took {:?}", watch.passed());
    }
    begun
}

#[test]
fn a_killed_node_comes_back_as_another_life() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let listen = if transport == "shm" { address("shm", "killed") } else { free_address() };
        let (mut first, listening) = Child::node(1, &listen);
        let (node, peer) = client(2, &listening);
        let events = node.events();
        let epoch = node.status().peers[0].info.unwrap().epoch;
        let (ends, stop) = (Ends::default(), AtomicBool::new(false));
        let begun: u64 = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| calls(&peer, &ends, &stop))).collect();
            until("there is load", || ends.answered.load(Ordering::Relaxed) > 200);
            first.kill();
            let (second, _) = Child::node(1, &listen);
            let cause = down(&events, epoch);
            assert!(matches!(cause, DownCause::Died | DownCause::Replaced), "{transport}: {cause:?}");
            let up = event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
            let Event::PeerUp(info) = up else { unreachable!() };
            assert_ne!(info.epoch, epoch, "a new life has a new epoch");
            let before = ends.answered.load(Ordering::Relaxed);
            until("calls are answered again", || ends.answered.load(Ordering::Relaxed) > before + 200);
            stop.store(true, Ordering::Relaxed);
            let begun = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
            assert_all_back(&node, &peer);
            drop(second);
            begun
        });
        // None hangs, and none ended twice.
        let ended = [&ends.answered, &ends.down_maybe, &ends.not_sent].map(|end| end.load(Ordering::Relaxed));
        assert_eq!(ended.iter().sum::<u64>(), begun, "{transport}: {ended:?}");
    }
}

fn down(events: &pronto::Events, epoch: Epoch) -> DownCause {
    let down = event(events, SOON, |event| matches!(event, Event::PeerDown { .. }));
    let Event::PeerDown { peer, epoch: found, cause } = down else { unreachable!() };
    assert_eq!((peer, found), (NodeId(1), epoch));
    cause
}

#[test]
fn calls_to_a_node_that_stays_dead_end() {
    let _beside = beside_others();
    for (transport, limit) in [("shm", Duration::from_secs(2)), ("tcp", Duration::from_secs(6))] {
        let (mut child, listening) = Child::node(1, &address(transport, "dead"));
        let (node, peer) = client(2, &listening);
        let events = node.events();
        let epoch = node.status().peers[0].info.unwrap().epoch;
        child.signal(nix::sys::signal::Signal::SIGSTOP);
        // In flight for certain: the callee is stopped.
        let pending: Vec<_> = (0..20).map(|key| peer.start(&Work { key }).unwrap()).collect();
        let watch = Watch::start();
        child.kill();
        for call in pending {
            assert_eq!(call.wait().unwrap_err(), CallError::PeerDown { executed: Executed::Maybe });
        }
        assert!(watch.passed() < limit, "{transport}: {:?}", watch.passed());
        down(&events, epoch);
        // What is called now was not sent, and says so at once.
        let watch = Watch::start();
        let refused = peer.call(&Add { values: vec![] }).unwrap_err();
        assert!(matches!(refused, CallError::Rejected(_)), "{refused:?}");
        assert_eq!(refused.executed(), Executed::No);
        assert!(watch.passed() < Duration::from_secs(1));
        let status = node.status();
        assert_eq!((status.peers[0].open_calls, status.peers[0].work_in_flight), (0, 0));
    }
}

/// A new life counts its calls from the beginning; what an earlier life cancelled does not concern it.
#[test]
fn cancellations_die_with_the_life_that_made_them() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (server, listening) = crate::rig::started(1, transport, "cancelled");
        let events = server.events();
        let peer = format!("1={listening}");
        let mut first = Child::start("node", &["2", &address("shm", "cancelled-2"), &peer]);
        first.hears("listening ");
        first.tell("give-up 1 40");
        first.hears("gave up");
        first.tell("call 1 1");
        first.hears("called 1");
        first.kill();
        event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
        let mut second = Child::start("node", &["2", &address("shm", "cancelled-2"), &peer]);
        second.hears("listening ");
        second.tell("work 1 80");
        assert_eq!(second.hears("worked "), "80 []", "{transport}");
        drop((first, second, server));
    }
}

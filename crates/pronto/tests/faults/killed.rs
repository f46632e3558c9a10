//! `kill -9` of a node under load, and its restart: every call ends once, because of the dead peer, and no state is left.

use core::time::Duration;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pronto::{CallError, DownCause, Epoch, Event, Executed, NodeId, Peer};

use crate::child::Child;
use crate::rig::{
    Add, TIMEOUT, TRANSPORTS, Work, address, assert_all_released, client, event, free_address, shared_run,
    until,
};

/// Numbers of calls by their end.
#[derive(Default)]
struct Ends {
    replied: AtomicU64,
    down_maybe: AtomicU64,
    not_sent: AtomicU64,
}

/// Makes calls until `stop` is set. Every end must be explained by a dead peer. Returns the number of calls.
fn calls(peer: &Peer, ends: &Ends, stop: &AtomicBool) -> u64 {
    let mut begun = 0;
    while !stop.load(Ordering::Relaxed) {
        begun += 1;
        let end = match peer.call(&Add { values: vec![begun, 1] }) {
            Ok(sum) => {
                assert_eq!(sum.total, begun + 1, "the reply of another call");
                &ends.replied
            }
            Err(CallError::PeerDown { executed: Executed::Maybe, .. }) => &ends.down_maybe,
            Err(error) => {
                assert_eq!(error.executed(), Executed::No, "{error:?}");
                std::thread::park_timeout(Duration::from_micros(200));
                &ends.not_sent
            }
        };
        end.fetch_add(1, Ordering::Relaxed);
    }
    begun
}

/// Shows: calls.peer-valid, protocol.epoch, protocol.shm-lost, operations.ends-tcp
#[test]
fn a_killed_node_comes_back_as_another_incarnation() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let listen = if transport == "shm" { address("shm", "killed") } else { free_address() };
        let (mut first, listening) = Child::node(1, &listen);
        let (node, peer) = client(2, &listening);
        let events = node.events();
        let epoch = node.status().peers[0].info.unwrap().epoch;
        let (ends, stop) = (Ends::default(), AtomicBool::new(false));
        let begun: u64 = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| calls(&peer, &ends, &stop))).collect();
            until("there is load", || ends.replied.load(Ordering::Relaxed) > 200);
            first.kill();
            let (second, _) = Child::node(1, &listen);
            let cause = down(&events, epoch);
            assert!(matches!(cause, DownCause::Died | DownCause::Replaced), "{transport}: {cause:?}");
            let up = event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
            let Event::PeerUp(info) = up else { unreachable!() };
            assert_ne!(info.epoch, epoch, "a new incarnation has a new epoch");
            let before = ends.replied.load(Ordering::Relaxed);
            until("calls succeed again", || ends.replied.load(Ordering::Relaxed) > before + 200);
            stop.store(true, Ordering::Relaxed);
            let begun = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
            assert_all_released(&node, &peer);
            drop(second);
            begun
        });
        // No call hangs, and none ended twice.
        let ended = [&ends.replied, &ends.down_maybe, &ends.not_sent].map(|end| end.load(Ordering::Relaxed));
        assert_eq!(ended.iter().sum::<u64>(), begun, "{transport}: {ended:?}");
    }
}

fn down(events: &pronto::Events, epoch: Epoch) -> DownCause {
    let down = event(events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    let Event::PeerDown { peer, epoch: found, cause } = down else { unreachable!() };
    assert_eq!((peer, found), (NodeId(1), epoch));
    cause
}

/// Shows: calls.down-cause, calls.ends-rejected, protocol.shm-lost, operations.ends-shm, operations.ends-tcp, operations.died, operations.silent
#[test]
fn calls_to_a_node_that_stays_dead_end() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (mut child, listening) = Child::node(1, &address(transport, "dead"));
        let (node, peer) = client(2, &listening);
        let events = node.events();
        let epoch = node.status().peers[0].info.unwrap().epoch;
        child.signal(nix::sys::signal::Signal::SIGSTOP);
        // The calls stay in flight, because the callee is stopped.
        let pending: Vec<_> = (0..20).map(|key| peer.start(&Work { key }).unwrap()).collect();
        child.kill();
        let expected = if transport == "shm" { DownCause::Died } else { DownCause::Silent };
        // Not by their deadlines.
        for call in pending {
            let error = call.wait().unwrap_err();
            let (peer, cause) = (NodeId(1), Some(expected));
            assert_eq!(error, CallError::PeerDown { peer, cause, executed: Executed::Maybe });
            let text = format!(
                "node 1 is down ({expected}), and its handler may have run or may still run: once it is back, "
            );
            assert!(error.to_string().starts_with(&text), "{error}");
        }
        assert_eq!(down(&events, epoch), expected);
        // A call that is made now is not sent, and reports this immediately.
        let refused = peer.call(&Add { values: vec![] }).unwrap_err();
        assert!(matches!(refused, CallError::Rejected(_)), "{refused:?}");
        assert_eq!(refused.executed(), Executed::No);
        let status = node.status();
        assert_eq!((status.peers[0].open_calls, status.peers[0].work_in_flight), (0, 0));
    }
}

/// A new incarnation counts its calls from the beginning. Cancellations of an earlier incarnation do not affect it.
#[test]
fn cancellations_end_with_their_incarnation() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (server, listening) = crate::rig::started(1, transport, "cancelled");
        let events = server.events();
        let peer = format!("1={listening}");
        let mut first = Child::start("node", &["2", &address("shm", "cancelled-2"), &peer]);
        first.expect_line("listening ");
        first.send_command("give-up 1 40");
        first.expect_line("gave up");
        first.send_command("call 1 1");
        first.expect_line("called 1");
        first.kill();
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        let mut second = Child::start("node", &["2", &address("shm", "cancelled-2"), &peer]);
        second.expect_line("listening ");
        second.send_command("work 1 80");
        assert_eq!(second.expect_line("worked "), "80 []", "{transport}");
        drop((first, second, server));
    }
}

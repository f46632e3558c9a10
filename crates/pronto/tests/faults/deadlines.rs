//! Deadlines travel in the request: the callee learns how long its caller waits, and skips the handler after that time.

use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use pronto::{CallError, Class, DEFAULT_TIMEOUT, Executed, Message, Node, Peer, ServiceId, WaitPolicy};
use pronto_wire::{CallId, FailureCode, Kind};

use crate::raw::{Raw, encoded_in, sum_of};
use crate::rig::{Add, Sum, TIMEOUT, TRANSPORTS, address, pause, server, shared_run, started};

#[derive(Message, Debug)]
#[message(name = "faults.left", reply = Left)]
struct AskLeft {}

/// The time that a handler's caller still waits, in microseconds.
#[derive(Message, Debug)]
#[message(name = "faults.left_time")]
struct Left {
    micros: Option<u64>,
}

/// A request whose handler waits until the test lets it go, and whose lane is shared by all of them.
#[derive(Message, Debug)]
#[message(name = "faults.in_turn", order = ordered, reply = Sum)]
struct InTurn {
    waits: bool,
}

/// A call of the raw peer.
type Call = Box<dyn Fn(&Peer) -> Result<Sum, CallError> + Send>;

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns the deadline field of the next request that the node sends to the raw peer, and replies to it.
fn deadline_of(raw: &mut Raw) -> u32 {
    let (header, _) = raw.receive(Class::Control);
    let Kind::Request { call, deadline_us, .. } = header.kind else { panic!("{header:?}") };
    raw.post(Class::Control, Kind::Reply { call }, &3_u64.to_le_bytes()).unwrap();
    deadline_us
}

/// Shows: calls.call, protocol.deadline
#[test]
fn a_request_carries_the_timeout_of_its_call() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "timeouts");
        let mut raw = Raw::greet(9, &address);
        let peer = node.wait_for_peer(9, TIMEOUT).unwrap();
        assert_eq!(DEFAULT_TIMEOUT, Duration::from_secs(10), "documented");
        let region = pronto::region(4_096).unwrap();
        region.write(0, &sum_of(&[1, 2])).unwrap();
        let encoded = sum_of(&[1, 2]).len() as u64;
        let short = || Add { values: vec![1, 2] };
        let long = || Add { values: vec![1; 100] };
        // The encoded request is inline, short, or in send memory: each has its own path through the session.
        let calls: [(&str, u32, Call); 8] = [
            ("call", 10_000_000, Box::new(move |peer| peer.call(&short()))),
            ("long call", 10_000_000, Box::new(move |peer| peer.call(&long()))),
            (
                "spinning call",
                10_000_000,
                Box::new(move |peer| peer.waiting(WaitPolicy::Spin).call(&short())),
            ),
            ("start", 10_000_000, Box::new(move |peer| peer.start(&short())?.wait())),
            (
                "start_from",
                10_000_000,
                Box::new(move |peer| peer.start_from::<Add>(&region, 0..encoded)?.wait()),
            ),
            ("call_within", 3_600_000_000, Box::new(move |peer| peer.call_within(&short(), HOUR))),
            ("long call_within", 3_600_000_000, Box::new(move |peer| peer.call_within(&long(), HOUR))),
            ("no deadline", 0, Box::new(move |peer| peer.start_within(&short(), Duration::MAX)?.wait())),
        ];
        for (name, expected, call) in calls {
            let to_peer = peer.clone();
            let called = std::thread::spawn(move || call(&to_peer));
            assert_eq!(deadline_of(&mut raw), expected, "{transport}: {name}");
            assert_eq!(called.join().unwrap().unwrap().total, 3, "{transport}: {name}");
        }
    }
}

/// Shows: calls.remaining
#[test]
fn a_handler_learns_how_long_its_caller_waits() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "left"))
            .handle(|context, _: AskLeft| Left {
                micros: context.remaining().map(|left| u64::try_from(left.as_micros()).unwrap()),
            })
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        let caller = Node::builder(2).wait(WaitPolicy::Block).peer(1, &listening).start().unwrap();
        let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
        // Handlers start within seconds, and the deadlines are hours: the bounds below need no quick machine.
        for hours in [1, 1_000] {
            let left = peer.call_within(&AskLeft {}, hours * HOUR).unwrap().micros.expect("a deadline");
            let most = (hours * HOUR).as_micros().min(u32::MAX.into());
            assert!(u128::from(left) <= most, "{transport}: {left} us of {most}");
            assert!(u128::from(left) > most / 2, "{transport}: {left} us of {most}");
        }
        let endless = peer.start_within(&AskLeft {}, Duration::MAX).unwrap().wait().unwrap();
        assert_eq!(endless.micros, None, "{transport}: a call without a deadline");
    }
}

/// The caller sends no cancel, so only the deadline in the request can end it.
///
/// Shows: protocol.order-expired
#[test]
fn a_request_whose_deadline_passed_in_its_lane_is_skipped() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (go, gate) = channel::<()>();
        let (entered, enters) = channel();
        let gate = Mutex::new(gate);
        let node = server(1, &address(transport, "expired"))
            .handle(move |_, turn: InTurn| {
                entered.send(turn.waits).unwrap();
                if turn.waits {
                    gate.lock().unwrap().recv().unwrap();
                }
                Sum { total: 1 }
            })
            .start()
            .unwrap();
        let mut raw = Raw::greet(9, &node.listening()[0].to_string());
        let in_turn = |raw: &mut Raw, slot: u16, waits: bool, deadline_us: u32| {
            let call = CallId { slot, generation: 1 };
            let (type_id, service) = (raw.number::<InTurn>(), ServiceId(0));
            let kind = Kind::Request { call, type_id, service, resent: false, deadline_us };
            raw.post(Class::Control, kind, &encoded_in(8, &InTurn { waits })).unwrap();
        };
        in_turn(&mut raw, 1, true, 0);
        assert_eq!(enters.recv_timeout(TIMEOUT), Ok(true));
        in_turn(&mut raw, 2, false, 1_000);
        in_turn(&mut raw, 3, false, 3_600_000_000);
        in_turn(&mut raw, 4, false, 0);
        // The reply to a later request shows that the node has received those before it, and the pause that a deadline has passed.
        raw.assert_works();
        pause(Duration::from_millis(2));
        go.send(()).unwrap();
        let kinds: Vec<_> = (0..4).map(|_| raw.receive(Class::Control).0.kind).collect();
        let call = |slot| CallId { slot, generation: 1 };
        let expected = [
            Kind::Reply { call: call(1) },
            Kind::Failure { call: call(2), code: FailureCode::Expired },
            Kind::Reply { call: call(3) },
            Kind::Reply { call: call(4) },
        ];
        assert_eq!(kinds, expected, "{transport}");
        assert_eq!(enters.try_iter().count(), 2, "{transport}: the handler of the expired request ran");
    }
}

/// A failure of the callee reaches its caller as a deadline that executed nothing.
///
/// Shows: calls.ends-maybe
#[test]
fn an_expired_call_ends_as_not_executed() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "not-executed");
        let mut raw = Raw::greet(9, &address);
        let peer = node.wait_for_peer(9, TIMEOUT).unwrap();
        let called = std::thread::spawn(move || peer.call_within(&Add { values: vec![1, 2] }, HOUR));
        let (header, _) = raw.receive(Class::Control);
        let Kind::Request { call, .. } = header.kind else { panic!("{header:?}") };
        raw.post(Class::Control, Kind::Failure { call, code: FailureCode::Expired }, &[]).unwrap();
        let outcome = called.join().unwrap();
        assert!(matches!(outcome, Err(CallError::Deadline { executed: Executed::No })), "{outcome:?}");
    }
}

//! A peer that greets correctly and then violates the protocol: its session ends with the cause, and other peers are not affected.

use pronto::{
    CallError, Class, DownCause, Event, Limits, Message, Node, NodeId, Peer, ServiceId, WaitPolicy,
};
use pronto_core::fabric::{FabricError, PeerFault};
use pronto_wire::{Acks, CallId, FailureCode, Header, HeaderFault, Kind, RawHeader, TypeId};

use crate::raw::{HalfMade, Raw, encoded_in, sum_of};
use crate::rig::{
    Add, Fetch, TIMEOUT, TRANSPORTS, Work, add, address, all, client, counter, event, server, shared_run,
    started, until,
};

/// A node, a correct peer, and a raw peer that will violate the protocol.
pub(crate) struct Scenario {
    pub(crate) node: Node,
    good: Node,
    peer: Peer,
    events: pronto::Events,
    pub(crate) raw: Raw,
}

impl Scenario {
    pub(crate) fn start(transport: &str, name: &str) -> Self {
        Self::start_with(server(1, &address(transport, name)), Limits::default())
    }

    /// Starts this node, and a raw peer with these limits.
    pub(crate) fn start_with(node: pronto::Builder, limits: Limits) -> Self {
        let node = node.start().unwrap();
        let address = node.listening()[0].to_string();
        let (good, peer) = client(2, &address);
        let events = node.events();
        let raw = HalfMade::greet_with(limits, 9, 1, &address).unwrap().finish().unwrap();
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        Self { node, good, peer, events, raw }
    }

    pub(crate) fn assert_works(&mut self) {
        self.raw.assert_works();
    }

    /// Asserts that the node ends the raw peer's session with this fault, and that calls of the good peer succeed before and after.
    pub(crate) fn ends_with(mut self, fault: PeerFault) {
        add(&self.peer);
        self.raw.wait_until_dropped();
        let down = event(&self.events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        let cause = DownCause::Corrupt(FabricError::Peer(fault));
        assert!(
            matches!(down, Event::PeerDown { peer: NodeId(9), cause: found, .. } if found == cause),
            "{down:?}"
        );
        assert_eq!(counter(&self.node, 9, "corrupt_peers"), 1);
        add(&self.peer);
        assert_eq!(counter(&self.node, 2, "links_lost"), 0);
        assert_eq!(counter(&self.good, 1, "links_lost"), 0);
    }
}

/// Returns the header of a message with one byte changed.
fn changed(kind: Kind, at: usize, byte: u8) -> RawHeader {
    let mut bytes = *Header { kind, acks: Acks::default() }.emit().as_array();
    bytes[at] = byte;
    RawHeader::from_array(bytes)
}

/// Shows: protocol.stray-fields, protocol.no-payload, operations.corrupt, operations.corrupt-peers
#[test]
fn unknown_kinds_and_stray_fields() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "kinds");
        scenario.assert_works();
        scenario.raw.send(Class::Control, &changed(Kind::Heartbeat, 4, 200), &[]).unwrap();
        scenario.ends_with(PeerFault::Header(HeaderFault::UnknownKind(200)));

        let mut scenario = Scenario::start(transport, "stray");
        scenario.raw.send(Class::Control, &changed(Kind::Heartbeat, 20, 1), &[]).unwrap();
        scenario.ends_with(PeerFault::Header(HeaderFault::StrayField(7)));

        let mut scenario = Scenario::start(transport, "payload");
        let heartbeat = Header { kind: Kind::Heartbeat, acks: Acks::default() }.emit();
        scenario.raw.send(Class::Control, &heartbeat, &[1]).unwrap();
        scenario.ends_with(PeerFault::Header(HeaderFault::StrayPayload { kind: 7, len: 1 }));
    }
}

/// Shows: operations.forgotten
#[test]
fn a_peer_that_violated_the_protocol_blocks_no_slot() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "thrown")).max_peers(2).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_good, peer) = client(2, &listening);
        let mut raw = Raw::greet(9, &listening);
        raw.send(Class::Control, &changed(Kind::Heartbeat, 4, 200), &[]).unwrap();
        raw.wait_until_dropped();
        let (_next, to_node) = client(3, &listening);
        add(&to_node);
        add(&peer);
    }
}

/// Shows: operations.corrupt
#[test]
fn a_peer_that_violated_the_protocol_may_greet_again() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "greets-again");
        let mut raw = Raw::greet(9, &address);
        raw.send(Class::Control, &changed(Kind::Heartbeat, 4, 200), &[]).unwrap();
        raw.wait_until_dropped();
        Raw::greet_again(9, &address).assert_works();
        assert_eq!(counter(&node, 9, "corrupt_peers"), 1, "{transport}");
    }
}

/// Shows: protocol.type-numbers, protocol.service, messages.unknown-name
#[test]
fn wrong_types_and_malformed_payloads_fail_their_own_call() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "types");
        let mut generation = 0;
        let mut fails =
            |scenario: &mut Scenario, type_id: TypeId, service: u16, payload: &[u8], code: FailureCode| {
                generation += 1;
                let call = CallId { slot: 3, generation };
                let service = ServiceId(service);
                let kind = Kind::Request { call, type_id, service, resent: false, deadline_us: 0 };
                scenario.raw.post(Class::Control, kind, payload).unwrap();
                assert_eq!(scenario.raw.receive(Class::Control).0.kind, Kind::Failure { call, code });
            };
        let (adds, works) = (scenario.raw.number::<Add>(), scenario.raw.number::<Work>());
        fails(&mut scenario, TypeId(4000), 0, &[], FailureCode::NoHandler);
        fails(&mut scenario, adds, 8, &sum_of(&[1]), FailureCode::NoHandler);
        fails(&mut scenario, adds, 0, &[], FailureCode::Malformed);
        fails(&mut scenario, adds, 0, &[0xff; 40], FailureCode::Malformed);
        fails(&mut scenario, adds, 0, &[0xff; 64 << 10], FailureCode::Malformed);
        fails(&mut scenario, works, 0, &[1; 7], FailureCode::Malformed);
        fails(&mut scenario, works, 0, &[1; 9], FailureCode::Malformed);
        // None of these requests may end the session.
        scenario.assert_works();
        add(&scenario.peer);
        assert_eq!(counter(&scenario.node, 9, "corrupt_peers"), 0);
        assert!(!all(&scenario.events).iter().any(|event| matches!(event, Event::PeerDown { .. })));
    }
}

#[test]
fn more_requests_than_granted() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (scenario, release) = start_blocked(transport, "window");
        let mut scenario = scenario;
        let window = scenario.raw.agreement.peer_windows[0].requests;
        for slot in 0..=window {
            // The last requests may find the link already closed.
            let request =
                Kind::Notification { type_id: scenario.raw.number::<Note>(), service: ServiceId(0) };
            if scenario.raw.post(Class::Control, request, &u64::from(slot).to_le_bytes()).is_err() {
                break;
            }
        }
        scenario.ends_with(PeerFault::Overrun);
        drop(release);
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.note", order = ordered)]
struct Note {
    number: u64,
}

/// Starts a node whose handler of notes blocks until the sender is dropped.
fn start_blocked(transport: &str, name: &str) -> (Scenario, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let listen = address(transport, name);
    let node = server(1, &listen)
        .on(move |_, note: Note| {
            let _released = released.lock().unwrap().recv();
            assert!(note.number < 1000);
        })
        .start()
        .unwrap();
    let address = node.listening()[0].to_string();
    let (good, peer) = client(2, &address);
    let events = node.events();
    let raw = Raw::greet(9, &address);
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
    (Scenario { node, good, peer, events, raw }, release)
}

/// Shows: operations.stale
#[test]
fn unsolicited_replies_are_counted() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "unasked");
        for slot in [0, 55, 56, u16::MAX] {
            let call = CallId { slot, generation: 1 };
            scenario.raw.post(Class::Control, Kind::Reply { call }, b"surprise").unwrap();
            scenario.raw.post(Class::Control, Kind::Cancel { call }, &[]).unwrap();
            let failure = Kind::Failure { call, code: FailureCode::HandlerError };
            scenario.raw.post(Class::Control, failure, &[]).unwrap();
        }
        until("the stale replies are counted", || counter(&scenario.node, 9, "stale_replies") == 8);
        scenario.assert_works();
        add(&scenario.peer);
    }
}

/// Shows: operations.corrupt-cause
#[test]
fn acknowledgements_of_unsent_messages_end_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for acks in [Acks { received: 300, returned: 0 }, Acks { received: 0, returned: 9999 }] {
            let mut scenario = Scenario::start(transport, &format!("acks-{}", acks.received));
            let header = Header { kind: Kind::Credit, acks }.emit();
            scenario.raw.send(Class::Control, &header, &[]).unwrap();
            scenario.ends_with(PeerFault::Unasked);
        }
    }
}

/// The fast path for a polled reply skips other checks, but not this one.
#[test]
fn a_reply_that_acknowledges_unsent_messages_ends_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for acks in [Acks { received: 300, returned: 0 }, Acks { received: 1, returned: 9999 }] {
            let mut scenario = Scenario::start(transport, &format!("reply-{}", acks.received));
            let caller = scenario.node.peer(NodeId(9)).unwrap().waiting(WaitPolicy::Spin);
            let called = std::thread::spawn(move || caller.call(&Add { values: vec![1, 2] }));
            let (header, _) = scenario.raw.receive(Class::Control);
            let Kind::Request { call, .. } = header.kind else { panic!("{header:?}") };
            let header = Header { kind: Kind::Reply { call }, acks }.emit();
            scenario.raw.send(Class::Control, &header, &3_u64.to_le_bytes()).unwrap();
            let outcome = called.join().unwrap();
            assert!(matches!(outcome, Err(CallError::PeerDown { .. })), "{transport}: {outcome:?}");
            scenario.ends_with(PeerFault::Unasked);
        }
    }
}

/// Shows: protocol.response-kept
#[test]
fn a_peer_that_never_acknowledges_costs_no_memory() {
    // More than twice the messages that can be in flight.
    const MANY: u32 = 6_000;
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "never");
        let silent = Acks::default();
        let mut dropped = false;
        // Every reply is received and none is acknowledged: the node must not keep them all.
        'calls: for generation in 1..=MANY {
            let request = scenario.raw.request::<Fetch>(0, generation);
            let header = Header { kind: request, acks: silent }.emit();
            if scenario.raw.send(Class::Control, &header, &100_u32.to_le_bytes()).is_err() {
                dropped = true;
                break;
            }
            loop {
                match scenario.raw.poll(Class::Bulk) {
                    Ok(Some((header, _))) if matches!(header.kind, Kind::Reply { .. }) => break,
                    Ok(_) if scenario.raw.poll(Class::Control).is_ok() => {}
                    _ => {
                        dropped = true;
                        break 'calls;
                    }
                }
            }
        }
        assert!(dropped, "{transport}: the node keeps {MANY} replies for a peer that acknowledges none");
        scenario.ends_with(PeerFault::Unacknowledged);
    }
}

/// Shows: protocol.window-update
#[test]
fn grants_beyond_the_announced_window_end_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for wrong in [|most, _| most + 1, |_, first| first - 1] {
            let mut scenario = Scenario::start(transport, "grants");
            // The windows that the raw peer has announced.
            let window = scenario.raw.agreement.windows[0];
            let mut grant = |requests| {
                scenario.raw.post(Class::Control, Kind::WindowUpdate { requests }, &[]).unwrap();
            };
            grant(window.requests);
            grant(wrong(window.grows_to, window.requests));
            scenario.ends_with(PeerFault::Unasked);
        }
    }
}

/// Shows: protocol.window-update
#[test]
fn a_request_for_a_larger_window_is_granted_up_to_the_announced_one() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "asks");
        let window = scenario.raw.agreement.peer_windows[0];
        let mut granted = window.requests;
        while granted < window.grows_to {
            scenario.raw.post(Class::Control, Kind::CreditRequest, &[]).unwrap();
            granted = (granted * 2).min(window.grows_to);
            let (header, _) = scenario.raw.receive(Class::Control);
            assert_eq!(header.kind, Kind::WindowUpdate { requests: granted });
        }
        // Further ones are no fault, and are not granted.
        scenario.raw.post(Class::Control, Kind::CreditRequest, &[]).unwrap();
        scenario.assert_works();
    }
}

#[test]
fn a_reused_slot_and_an_invalid_slot_end_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "twice");
        scenario.assert_works();
        let again = scenario.raw.request::<Add>(0, 1);
        scenario.raw.post(Class::Control, again, &sum_of(&[1, 2])).unwrap();
        scenario.ends_with(PeerFault::Unasked);

        let mut scenario = Scenario::start(transport, "slots");
        let slots = scenario.raw.agreement.windows[0].replies;
        let request = scenario.raw.request::<Add>(slots, 1);
        scenario.raw.post(Class::Control, request, &sum_of(&[1, 2])).unwrap();
        scenario.ends_with(PeerFault::Length { len: slots.into(), max: slots.into() });
    }
}

/// Shows: messages.max-payload
#[test]
fn payloads_of_zero_and_maximum_length() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let mut scenario = Scenario::start(transport, "lengths");
        let most = scenario.raw.agreement.peer_windows[0].max_payload as usize;
        let values = vec![1_u64; (most - 4) / 8];
        let longest = encoded_in(most, &Add { values: values.clone() });
        let request = scenario.raw.request::<Add>(1, 1);
        scenario.raw.post(Class::Control, request, &longest).unwrap();
        let (header, payload) = scenario.raw.receive(Class::Control);
        assert_eq!(header.kind, Kind::Reply { call: CallId { slot: 1, generation: 1 } });
        assert_eq!(payload, (values.len() as u64).to_le_bytes());

        let empty = scenario.raw.request::<Add>(1, 2);
        scenario.raw.post(Class::Control, empty, &[]).unwrap();
        let call = CallId { slot: 1, generation: 2 };
        let failure = Kind::Failure { call, code: FailureCode::Malformed };
        assert_eq!(scenario.raw.receive(Class::Control).0.kind, failure);

        // The raw peer's own provider refuses one byte more than was agreed.
        let request = scenario.raw.request::<Add>(1, 3);
        assert!(scenario.raw.post(Class::Control, request, &vec![0; most + 1]).is_err());
        scenario.assert_works();
    }
}

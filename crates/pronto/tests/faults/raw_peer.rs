//! A peer that greets well and then breaks the rules: it is thrown out for a reason, and nobody else notices.

use pronto::{CallError, Class, DownCause, Event, Message, Node, NodeId, Peer, ServiceId, WaitPolicy};
use pronto_core::fabric::{FabricError, PeerFault};
use pronto_wire::{Acks, CallId, FailureCode, Header, HeaderFault, Kind, RawHeader, TypeId};

use crate::raw::{Raw, encoded_in, sum_of};
use crate::rig::{
    Add, Fetch, SOON, TRANSPORTS, Work, add, address, all, beside_others, client, counter, event, server,
    started, until,
};

/// A node, a peer that behaves, and one that will not.
struct Story {
    node: Node,
    good: Node,
    peer: Peer,
    events: pronto::Events,
    raw: Raw,
}

impl Story {
    fn begins(transport: &str, name: &str) -> Self {
        let (node, address) = started(1, transport, name);
        let (good, peer) = client(2, &address);
        let events = node.events();
        let raw = Raw::greets(9, &address);
        event(&events, SOON, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        Self { node, good, peer, events, raw }
    }

    fn proves_itself(&mut self) {
        self.raw.proves_itself();
    }

    /// The node throws the raw peer out for this, and the good one is answered before and after.
    fn ends_with(mut self, fault: PeerFault) {
        add(&self.peer);
        self.raw.is_thrown_out();
        let down = event(&self.events, SOON, |event| matches!(event, Event::PeerDown { .. }));
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

/// The header of a message, one byte of it changed.
fn changed(kind: Kind, place: usize, byte: u8) -> RawHeader {
    let mut bytes = *Header { kind, acks: Acks::default() }.emit().as_array();
    bytes[place] = byte;
    RawHeader::from_array(bytes)
}

#[test]
fn unknown_kinds_and_stray_fields() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "kinds");
        story.proves_itself();
        story.raw.send(Class::Control, &changed(Kind::Heartbeat, 4, 200), &[]).unwrap();
        story.ends_with(PeerFault::Header(HeaderFault::UnknownKind(200)));

        let mut story = Story::begins(transport, "stray");
        story.raw.send(Class::Control, &changed(Kind::Heartbeat, 20, 1), &[]).unwrap();
        story.ends_with(PeerFault::Header(HeaderFault::StrayField(7)));

        let mut story = Story::begins(transport, "payload");
        let heartbeat = Header { kind: Kind::Heartbeat, acks: Acks::default() }.emit();
        story.raw.send(Class::Control, &heartbeat, &[1]).unwrap();
        story.ends_with(PeerFault::Header(HeaderFault::StrayPayload { kind: 7, len: 1 }));
    }
}

#[test]
fn who_was_thrown_out_keeps_nobody_out() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "thrown")).max_peers(2).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_good, peer) = client(2, &listening);
        let mut raw = Raw::greets(9, &listening);
        raw.send(Class::Control, &changed(Kind::Heartbeat, 4, 200), &[]).unwrap();
        raw.is_thrown_out();
        let (_next, to_node) = client(3, &listening);
        add(&to_node);
        add(&peer);
    }
}

#[test]
fn wrong_types_and_malformed_payloads_fail_their_own_call() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "types");
        let mut generation = 0;
        let mut fails =
            |story: &mut Story, type_id: TypeId, service: u16, payload: &[u8], code: FailureCode| {
                generation += 1;
                let call = CallId { slot: 3, generation };
                let service = ServiceId(service);
                let kind = Kind::Request { call, type_id, service, resent: false, deadline_us: 0 };
                story.raw.say(Class::Control, kind, payload).unwrap();
                assert_eq!(story.raw.hear(Class::Control).0.kind, Kind::Failure { call, code });
            };
        let (adds, works) = (story.raw.number::<Add>(), story.raw.number::<Work>());
        fails(&mut story, TypeId(4000), 0, &[], FailureCode::NoHandler);
        fails(&mut story, adds, 8, &sum_of(&[1]), FailureCode::NoHandler);
        fails(&mut story, adds, 0, &[], FailureCode::Malformed);
        fails(&mut story, adds, 0, &[0xff; 40], FailureCode::Malformed);
        fails(&mut story, adds, 0, &[0xff; 64 << 10], FailureCode::Malformed);
        fails(&mut story, works, 0, &[1; 7], FailureCode::Malformed);
        fails(&mut story, works, 0, &[1; 9], FailureCode::Malformed);
        // None of that was a reason to part.
        story.proves_itself();
        add(&story.peer);
        assert_eq!(counter(&story.node, 9, "corrupt_peers"), 0);
        assert!(!all(&story.events).iter().any(|event| matches!(event, Event::PeerDown { .. })));
    }
}

#[test]
fn more_requests_than_granted() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (story, release) = held_up(transport, "window");
        let mut story = story;
        let window = story.raw.agreement.peer_windows[0].requests;
        for slot in 0..=window {
            // The last ones may find the door closed already.
            let request = Kind::Notification { type_id: story.raw.number::<Note>(), service: ServiceId(0) };
            if story.raw.say(Class::Control, request, &u64::from(slot).to_le_bytes()).is_err() {
                break;
            }
        }
        story.ends_with(PeerFault::Overrun);
        drop(release);
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.note", order = ordered)]
struct Note {
    number: u64,
}

/// A node whose handler of notes does not come back until the sender is dropped.
fn held_up(transport: &str, name: &str) -> (Story, std::sync::mpsc::Sender<()>) {
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
    let raw = Raw::greets(9, &address);
    event(&events, SOON, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
    (Story { node, good, peer, events, raw }, release)
}

#[test]
fn replies_that_nobody_asked_for() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "unasked");
        for slot in [0, 55, 56, u16::MAX] {
            let call = CallId { slot, generation: 1 };
            story.raw.say(Class::Control, Kind::Reply { call }, b"surprise").unwrap();
            story.raw.say(Class::Control, Kind::Cancel { call }, &[]).unwrap();
            let failure = Kind::Failure { call, code: FailureCode::HandlerError };
            story.raw.say(Class::Control, failure, &[]).unwrap();
        }
        until("they are counted", || counter(&story.node, 9, "stale_replies") == 8);
        story.proves_itself();
        add(&story.peer);
    }
}

#[test]
fn acknowledgements_of_what_was_never_sent() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        for acks in [Acks { received: 300, returned: 0 }, Acks { received: 0, returned: 9999 }] {
            let mut story = Story::begins(transport, &format!("acks-{}", acks.received));
            let header = Header { kind: Kind::Credit, acks }.emit();
            story.raw.send(Class::Control, &header, &[]).unwrap();
            story.ends_with(PeerFault::Unasked);
        }
    }
}

/// A reply that a caller looks for is taken in past what other messages need, but not past this.
#[test]
fn a_reply_that_acknowledges_what_was_never_sent() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        for acks in [Acks { received: 300, returned: 0 }, Acks { received: 1, returned: 9999 }] {
            let mut story = Story::begins(transport, &format!("reply-{}", acks.received));
            let caller = story.node.peer(NodeId(9)).unwrap().waiting(WaitPolicy::Spin);
            let called = std::thread::spawn(move || caller.call(&Add { values: vec![1, 2] }));
            let (header, _) = story.raw.hear(Class::Control);
            let Kind::Request { call, .. } = header.kind else { panic!("{header:?}") };
            let header = Header { kind: Kind::Reply { call }, acks }.emit();
            story.raw.send(Class::Control, &header, &3_u64.to_le_bytes()).unwrap();
            let outcome = called.join().unwrap();
            assert!(matches!(outcome, Err(CallError::PeerDown { .. })), "{transport}: {outcome:?}");
            story.ends_with(PeerFault::Unasked);
        }
    }
}

#[test]
fn a_peer_that_never_acknowledges_costs_no_memory() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "never");
        let silent = Acks::default();
        let mut thrown_out = false;
        // Every reply is taken, none is ever acknowledged: the node must not keep them all.
        'calls: for generation in 1..=2000_u32 {
            let request = story.raw.request::<Fetch>(0, generation);
            let header = Header { kind: request, acks: silent }.emit();
            if story.raw.send(Class::Control, &header, &100_u32.to_le_bytes()).is_err() {
                thrown_out = true;
                break;
            }
            loop {
                match story.raw.look(Class::Bulk) {
                    Ok(Some((header, _))) if matches!(header.kind, Kind::Reply { .. }) => break,
                    Ok(_) if story.raw.look(Class::Control).is_ok() => {}
                    _ => {
                        thrown_out = true;
                        break 'calls;
                    }
                }
            }
        }
        assert!(thrown_out, "{transport}: 2000 replies are kept for a peer that acknowledges none");
        story.ends_with(PeerFault::Unacknowledged);
    }
}

#[test]
fn a_slot_used_twice_and_slots_that_are_none() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "twice");
        story.proves_itself();
        let again = story.raw.request::<Add>(0, 1);
        story.raw.say(Class::Control, again, &sum_of(&[1, 2])).unwrap();
        story.ends_with(PeerFault::Unasked);

        let mut story = Story::begins(transport, "slots");
        let slots = story.raw.agreement.windows[0].replies;
        let request = story.raw.request::<Add>(slots, 1);
        story.raw.say(Class::Control, request, &sum_of(&[1, 2])).unwrap();
        story.ends_with(PeerFault::Length { len: slots.into(), max: slots.into() });
    }
}

#[test]
fn payloads_of_zero_and_of_the_greatest_length() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let mut story = Story::begins(transport, "lengths");
        let most = story.raw.agreement.peer_windows[0].max_payload as usize;
        let values = vec![1_u64; (most - 4) / 8];
        let longest = encoded_in(most, &Add { values: values.clone() });
        let request = story.raw.request::<Add>(1, 1);
        story.raw.say(Class::Control, request, &longest).unwrap();
        let (header, payload) = story.raw.hear(Class::Control);
        assert_eq!(header.kind, Kind::Reply { call: CallId { slot: 1, generation: 1 } });
        assert_eq!(payload, (values.len() as u64).to_le_bytes());

        let empty = story.raw.request::<Add>(1, 2);
        story.raw.say(Class::Control, empty, &[]).unwrap();
        let call = CallId { slot: 1, generation: 2 };
        let failure = Kind::Failure { call, code: FailureCode::Malformed };
        assert_eq!(story.raw.hear(Class::Control).0.kind, failure);

        // One byte more does not leave the raw peer: its own provider keeps to what was agreed.
        let request = story.raw.request::<Add>(1, 3);
        assert!(story.raw.say(Class::Control, request, &vec![0; most + 1]).is_err());
        story.proves_itself();
    }
}

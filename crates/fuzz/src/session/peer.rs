//! The peer: its ends of the connections, the frames that it has sent and received, and the steps of a correct peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pronto_core::fabric::{
    DoorbellEvent, Gather, Operation, QueuePair as _, SendWork, Signal, poll_by_value,
};
use pronto_sim::SimQueuePair;
use pronto_wire::{
    Acks, CallId, Class, FailureCode, FirstWords, Header, Kind, Pressure, RawHeader, ServiceId, TypeId,
};

use super::side::{REQUESTS, SLOTS};

/// Differences of generations from which on a comparison of generations no longer tells which is later.
const FAR: u32 = 1 << 20;

/// Pressure in the headers of a correct peer, on links that carry it.
pub(super) const OF_PEER: Pressure = Pressure::of(3);
/// Pressure of this side, on links that carry it.
pub(super) const OF_SIDE: Pressure = Pressure::MOST;

/// A request of this side, as the peer received it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) call: CallId,
    pub(super) class: Class,
}

/// The counts of one connection of the present link.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Frames received by the peer, and requests and notifications that it has finished.
    received: u16,
    finished: u16,
    /// Requests and notifications that the peer has sent, and those whose credits it got back.
    asked: u16,
    returned: u16,
}

/// The peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pairs: Option<[SimQueuePair; 2]>,
    /// Whether headers carry the pressure of their sender.
    pub(super) carries_pressure: bool,
    counts: [Counts; 2],
    /// Number of the link, and of the session.
    pub(super) link: u32,
    pub(super) session: u32,
    /// Payloads of requests that were sent in this session, by call.
    pub(super) requests: BTreeMap<CallId, Vec<Vec<u8>>>,
    /// Number of notifications that were sent.
    pub(super) notifications: u64,
    /// Payloads of responses that were sent, by call.
    pub(super) responses: BTreeMap<CallId, Vec<Vec<u8>>>,
    /// Requests of this side that wait for the response of a correct peer.
    pub(super) asked: VecDeque<Asked>,
    asked_on_link: BTreeSet<CallId>,
    /// Responses received on the present link, and in the session.
    pub(super) answered: BTreeSet<CallId>,
    settled: BTreeSet<CallId>,
    /// The latest generation of each slot, and slots whose generations have jumped far.
    generations: BTreeMap<u16, u32>,
    pub(super) wild: BTreeSet<u16>,
    /// Whether the peer has announced its end on this link.
    pub(super) said_goodbye: bool,
    /// Whether this side waits for the answer to its question for a pause, and whether it has accepted that of the peer.
    pub(super) asks_for_pause: bool,
    pub(super) was_asked_for_pause: bool,
    accepts_pause: bool,
}

impl Peer {
    pub(super) fn new(carries_pressure: bool) -> Self {
        Self { carries_pressure, ..Self::default() }
    }

    /// Takes its ends of a new link.
    pub(super) fn link(&mut self, pairs: [SimQueuePair; 2]) {
        self.pairs = Some(pairs);
        self.counts = <[Counts; 2]>::default();
        self.link += 1;
        self.asked.clear();
        self.asked_on_link.clear();
        self.answered.clear();
        self.said_goodbye = false;
        (self.asks_for_pause, self.accepts_pause) = (false, false);
    }

    /// Begins another session, in which no earlier call is known.
    pub(super) fn begin_session(&mut self) {
        self.session += 1;
        self.requests.clear();
        self.settled.clear();
        self.generations.clear();
        self.wild.clear();
    }

    /// Closes its ends of the link.
    pub(super) fn close(&mut self) {
        self.pairs = None;
    }

    /// Returns the acknowledgements of a correct peer.
    pub(super) fn acks(&self, class: Class) -> Acks {
        let Counts { received, finished, .. } = self.counts[class.index()];
        Acks { received, returned: finished }
    }

    /// Sends a frame, whatever it contains.
    pub(super) fn send(&mut self, class: Class, header: &RawHeader, payload: &[u8]) {
        let Some(pairs) = &mut self.pairs else { return };
        let operation = Operation::Send { header, payload: Gather::Short(payload) };
        let pair = &mut pairs[class.index()];
        let posted = pair.post(SendWork { signal: Signal::Unsignalled, operation });
        if posted.is_err() || pair.ring_doorbell(DoorbellEvent::Solicited).is_err() {
            return;
        }
        let plain = header.split_pressure().filter(|_| self.carries_pressure);
        let plain = plain.map_or(*header, |(_, plain)| plain);
        match Header::check(&plain, payload.len()).map(|header| header.kind) {
            Ok(Kind::Request { call, .. }) => {
                let last = self.generations.get(&call.slot).copied();
                let ahead = last.map_or(0, |last| call.generation.wrapping_sub(last));
                if last.is_none() || ahead <= FAR {
                    self.generations.insert(call.slot, call.generation);
                } else if ahead < FAR.wrapping_neg() {
                    self.wild.insert(call.slot);
                }
                self.requests.entry(call).or_default().push(payload.to_vec());
                self.counts[class.index()].asked = self.counts[class.index()].asked.wrapping_add(1);
            }
            Ok(Kind::Notification { .. }) => {
                self.notifications += 1;
                self.counts[class.index()].asked = self.counts[class.index()].asked.wrapping_add(1);
            }
            Ok(Kind::Reply { call } | Kind::Failure { call, .. }) => {
                self.responses.entry(call).or_default().push(payload.to_vec());
            }
            Ok(Kind::Goodbye) => self.said_goodbye = true,
            Ok(_) | Err(_) => {}
        }
    }

    /// Sends a frame with the acknowledgements of a correct peer.
    pub(super) fn send_kind(&mut self, class: Class, kind: Kind, payload: &[u8]) {
        let pressure = if self.carries_pressure { OF_PEER } else { Pressure::NONE };
        let header = Header { kind, acks: self.acks(class) }.emit_with(&FirstWords::with(pressure));
        self.send(class, &header, payload);
    }

    /// Sends a request as a correct peer does: in a free slot, with the next generation, if it has a credit. Returns the call.
    pub(super) fn ask(
        &mut self,
        class: Class,
        type_id: u16,
        deadline_us: u32,
        payload: &[u8],
    ) -> Option<CallId> {
        let Counts { asked, returned, .. } = self.counts[class.index()];
        if asked.wrapping_sub(returned) >= REQUESTS {
            return None;
        }
        let slot = (0..SLOTS).find(|slot| self.is_free(*slot))?;
        let generation = self.generations.get(&slot).map_or(0, |last| last.wrapping_add(1));
        let call = CallId { slot, generation };
        let (type_id, service) = (TypeId(type_id), ServiceId(0));
        self.send_kind(class, Kind::Request { call, type_id, service, resent: false, deadline_us }, payload);
        Some(call)
    }

    /// Returns whether the last call in a slot of the peer has its response.
    fn is_free(&self, slot: u16) -> bool {
        let last = self.generations.get(&slot).map(|generation| CallId { slot, generation: *generation });
        !self.wild.contains(&slot) && last.is_none_or(|last| self.settled.contains(&last))
    }

    /// Sends requests without a response again, as a correct peer does on a link that resumes a session.
    pub(super) fn ask_again(&mut self) {
        let last =
            self.generations.iter().map(|(slot, generation)| CallId { slot: *slot, generation: *generation });
        let open: Vec<CallId> =
            last.filter(|call| !self.settled.contains(call) && call.slot < SLOTS).collect();
        for call in open {
            let payload = self.requests[&call][0].clone();
            let (type_id, service) = (TypeId(0), ServiceId(0));
            let kind = Kind::Request { call, type_id, service, resent: true, deadline_us: 0 };
            self.send_kind(Class::Control, kind, &payload);
        }
    }

    /// Responds to the oldest request of this side, as a correct peer does.
    pub(super) fn respond(&mut self, code: Option<FailureCode>, payload: &[u8]) {
        let Some(Asked { call, class }) = self.asked.pop_front() else { return };
        let counts = &mut self.counts[class.index()];
        counts.finished = counts.finished.wrapping_add(1);
        let kind = code.map_or(Kind::Reply { call }, |code| Kind::Failure { call, code });
        self.send_kind(class, kind, payload);
    }

    /// Answers the question of this side for a pause, and ends the link if this side has accepted one, as a correct peer does.
    pub(super) fn answer_pause(&mut self) {
        let asks = core::mem::take(&mut self.asks_for_pause);
        if self.accepts_pause {
            self.close();
        } else if asks {
            self.send_kind(Class::Control, Kind::PauseDeclined, &[]);
        }
    }

    /// Receives all frames that have arrived, and checks them. `open` are the calls of this side that may be on their way.
    pub(super) fn receive(&mut self, open: &BTreeSet<CallId>) -> usize {
        let mut frames = 0;
        for class in Class::ALL {
            while let Some(Ok(Some(frame))) =
                self.pairs.as_mut().map(|pairs| poll_by_value(&mut pairs[class.index()]))
            {
                frames += 1;
                let (pressure, plain) =
                    frame.header.split_pressure().unwrap_or((Pressure::NONE, frame.header));
                let header = Header::check(&plain, frame.payload.len());
                let header = header.unwrap_or_else(|fault| panic!("this side sent a bad frame: {fault}"));
                let may_have_one = matches!(
                    header.kind,
                    Kind::Request { .. }
                        | Kind::Notification { .. }
                        | Kind::Reply { .. }
                        | Kind::Failure { .. }
                );
                let expected = if self.carries_pressure && may_have_one { OF_SIDE } else { Pressure::NONE };
                assert_eq!(pressure, expected, "{header:?}");
                let counts = &mut self.counts[class.index()];
                counts.received = counts.received.wrapping_add(1);
                counts.returned = header.acks.returned;
                self.take(class, header.kind, open);
            }
        }
        frames
    }

    fn take(&mut self, class: Class, kind: Kind, open: &BTreeSet<CallId>) {
        match kind {
            Kind::Request { call, .. } => {
                assert!(open.contains(&call), "{call:?} was requested, but this side has not made that call");
                assert!(self.asked_on_link.insert(call), "{call:?} was requested twice on a link");
                self.asked.push_back(Asked { call, class });
            }
            Kind::Notification { .. } => {
                let counts = &mut self.counts[class.index()];
                counts.finished = counts.finished.wrapping_add(1);
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                assert!(self.requests.contains_key(&call), "a response to {call:?}, which was not requested");
                self.settled.insert(call);
                let once = self.answered.insert(call);
                assert!(once || self.wild.contains(&call.slot), "two responses to {call:?} on a link");
            }
            Kind::Cancel { .. }
            | Kind::Credit
            | Kind::Heartbeat
            | Kind::Goodbye
            | Kind::CreditRequest
            | Kind::WindowUpdate { .. }
            | Kind::PauseDeclined => {}
            Kind::Pause => (self.asks_for_pause, self.was_asked_for_pause) = (true, true),
            Kind::PauseAccepted => self.accepts_pause = true,
        }
    }
}

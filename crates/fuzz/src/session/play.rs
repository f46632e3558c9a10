//! Plays an input: the steps of both sides in turn, and at the end those of two correct sides.

use core::fmt;

use pronto_core::session::{DownCause, Links, introduce};
use pronto_core::{Clock as _, Nanos};
use pronto_sim::{SimExecutor, SimNode, SimOptions, SimWorld};
use pronto_wire::{
    Acks, CallId, Class, FailureCode, FirstWords, HEADER_LEN, Header, Kind, Pressure, RawHeader, ServiceId,
    SessionId, TypeId,
};

use super::peer::{OF_SIDE, Peer};
use super::side::{HELD, PROMPT, SLOTS, Side, TYPES, identity, limits};
use crate::bytes::Bytes;

/// Most steps of an input: enough to fill every window several times.
const STEPS: usize = 400;
/// Most links of an input. Each has memory of its own.
const LINKS: u32 = 8;
/// Turns in which this side receives all frames of a round: a window of each class.
const TURNS: usize = 32;
/// Rounds in which two correct sides must come to rest. Each takes a frame and its acknowledgement.
const ROUNDS: usize = 200;
/// Time of a round, longer than the flight of a frame.
const ROUND: Nanos = Nanos::from_micros(50);
/// Longest payload that the simulated network copies.
const LONGEST: usize = 232;
/// Spans by which a step advances the time: within a flight, a time limit of a call, a heartbeat, beyond the liveness limit.
const SPANS: [Nanos; 4] =
    [Nanos(300), Nanos::from_millis(6), Nanos::from_millis(1_900), Nanos::from_millis(3_100)];

/// Summary of an input that was played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Played {
    /// Requests of the peer that were delivered in the last session.
    pub(super) delivered: usize,
    /// Calls of this side that ended with a reply.
    pub(super) replies: u32,
    /// Links that were installed.
    pub(super) links: u32,
    /// Whether a link existed at the end, so that two correct sides could use it.
    pub(super) linked: bool,
    /// Whether this side has asked for a pause, and the number of links that ended in one.
    pub(super) asks_for_pause: bool,
    pub(super) pauses: u64,
    /// The largest pressure in headers of the peer.
    pub(super) pressure: Pressure,
}

/// Plays an input.
///
/// # Panics
/// If an invariant does not hold.
pub(super) fn play(input: &[u8]) -> Played {
    let mut bytes = Bytes::new(input);
    let mut play = Play::new(bytes.byte());
    play.install(false);
    for _ in 0..STEPS {
        if bytes.is_empty() {
            break;
        }
        play.step(&mut bytes);
    }
    play.finish()
}

struct Play {
    world: SimWorld,
    nodes: [SimNode; 2],
    side: Side,
    peer: Peer,
    resumable: bool,
    sessions: u64,
    /// Holds of doorbells that have not ended.
    holds: u32,
}

impl Play {
    fn new(options: u8) -> Self {
        let network = match options / 2 % 3 {
            0 => SimOptions::like_shm(),
            1 => SimOptions { copies: 232, ..SimOptions::like_tcp() },
            _ => SimOptions::like_verbs(),
        };
        // Frames arrive in the round in which they are sent.
        let network = SimOptions { delay: SimOptions::like_shm().delay, spike_one_in: 0, ..network };
        let world = SimWorld::new(u64::from(options), network);
        let nodes = [world.add_node(), world.add_node()];
        let side = Side::new(SimExecutor::new(&world));
        if options / 6 % 2 == 1 {
            side.session.set_on_demand();
        }
        let carries_pressure = options / 12 % 2 == 1;
        if carries_pressure {
            side.session.set_pressure(OF_SIDE, &side.executor);
        }
        Self {
            world,
            nodes,
            side,
            peer: Peer::new(carries_pressure),
            resumable: options.is_multiple_of(2),
            sessions: 0,
            holds: 0,
        }
    }

    /// Installs a link, which resumes the session if it can.
    fn install(&mut self, resumes: bool) {
        let agreements = introduce(&identity(1), &identity(2), &limits());
        let [mut agreement, _] = agreements.expect("the two identities agree");
        let held = self.side.session.info(&self.side.executor).map(|info| info.session);
        let resumed = held.filter(|_| resumes);
        if resumed.is_none() {
            self.sessions += 1;
            self.peer.begin_session();
        }
        agreement.session = resumed.unwrap_or(SessionId(self.sessions));
        agreement.resumed = resumed.is_some();
        (agreement.resumable, agreement.local) = (self.resumable, !self.resumable);
        agreement.carries_pressure = self.peer.carries_pressure;
        let [a, b] = self.nodes;
        let connect = |class| self.world.connect(a, b, agreement.connection(class));
        let [(control, their_control), (bulk, their_bulk)] = Class::ALL.map(connect);
        self.peer.link([their_control, their_bulk]);
        let links = Links { pairs: [control, bulk], agreement };
        self.side.with(&self.peer, |session, sink, executor| session.install(links, sink, executor));
        if resumed.is_some() {
            self.peer.ask_again();
        }
    }

    fn now(&self) -> Nanos {
        self.side.executor.now()
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(20) {
            0 => {
                let (class, header) = (class(bytes), bytes.array::<HEADER_LEN>());
                let len = bytes.below(LONGEST + 1);
                self.peer.send(class, &RawHeader::from_array(header), bytes.up_to(len));
            }
            1..=3 => self.frame(bytes),
            4 => self.peer.respond(None, bytes.array::<12>().as_slice()),
            5 => self.peer.respond(Some(FailureCode::HandlerError), &[]),
            6 | 7 => {
                let (class, number) = (class(bytes), bytes.byte());
                let _ = self.peer.ask(
                    class,
                    u16::from(number) % TYPES,
                    u32::from(number / 32) * 1_000,
                    &[number],
                );
            }
            8 => {
                let kind = Kind::Notification {
                    type_id: TypeId(u16::from(bytes.byte()) % 4),
                    service: ServiceId(0),
                };
                self.peer.send_kind(class(bytes), kind, b"notice");
            }
            9 | 10 => {
                self.run(ROUND);
                let _ = self.peer.receive(&self.side.made);
            }
            11 => {
                let (class, how, now) = (class(bytes), bytes.byte(), self.now());
                let _ = self.side.call(class, u16::from(how) % TYPES, now, how >= 128);
            }
            12 | 13 => drop(self.turn()),
            14 => self.side.answer(bytes.byte().into(), bytes.byte()),
            15 => {
                let span = SPANS[bytes.below(SPANS.len())];
                self.run(span);
                let now = self.now();
                let ticked = self
                    .side
                    .with(&self.peer, |session, sink, executor| session.tick(now, span, sink, executor));
                assert!(ticked.is_some(), "no other thread holds the engine");
                self.side.take_ends(&self.peer, now);
            }
            16 => self.side.abandon(bytes.byte().into()),
            17 => self.side.notify(class(bytes)),
            18 if self.peer.link < LINKS => self.relink(bytes.byte()),
            _ => self.rare(bytes.byte()),
        }
    }

    /// The peer sends a valid header with any fields, most of them near the values that a correct peer would use.
    fn frame(&mut self, bytes: &mut Bytes<'_>) {
        let class = class(bytes);
        let (slot, generation) = (u16::from(bytes.byte()) % (SLOTS + 2), u32::from(bytes.byte()));
        let call = CallId { slot, generation: generation % 16 };
        let type_id = TypeId(u16::from(bytes.byte()) % (TYPES + 1));
        let number = bytes.byte();
        let service = ServiceId(u16::from(number.is_multiple_of(16)));
        let pressure =
            if self.peer.carries_pressure { Pressure::from_bits(number / 32) } else { Pressure::NONE };
        let kind = match bytes.byte() % 10 {
            0 | 1 => Kind::Request { call, type_id, service, resent: false, deadline_us: 0 },
            2 => Kind::Request { call, type_id, service, resent: true, deadline_us: 1 },
            3 => Kind::Notification { type_id, service },
            4 | 5 => Kind::Reply { call },
            6 => Kind::Failure { call, code: FailureCode::NoHandler },
            7 => Kind::Cancel { call },
            8 => Kind::Credit,
            _ => match generation / 32 {
                0 => Kind::Heartbeat,
                1 => Kind::Pause,
                2 => Kind::Goodbye,
                3 => Kind::PauseAccepted,
                4 => Kind::CreditRequest,
                5 => Kind::PauseDeclined,
                _ => Kind::WindowUpdate { requests: slot },
            },
        };
        let Acks { received, returned } = self.peer.acks(class);
        // One frame in four acknowledges or returns another number than a correct peer.
        let delta = |byte: u8| if byte < 192 { 0 } else { u16::from(byte).wrapping_sub(224) };
        let acks = Acks {
            received: received.wrapping_add(delta(bytes.byte())),
            returned: returned.wrapping_add(delta(bytes.byte())),
        };
        let has_payload = matches!(
            kind,
            Kind::Request { .. } | Kind::Notification { .. } | Kind::Reply { .. } | Kind::Failure { .. }
        );
        let len = if has_payload { bytes.below(LONGEST + 1) } else { 0 };
        let header = Header { kind, acks }.emit_with(&FirstWords::with(pressure));
        self.peer.send(class, &header, bytes.up_to(len));
    }

    /// Lets the network run.
    fn run(&mut self, span: Nanos) {
        let now = self.world.now();
        self.world.run_until(now + span);
    }

    /// This side makes a turn, and takes the ends of its calls. Returns whether anything moved.
    fn turn(&mut self) -> bool {
        let turned =
            self.side.with(&self.peer, |session, sink, executor| session.turn(1, || false, sink, executor));
        let turned = turned.expect("no other thread holds the engine");
        let now = self.now();
        self.side.take_ends(&self.peer, now);
        turned.moved != 0
    }

    /// The peer closes the link and makes another, or makes another in place of a link that still exists.
    fn relink(&mut self, how: u8) {
        if how.is_multiple_of(2) {
            self.peer.close();
            self.run(Nanos::from_millis(6));
            self.turn();
        }
        self.install(how % 4 < 3);
        let now = self.now();
        self.side.take_ends(&self.peer, now);
    }

    fn rare(&mut self, which: u8) {
        match which % 8 {
            0 => {
                let causes = [DownCause::Died, DownCause::Local, DownCause::Silent];
                let cause = causes[usize::from(which / 8) % causes.len()];
                self.side
                    .with(&self.peer, |session, sink, executor| session.take_down(cause, sink, executor));
                let now = self.now();
                self.side.take_ends(&self.peer, now);
            }
            1..=3 => {
                self.side.session.hold_doorbells();
                self.holds += 1;
            }
            4 => self.release(),
            5 => self.side.session.arm(),
            6 => self.peer.close(),
            _ => {
                let _ = self.side.session.goodbye(&self.side.executor);
            }
        }
    }

    fn release(&mut self) {
        if self.holds != 0 {
            self.holds -= 1;
            self.side.session.release_doorbells(&self.side.executor);
        }
    }

    /// Both sides act correctly until neither has anything to do.
    fn come_to_rest(&mut self) {
        self.side.answer_all();
        for round in 0..ROUNDS {
            self.run(ROUND);
            let frames = self.peer.receive(&self.side.made);
            let responds = !self.peer.asked.is_empty() || self.peer.asks_for_pause;
            self.peer.answer_pause();
            while !self.peer.asked.is_empty() {
                self.peer.respond(None, b"reply");
            }
            if round == 0 || frames != 0 {
                Class::ALL.into_iter().for_each(|class| self.peer.send_kind(class, Kind::Credit, &[]));
            }
            self.run(ROUND);
            let _still = (0..TURNS).any(|_| !self.turn());
            self.side.answer_all();
            if round != 0 && frames == 0 && !responds {
                return;
            }
        }
        panic!("two correct sides do not come to rest: {self:?}");
    }

    fn is_linked(&self) -> bool {
        self.side.is_up && self.side.session.is_linked(&self.side.executor)
    }

    fn finish(mut self) -> Played {
        while self.holds != 0 {
            self.release();
        }
        self.come_to_rest();
        let linked = self.is_linked() && !self.peer.said_goodbye;
        if linked {
            self.check_responses();
            self.use_link();
        }
        let delivered = self.side.delivered.len();
        self.side.with(&self.peer, |session, sink, executor| {
            assert!(session.take_down(DownCause::Local, sink, executor), "no inline handler runs");
        });
        self.side.answer_all();
        let now = self.now();
        self.side.take_ends(&self.peer, now);
        assert!(!self.side.is_up && self.side.is_clear(), "something has outlived the session");
        assert_eq!(self.side.session.open_calls(), 0, "calls have outlived the session");
        assert_eq!(self.world.leases(), 0, "payloads have outlived the session");
        Played {
            pressure: self.side.session.take_pressure(),
            delivered,
            replies: self.side.replies,
            links: self.peer.link,
            linked,
            asks_for_pause: self.peer.was_asked_for_pause,
            pauses: self.side.session.stats().links_paused.count(),
        }
    }

    /// Every request that was delivered on this link has its response. A peer that has used the slot of a call again has given the
    /// call up.
    fn check_responses(&self) {
        for (call, link) in &self.side.delivered {
            let is_last = |other: &CallId| other.slot != call.slot || other.generation <= call.generation;
            let is_due = *link == self.peer.link
                && !self.peer.wild.contains(&call.slot)
                && self.side.delivered.keys().all(is_last);
            assert!(!is_due || self.peer.answered.contains(call), "{call:?} has no response: {self:?}");
        }
    }

    /// A correct peer calls and is called, whatever happened before on this link.
    fn use_link(&mut self) {
        if self.peer.wild.is_empty() {
            let call = self.peer.ask(Class::Control, PROMPT, 0, b"last");
            let call = call.unwrap_or_else(|| panic!("the peer cannot call: {self:?}"));
            self.come_to_rest();
            assert!(self.peer.answered.contains(&call), "the last request has no response: {self:?}");
        }
        let (now, replies) = (self.now(), self.side.replies);
        let call = self.side.call(Class::Bulk, HELD, now, false);
        assert!(call.is_some(), "this side cannot call: {self:?}");
        self.come_to_rest();
        assert_eq!(self.side.replies, replies + 1, "the last call has no reply: {self:?}");
    }
}

impl fmt::Debug for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Play")
            .field("peer", &self.peer)
            .field("made", &self.side.made)
            .finish_non_exhaustive()
    }
}

fn class(bytes: &mut Bytes<'_>) -> Class {
    Class::ALL[bytes.below(2)]
}

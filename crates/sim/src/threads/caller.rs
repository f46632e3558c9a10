//! A calling thread of a node: it calls, waits, sends and pauses at random, and records every message and its end.

use core::task::Waker;
use std::sync::Arc;
use std::task::Wake;

use pronto_core::executor::{Executor as _, WaitPolicy, WaitRequest, expecting};
use pronto_core::fabric::{Arrived, Gather, InlineMessage};
use pronto_core::session::{
    AfterRefusal, CallSpec, End, Executed, FastOutcome, OutgoingPayload, ReplySlots, SendError, WaitOutcome,
    WhenDown,
};
use pronto_core::session::{RoomFor, RoomRequest, RoomState, RoomTicket};
use pronto_core::{Clock as _, Nanos};
use pronto_sync::WakeWord;
use pronto_wire::{CallId, Class, INLINE_PAYLOAD, InlinePayload, NodeId};

use super::executor::{ThreadExecutor, holding_engine};
use super::idle::{Awaited, Waits};
use super::mix::Mix;
use super::node::{Node, Thread};
use super::panics::survived;
use super::scheduler;
use crate::random::{Random, Span};
use crate::scenario::{Kind, Lease, Name, STAMP, SimSession, Stamp};

/// Pause of a sender for which no message can make room, as in a real node.
const NO_ROOM: Nanos = Nanos::from_micros(50);
/// Longest sleep of a future, which is woken before.
const FUTURE: Nanos = Nanos::from_secs(2);

/// A calling thread.
pub(super) struct Caller {
    pub(super) node: Arc<Node>,
    /// Unique number of the thread in its world: the sender of its messages.
    pub(super) thread: u16,
    pub(super) random: Random,
    pub(super) mix: Mix,
    pub(super) numbers: u64,
    /// True while the thread has open calls, so that it must not wait for others without a limit.
    pub(super) holds_calls: bool,
    /// True while the thread is a task, which waits for room in the queue.
    pub(super) is_task: bool,
}

/// An open call or synchronous send.
struct Open {
    peer: NodeId,
    name: Name,
    call: CallId,
    class: Class,
    answer_len: u32,
    deadline: Nanos,
}

/// The place of a task in the queue of those that wait for room.
struct Place {
    ticket: RoomTicket,
    /// Number of refusals since the task last slept.
    refusals: u32,
    /// True if the last refusal ends with a tick, and not by a credit or a slot.
    until_tick: bool,
}

/// Number of refusals in spite of room, after which a task waits for a tick.
const FEW: u32 = 4;

fn is_counted(refused: &SendError) -> bool {
    matches!(refused, SendError::NoCredit { .. } | SendError::NoCallSlot { .. })
}

/// The waker of a future: a word on which its thread sleeps.
struct Word {
    word: WakeWord,
    executor: ThreadExecutor,
}

impl Wake for Word {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.word.needs_wake() {
            self.executor.wake(self.word.by_ref().0);
        }
    }
}

impl Caller {
    /// Makes `steps` random steps, and waits until everything has ended.
    pub(super) fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn step(&mut self) {
        let peers: Vec<_> = self.node.peers.keys().copied().collect();
        let peer = peers[usize::try_from(self.random.below(peers.len() as u64)).expect("below a length")];
        match self.mix.choose(&mut self.random) {
            super::mix::Step::Call => {
                let open = self.start(peer);
                open.into_iter().for_each(|open| self.finish(open));
            }
            super::mix::Step::Fast => self.call_fast(peer),
            super::mix::Step::Several => self.several(peer),
            super::mix::Step::Future => {
                self.is_task = true;
                let open = self.start(peer);
                self.is_task = false;
                open.into_iter().for_each(|open| self.await_end(open));
            }
            super::mix::Step::Notify => (0..self.mix.notices).for_each(|_| self.notify(peer)),
            super::mix::Step::NotifySync => self.notify_sync(peer),
            super::mix::Step::Abandon => self.abandon(peer),
            super::mix::Step::Pause => {
                let span = self.random.within(self.mix.pause);
                self.node.executor.pause(span);
            }
        }
    }

    /// Runs `run`. If it ends with a planned panic, notifies the serving thread, which otherwise finds the failed engine with its next tick.
    fn survived<R>(&self, run: impl FnOnce() -> R) -> Option<R> {
        let result = survived(run);
        if result.is_none() {
            self.node.executor.engine_failed();
        }
        result
    }

    fn session(&self, peer: NodeId) -> Arc<SimSession> {
        Arc::clone(&self.node.peers[&peer])
    }

    fn waits(&self, peer: NodeId, what: Awaited) -> Waits {
        Waits { session: self.session(peer), to: Node::place_of(peer), what }
    }

    fn request(&mut self) -> WaitRequest {
        let policy = self.mix.policy(&mut self.random);
        if policy == WaitPolicy::Adaptive && self.random.one_in(4) {
            let span = Span::micros(0, 200);
            return expecting(policy.into(), core::time::Duration::from_nanos(self.random.within(span).0));
        }
        policy.into()
    }

    fn next_name(&mut self) -> Name {
        self.numbers += 1;
        Name { node: self.thread, incarnation: 1, number: self.numbers }
    }

    fn class(&mut self) -> Class {
        if self.random.one_in(3) { Class::Bulk } else { Class::Control }
    }

    fn random_len(&mut self, class: Class) -> u32 {
        let (line, stamp) = (INLINE_PAYLOAD as u64, STAMP as u64);
        let max = u64::from(self.node.limits.max_payload[class.index()]);
        let most = if self.random.one_in(self.mix.long_one_in) { max } else { line };
        u32::try_from(stamp + self.random.below(most - stamp + 1)).expect("a payload")
    }

    fn payload(
        &self,
        peer: NodeId,
        class: Class,
        stamp: &Stamp,
        len: u32,
    ) -> Result<OutgoingPayload, SendError> {
        let len = len as usize;
        if len <= INLINE_PAYLOAD {
            let mut bytes = [0; INLINE_PAYLOAD];
            stamp.fill(&mut bytes[..len]);
            return Ok(OutgoingPayload::inline(&bytes[..len]).expect("at most forty bytes"));
        }
        let session = &self.node.peers[&peer];
        let mut loan = session.loan_after_reaping(class, len, peer.0.into(), &self.node.executor)?;
        stamp.fill(loan.as_mut_slice());
        Ok(OutgoingPayload::Frame(loan.finish()))
    }

    /// Sends a message of a kind as soon as there is room. Returns none if it was refused.
    fn send<R>(
        &mut self,
        (peer, class): (NodeId, Class),
        (kind, stamp): (Kind, Stamp),
        awaited: bool,
        attempt: impl Fn(&SimSession, OutgoingPayload, &ThreadExecutor) -> Result<R, SendError>,
    ) -> Option<R> {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(peer));
        let (len, request) = (self.random_len(class), self.request());
        let timeout =
            if self.holds_calls || self.random.one_in(4) { Nanos::from_millis(3) } else { Nanos::NEVER };
        // Entered before another thread can receive it.
        node.ledger().posted(stamp.name, kind, awaited);
        let (mut room, mut place) = (None, None);
        if self.is_task && session.is_room_awaited() {
            self.joins((peer, class), timeout, &mut place);
        }
        loop {
            if let Some(place) = &mut place
                && !self.has_room((peer, class), place)
            {
                session.leave_queue(&place.ticket, executor);
                node.ledger().withdrawn(stamp.name, false);
                return None;
            }
            let sent = self
                .payload(peer, class, &stamp, len)
                .and_then(|payload| attempt(&session, payload, executor));
            let refused = match sent {
                Ok(sent) => {
                    place.into_iter().for_each(|place| session.leave_queue(&place.ticket, executor));
                    room.into_iter().for_each(|room| session.room_came(room, executor));
                    return Some(sent);
                }
                Err(refused) => refused,
            };
            let waits = refused.is_retryable()
                && (session.is_up() || !matches!(refused, SendError::NotConnected { .. }));
            assert!(
                refused.is_retryable() || matches!(refused, SendError::Draining | SendError::NoRing),
                "{refused}"
            );
            let next = if waits && self.is_task {
                match &mut place {
                    Some(place) => {
                        session.rejoin_queue(&place.ticket, &refused, place.refusals, executor);
                        place.refusals += 1;
                        place.until_tick = !is_counted(&refused) || place.refusals >= FEW;
                    }
                    None => self.joins((peer, class), timeout, &mut place),
                }
                AfterRefusal::Retry
            } else if waits {
                let room = room.get_or_insert_with(|| session.begin_room_wait(request, timeout, executor));
                let mut sink = node.sink(&session, Thread::Waiting);
                let waits = self.waits(peer, Awaited::Room(class));
                let wait = || session.wait_for_room(room, &refused, executor.now(), &mut sink, executor);
                self.survived(|| scheduler::waiting(waits, wait)).unwrap_or(AfterRefusal::GiveUp)
            } else {
                AfterRefusal::GiveUp
            };
            match next {
                AfterRefusal::Retry => {}
                AfterRefusal::Pause => executor.pause(NO_ROOM),
                AfterRefusal::GiveUp => {
                    place.into_iter().for_each(|place| session.leave_queue(&place.ticket, executor));
                    node.ledger().withdrawn(stamp.name, matches!(refused, SendError::NoCredit { .. }));
                    if matches!(refused, SendError::NotConnected { .. }) {
                        executor.pause(NO_ROOM);
                    }
                    return None;
                }
            }
        }
    }

    /// Joins the queue of tasks that wait for room.
    fn joins(&self, (peer, class): (NodeId, Class), timeout: Nanos, place: &mut Option<Place>) {
        let (executor, session) = (&self.node.executor, self.session(peer));
        let deadline = executor.now() + timeout;
        let request = RoomRequest { room: RoomFor::Call(class), deadline, when_down: WhenDown::Fails };
        let mut sink = self.node.sink(&session, Thread::Waiting);
        let ticket = self.survived(|| session.join_queue(request, &mut sink, executor));
        // After a panic of the thread that joins, its ticket waits for nobody.
        *place = ticket.map(|ticket| Place { ticket, refusals: 0, until_tick: false });
    }

    /// Waits in the queue. Returns whether there is room; false if the deadline has passed.
    fn has_room(&self, (peer, class): (NodeId, Class), place: &mut Place) -> bool {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(peer));
        let word = Arc::new(Word { word: WakeWord::new(), executor: executor.clone() });
        let waker = Waker::from(Arc::clone(&word));
        loop {
            word.word.arm();
            match session.poll_queue(&place.ticket, &waker, executor) {
                RoomState::Given => return true,
                RoomState::Expired => return false,
                RoomState::Waiting => {}
            }
            let until = executor.now() + FUTURE;
            // A wake-up for room that the task has taken meanwhile may come late, so only the last refusal counts.
            let what = if place.until_tick { Awaited::Tick } else { Awaited::Queue(class) };
            let waits = self.waits(peer, what);
            scheduler::waiting(waits, || executor.sleep(word.word.by_ref().0, until));
            word.word.disarm();
            place.refusals = 0;
        }
    }

    fn stamp(&mut self, class: Class) -> Stamp {
        Stamp { name: self.next_name(), answer_len: self.random_len(class), answer: false }
    }

    /// Starts a call.
    fn start(&mut self, peer: NodeId) -> Option<Open> {
        let class = self.class();
        let (kind, stamp) = (self.call_kind(), self.stamp(class));
        let spec = CallSpec { key: kind.key(), class, timeout: self.deadline() };
        let call =
            self.send((peer, class), (kind, stamp), true, |session, payload, executor| match &payload {
                OutgoingPayload::Inline(inline) => session.call_small(&spec, inline, executor),
                _ => session.call(&spec, payload, executor),
            })?;
        Some(Open {
            peer,
            name: stamp.name,
            call,
            class,
            answer_len: stamp.answer_len,
            deadline: spec.timeout,
        })
    }

    fn call_kind(&mut self) -> Kind {
        if self.random.one_in(self.mix.laned_one_in) { Kind::Laned } else { Kind::Prompt }
    }

    fn deadline(&mut self) -> Nanos {
        if self.random.one_in(self.mix.deadline_one_in) {
            self.random.within(self.mix.deadline)
        } else {
            Nanos::NEVER
        }
    }

    /// Waits for the end of a call.
    fn finish(&mut self, open: Open) {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(open.peer));
        loop {
            let request = self.request();
            let timeout = match self.random.below(8) {
                0 => Nanos::ZERO,
                1 | 2 => self.random.within(self.mix.timeout),
                _ => Nanos::NEVER,
            };
            let awaited = match open.deadline {
                Nanos::NEVER => Awaited::End(open.call),
                _ => Awaited::Deadline(open.call),
            };
            let begun = executor.now();
            let mut sink = node.sink(&session, Thread::Waiting);
            let wait = || session.wait(open.call, timeout, request, &mut sink, executor);
            let waits = self.waits(open.peer, awaited);
            let Some(outcome) = self.survived(|| scheduler::waiting(waits, wait)) else {
                // The wait has given the call up.
                return node.ledger().abandoned(open.name);
            };
            match outcome {
                WaitOutcome::Ended(end) => return self.end(&open, &end),
                WaitOutcome::TimedOut => {
                    let waited = executor.now().since(begun);
                    assert!(waited >= timeout, "a wait of {timeout:?} ended after {waited:?}");
                    if self.random.one_in(6) {
                        return self.leave(&open);
                    }
                }
            }
        }
    }

    fn leave(&self, open: &Open) {
        self.node.ledger().abandoned(open.name);
        self.session(open.peer).abandon(open.call, open.class, &self.node.executor);
    }

    fn end(&self, open: &Open, end: &End<Lease>) {
        let &Open { peer, name, call, answer_len, .. } = open;
        if let End::Reply(payload) = end {
            let stamp = Stamp::read(payload);
            // A reply that finds no send memory is short.
            assert_eq!(stamp, Stamp { name, answer_len, answer: true }, "the reply belongs to another call");
        }
        if matches!(end, End::PeerDown { executed: Executed::Maybe }) && self.node.panics.may_happen() {
            return self.node.ledger().ended_by_failure(name);
        }
        let posted = self.node.world.has_accepted(self.node.place, Node::place_of(peer), call);
        self.node.ledger().ended(name, end, posted);
    }

    /// Calls and polls for the reply in one hold of the engine, then waits.
    fn call_fast(&mut self, peer: NodeId) {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(peer));
        let class = self.class();
        let (kind, stamp, request) = (self.call_kind(), self.stamp(class), self.request());
        let spec = CallSpec { key: kind.key(), class, timeout: self.deadline() };
        let mut bytes = [0; INLINE_PAYLOAD];
        stamp.fill(&mut bytes);
        let payload = InlinePayload::new(&bytes).expect("forty bytes");
        node.ledger().posted(stamp.name, kind, true);
        let mut sink = node.sink(&session, Thread::Waiting);
        let mut inline = InlineMessage::default();
        let (mut end, mut opened) = (None, None);
        let (waits_fast, again) = (self.random.one_in(2), self.request());
        let calls = || {
            let short = |_: &[u8]| unreachable!("no short messages");
            let slots = ReplySlots { inline: &mut inline, short, end: &mut end };
            let made =
                session.call_fast(&spec, Gather::Inline(&payload), request, slots, &mut sink, executor);
            let Some(FastOutcome::Open(call)) = made else { return made };
            opened = Some(call);
            let slots = ReplySlots { inline: &mut inline, short, end: &mut end };
            let waited =
                if waits_fast { session.wait_fast(call, again, slots, &mut sink, executor) } else { None };
            Some(waited.unwrap_or(FastOutcome::Open(call)))
        };
        let Some(made) = self.survived(calls) else {
            // A call that was open before the wait still belongs to this thread.
            opened.into_iter().for_each(|call| session.abandon(call, class, executor));
            return node.ledger().abandoned(stamp.name);
        };
        let open = |call| Open {
            peer,
            name: stamp.name,
            call,
            class,
            answer_len: stamp.answer_len,
            deadline: spec.timeout,
        };
        // A reply that was found immediately names no call, and shows that its request was accepted.
        let none = CallId { slot: 0, generation: 0 };
        match made {
            None => node.ledger().withdrawn(stamp.name, false),
            Some(FastOutcome::Inline) => self.end(&open(none), &End::Reply(Arrived::Inline(inline.payload))),
            Some(FastOutcome::Short) => unreachable!("no short messages"),
            Some(FastOutcome::Ended(call)) => self.end(&open(call), &end.expect("the end is in its slot")),
            Some(FastOutcome::Open(call)) => self.finish(open(call)),
        }
    }

    /// Starts several calls, sometimes with held doorbells, and waits for each.
    fn several(&mut self, peer: NodeId) {
        let (session, holds) = (self.session(peer), self.random.one_in(2));
        if holds {
            session.hold_doorbells();
        }
        let count = 2 + self.random.below(5);
        let mut open = Vec::new();
        for _ in 0..count {
            open.extend(self.start(peer));
            self.holds_calls = !open.is_empty();
        }
        self.holds_calls = false;
        if holds && self.random.one_in(2) {
            session.release_doorbells(&self.node.executor);
            open.drain(..).rev().for_each(|open| self.finish(open));
            return;
        }
        open.drain(..).for_each(|open| self.finish(open));
        if holds {
            session.release_doorbells(&self.node.executor);
        }
    }

    /// Awaits the end of a call as a future: sleeps until its waker is called.
    fn await_end(&mut self, open: Open) {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(open.peer));
        let word = Arc::new(Word { word: WakeWord::new(), executor: executor.clone() });
        let waker = Waker::from(Arc::clone(&word));
        while !session.has_ended(open.call) {
            word.word.arm();
            session.register(open.call, &waker);
            let listen = || session.listen(&mut node.sink(&session, Thread::Waiting), executor);
            // Some futures are polled by a thread that must not wait for an engine, as within an inline handler.
            let must_not_wait = self.random.one_in(4);
            self.survived(|| if must_not_wait { holding_engine(listen) } else { listen() });
            if !session.has_ended(open.call) {
                let until = executor.now() + FUTURE;
                let waits = self.waits(open.peer, Awaited::Wake(open.call));
                scheduler::waiting(waits, || executor.sleep(word.word.by_ref().0, until));
            }
            word.word.disarm();
        }
        self.end(&open, &session.take(open.call, executor));
    }

    fn notify(&mut self, peer: NodeId) {
        let class = self.class();
        let (kind, stamp) = (Kind::Notice, self.stamp(class));
        self.send((peer, class), (kind, stamp), false, |session, payload, executor| {
            if let OutgoingPayload::Inline(inline) = &payload
                && session.notify_fast(&kind.key(), class, Gather::Inline(inline), executor)?
            {
                return Ok(());
            }
            session.notify(&kind.key(), class, payload, executor)
        });
    }

    fn notify_sync(&mut self, peer: NodeId) {
        let node = Arc::clone(&self.node);
        let (executor, session) = (&node.executor, self.session(peer));
        let class = self.class();
        let (kind, stamp) = (Kind::Notice, self.stamp(class));
        let sent = self.send((peer, class), (kind, stamp), true, |session, payload, executor| {
            session.notify_sync(&kind.key(), class, payload, executor)
        });
        let Some(call) = sent else { return };
        let open = Open { peer, name: stamp.name, call, class, answer_len: 0, deadline: Nanos::NEVER };
        let policy = self.mix.policy(&mut self.random);
        let mut sink = node.sink(&session, Thread::Waiting);
        let waits = self.waits(peer, Awaited::End(call));
        let wait = || session.wait_for_send(call, Nanos::NEVER, policy, &mut sink, executor);
        let Some(outcome) = self.survived(|| scheduler::waiting(waits, wait)) else {
            return node.ledger().abandoned(open.name);
        };
        match outcome {
            WaitOutcome::Ended(end) => self.end(&open, &end),
            WaitOutcome::TimedOut => unreachable!("the wait has no timeout"),
        }
    }

    /// Starts a call and leaves it after a while.
    fn abandon(&mut self, peer: NodeId) {
        let Some(open) = self.start(peer) else { return };
        if self.random.one_in(2) {
            let span = self.random.within(Span::micros(0, 300));
            self.node.executor.pause(span);
        }
        self.leave(&open);
    }
}

//! The answer that comes soon: a small call posted and its reply looked for in one hold of the engine.
//!
//! A reply that fits its line, and that the caller itself finds, is taken in by comparing words, past everything that other
//! messages need. Whatever else is found first goes the ordinary way.
//!
//! Between a reply and the next request of the same caller every instruction counts, and while the reply is on its way none does. So what
//! can wait is done right after the request was sent, and a reply goes from its line into a place of the caller's: moved about in
//! enumerations it would be copied three times, at offsets that no store buffer forwards.

use pronto_wire::CallId;

use super::Session;
use super::entering::EngineGuard;
use super::wait::{Caller, SPINS_PER_LOOK};
use crate::executor::{Asked, Executor};
use crate::fabric::{Armed, Gather, InlineMessage, QueuePair};
use crate::note::{Note, What};
use crate::session::end::End;
use crate::session::engine::{Engine, Found, Prefetched};
use crate::session::inbound::Sink;
use crate::session::lane::Lane;
use crate::session::peer_types::Known;
use crate::session::shared::Turn;
use crate::session::spec::CallSpec;
use crate::time::Nanos;
use crate::wait::history::Teaches;

/// What became of a call that was looked for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soon {
    /// Its reply came, and is in the place for inline messages.
    Inline,
    /// Its reply came, and was given to who takes short ones.
    Short,
    /// It ended in another way, or its reply lies elsewhere: the end is in its place.
    Ended(CallId),
    /// Not ended yet: wait for it.
    Open(CallId),
}

/// Where a call leaves what it comes to.
#[derive(Debug)]
pub struct Places<'a, L, F> {
    /// A reply that is an inline message.
    pub inline: &'a mut InlineMessage,
    /// Takes the bytes of a longer one that its sender copied, where they lie.
    pub short: F,
    /// Any other end.
    pub end: &'a mut Option<End<L>>,
}

/// A call that perhaps only this thread knows. A panic drops this, which gives up the waiter's part of the slot; without a panic it is
/// forgotten.
pub(super) struct LeavesIfUnwound<'a, Q: QueuePair> {
    pub(super) session: &'a Session<Q>,
    pub(super) call: CallId,
}

impl<Q: QueuePair> Drop for LeavesIfUnwound<'_, Q> {
    #[cold]
    fn drop(&mut self) {
        if self.session.calls.is_unleft(self.call) {
            self.session.calls.leave(self.call);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Sends a request whose payload is copied meanwhile, and looks for the answer a few times if its caller may poll. None if something
    /// stands in the request's way: nothing was sent, and [`Session::call`] knows what it is.
    #[inline]
    pub fn call_soon(
        &self,
        spec: &CallSpec,
        payload: Gather<'_>,
        asked: Asked,
        places: Places<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Soon> {
        let Known::As(type_id) = self.types.find(&spec.key) else { return None };
        let mut engine = self.engine.try_lock()?;
        let call = engine.call_small(spec, type_id, payload, self);
        if let Some(call) = call {
            executor.note(Note { what: What::Called, peer: self.peer, call, more: 0 });
            // Who waits for an answer holds no doorbell back.
            engine.ring_out(spec.class, self);
        }
        if let Some(call) = call {
            let decision = self.decide(asked, executor);
            if decision.polls_for() != Nanos::ZERO {
                // What came with the last reply: this one takes longer.
                engine.settle_early(self);
                let leaves = LeavesIfUnwound { session: self, call };
                let soon = self.look_soon(engine, (call, decision.teaches), places, sink, executor);
                core::mem::forget(leaves);
                return Some(soon);
            }
        }
        engine.release();
        self.look_once_more(executor);
        call.map(Soon::Open)
    }

    /// The same for a call that was sent before: some looks for its answer, one if its caller does not poll. None if another thread is
    /// at it.
    #[inline]
    pub fn wait_soon(
        &self,
        call: CallId,
        asked: Asked,
        places: Places<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Soon> {
        if self.has_ended(call) {
            return None;
        }
        let mut engine = self.engine.try_lock()?;
        if self.holds_doorbells() {
            engine.ring_for_waiter(call, self);
        }
        let decision = self.decide(asked, executor);
        if decision.polls_for() == Nanos::ZERO {
            return self.look_before_sleep(engine, (call, decision.teaches), places, sink, executor);
        }
        Some(self.look_soon(engine, (call, decision.teaches), places, sink, executor))
    }

    /// A look for what lies here already, as all but the first of several answers do that came together: to arm and to sleep for it
    /// takes longer than the rest of the call.
    fn look_before_sleep(
        &self,
        mut engine: EngineGuard<'_, Q>,
        (call, teaches): (CallId, Teaches),
        places: Places<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Soon> {
        let Places { inline, short, end } = places;
        let mut soon = None;
        if self.may_look(&engine) && !engine.is_left(self) && !engine.lanes_are_quiet() {
            match engine.find_reply(call, inline, Lane::may_hold_message, self) {
                Found::Reply => soon = Some(Soon::Inline),
                Found::ShortReply => {
                    short(engine.short.payload());
                    soon = Some(Soon::Short);
                }
                // Nothing that a look could find without asking the kernel for it, which a sleep does first of all.
                Found::Other(None | Some(Prefetched::Nothing)) => {}
                Found::Other(prefetched) => {
                    let mut caller = Caller { session: self, call, caught: end, counted: false };
                    engine.turn(prefetched, Turn::new(self, executor), &mut caller, sink);
                    soon = end.is_some().then_some(Soon::Ended(call));
                }
            }
        }
        engine.release();
        if soon.is_some() {
            self.reply_waits.add_short(teaches);
        }
        self.look_once_more(executor);
        soon
    }

    /// Whether a thread without the role may look: nothing is taken that somebody sleeps for, or the event that was asked for comes all
    /// the same, and stays until the sleeper takes it.
    #[inline]
    pub(super) fn may_look(&self, engine: &Engine<Q>) -> bool {
        if self.role.is_free() { self.arming.armed() != Armed::All } else { self.may_look_beside(engine) }
    }

    /// Whether it may look although the role is held: the holder sleeps in the channel, and the peer rings for what it has sent, taken
    /// already or not. Where the event is that bytes are there, they are left to the sleeper.
    #[inline(never)]
    pub(super) fn may_look_beside(&self, engine: &Engine<Q>) -> bool {
        self.role.holder_is_asleep() && engine.peer_wakes()
    }

    /// Some looks for the end of a call without the role, as the serving thread looks.
    #[inline]
    pub(super) fn look_soon(
        &self,
        mut engine: EngineGuard<'_, Q>,
        (call, teaches): (CallId, Teaches),
        places: Places<'_, Q::Lease, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Soon {
        let Places { inline, short, end } = places;
        // The answer takes longer.
        engine.extend_rings();
        let polls = if self.may_look(&engine) { SPINS_PER_LOOK } else { 0 };
        let soon = 'polls: {
            for _ in 0..polls {
                let (is_left, is_quiet) = (engine.is_left(self), engine.lanes_are_quiet());
                let found = match (is_quiet, is_left) {
                    (true, false) if !self.rendezvous.is_due() => continue,
                    (false, false) => engine.find_reply(call, inline, |_| true, self),
                    _ => Found::Other(None),
                };
                let prefetched = match found {
                    Found::Reply => break 'polls Soon::Inline,
                    Found::ShortReply => {
                        short(engine.short.payload());
                        break 'polls Soon::Short;
                    }
                    Found::Other(prefetched) => prefetched,
                };
                let mut caller = Caller { session: self, call, caught: end, counted: false };
                let progress = engine.turn(prefetched, Turn::new(self, executor), &mut caller, sink);
                if end.is_some() {
                    break 'polls Soon::Ended(call);
                }
                if progress.moved != 0 {
                    break;
                }
            }
            Soon::Open(call)
        };
        engine.release();
        if !matches!(soon, Soon::Open(_)) {
            self.reply_waits.add_short(teaches);
        }
        self.look_once_more(executor);
        soon
    }
}

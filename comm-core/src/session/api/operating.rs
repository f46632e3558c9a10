//! Operations of the node on a session, other than polling: installing links, ticks, and ending the session. These methods wait for the
//! engine lock, which is held only briefly. An inline handler must not wait; each method documents its result in that case.

use pronto_wire::{Class, Kind, SessionId};

use super::Session;
use crate::executor::{Channel, Executor};
use crate::fabric::QueuePair;
use crate::session::engine::Ticked;
use crate::session::inbound::Sink;
use crate::session::link::{DownCause, LinkInfo, Links};
use crate::session::shared::Turn;
use crate::time::Nanos;

impl<Q: QueuePair> Session<Q> {
    /// Installs a new link, which resumes the session or begins another one. In an inline handler, closes the link instead.
    pub fn install(&self, links: Links<Q>, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        let Some(mut engine) = self.enter_recovered(sink, executor) else { return };
        engine.install(links, Turn::new(self, executor), sink);
        engine.release();
        self.recheck(executor);
    }

    /// Installs a link like [`install`](Self::install), if `may` returns true: no other thread installs or loses a link meanwhile. `may` gets
    /// whether there is a link that works. Returns whether the link was installed.
    pub fn install_if(
        &self,
        links: Links<Q>,
        may: impl FnOnce(bool) -> bool,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        let Some(mut engine) = self.enter_recovered(sink, executor) else { return false };
        let installs = may(engine.phase.is_linked());
        if installs {
            engine.install(links, Turn::new(self, executor), sink);
        }
        engine.release();
        self.recheck(executor);
        installs
    }

    /// Processes deadlines, heartbeats and liveness. `slept` is the planned time since the caller's last tick. Returns `None`, with no
    /// effect on anything but tasks that wait for room, while another thread holds the engine; the caller should try again soon.
    pub fn tick(
        &self,
        now: Nanos,
        slept: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Ticked> {
        self.tick_queue(now, executor);
        let mut engine = self.engine.try_lock()?;
        engine.tick(Turn::new(self, executor), now, slept, sink);
        let ticked = Ticked { next_due: engine.next_due(self), work_in_flight: engine.work.in_flight() };
        engine.release();
        self.recheck(executor);
        Some(ticked)
    }

    /// Ends link and session for an external cause, such as the end of this node. In an inline handler, returns false and does nothing.
    pub fn take_down(
        &self,
        cause: DownCause,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        self.take_down_if(|_| true, cause, sink, executor)
    }

    /// Ends link and session if the session is still `id`, because its peer's process was seen to end. Returns false and does nothing if
    /// another session has begun meanwhile, whose peer lives, and in an inline handler.
    pub fn take_down_died(
        &self,
        id: SessionId,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        self.take_down_if(|info| info.is_some_and(|info| info.session == id), DownCause::Died, sink, executor)
    }

    /// Ends link and session if `is_meant` accepts the present session. The decision and the end are one step for other threads.
    fn take_down_if(
        &self,
        is_meant: impl FnOnce(Option<&LinkInfo>) -> bool,
        cause: DownCause,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        let Some(mut engine) = self.enter_recovered(sink, executor) else { return false };
        let ends = is_meant(engine.phase.info());
        if ends {
            if cause == DownCause::Died && engine.phase.is_linked() {
                // The end of the peer may be noticed before its last messages.
                engine.drain_after_loss(Turn::new(self, executor), sink);
            }
            let said_so = engine.phase.link().is_some_and(|link| link.peer_draining);
            let cause = if cause == DownCause::Died && said_so { DownCause::Goodbye } else { cause };
            engine.lose_for(cause, Turn::new(self, executor), sink);
        }
        engine.release();
        self.recheck(executor);
        ends
    }

    /// Notifies the peer that this node takes no new requests. Returns whether the message was posted.
    pub fn goodbye(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| {
            let notify_woken =
                engine.phase.is_linked() && engine.control(Class::Control, Kind::Goodbye, self);
            engine.ring_doorbells(self);
            notify_woken
        })
        .unwrap_or(false)
    }

    /// Returns information about the peer, if there is a session. In an inline handler `None` may also mean that the engine is busy.
    pub fn info(&self, executor: &impl Executor) -> Option<LinkInfo> {
        self.with_engine(executor, |engine| engine.phase.info().copied()).flatten()
    }

    /// Returns whether there is a link now. In an inline handler false may also mean that the engine is busy.
    pub fn is_linked(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| engine.phase.is_linked()).unwrap_or(false)
    }

    /// Called before the node makes a link for the messages that need one. Returns whether the session was paused; it must then get a link
    /// within the liveness limit. In an inline handler returns false if the engine is busy.
    pub fn end_pause(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| engine.end_pause(executor.now())).unwrap_or(false)
    }

    /// Returns the number of work requests in flight; 0 in an inline handler if the engine is busy.
    pub fn work_in_flight(&self, executor: &impl Executor) -> usize {
        self.with_engine(executor, |engine| engine.work.in_flight()).unwrap_or(0)
    }

    /// Reports to the fabric that these channels, by class, have woken the calling thread in place of the serving thread.
    pub(super) fn notify_woken(&self, which: [bool; 2], executor: &impl Executor) {
        // A thread that has slept on channels may block.
        let _reported = self.with_engine(executor, |engine| engine.notify_woken(which));
    }

    /// Returns the channels that have an event when something arrives, control and bulk; none in an inline handler if the engine is busy.
    pub fn channels(&self, executor: &impl Executor) -> [Option<Channel>; 2] {
        self.with_engine(executor, |engine| engine.channels()).unwrap_or([None; 2])
    }
}

//! Room for tasks: joining the queue, and giving room that became free to the tasks that wait longest.
//!
//! # No room is lost
//! A task joins the queue, which sets a flag, and looks for room afterwards. A thread that frees room looks at the flag afterwards: where it
//! releases the engine ([`Session::recheck`]), and otherwise where it frees the slot, the credit or the transfer. So at least one of the
//! two sees the other.

use core::task::Waker;

use pronto_sync::atomic::{Ordering, fence};
use pronto_wire::{CallId, Class};

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::session::admission::{Available, Room, RoomRequest, RoomState, RoomTicket, transfers_left};
use crate::session::credit::{Credit, Credits};
use crate::session::end::End;
use crate::session::inbound::Sink;
use crate::session::send_error::SendError;
use crate::time::Nanos;

/// The number of attempts of a task that is refused although there seems to be room, because another thread holds the engine.
const ATTEMPTS: u32 = 4;

impl<Q: QueuePair> Session<Q> {
    /// Returns whether tasks wait for room. A task that wants to send joins the queue then, so as not to overtake them.
    #[inline]
    pub fn is_room_awaited(&self) -> bool {
        self.wanted.wants_room()
    }

    /// Adds a task to the queue of those that wait for room to send. Poll the ticket afterwards, and leave the queue with it.
    pub fn join_queue(
        &self,
        request: RoomRequest,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> RoomTicket {
        let (ticket, is_first) = self.admission.join(request, &self.wanted, executor);
        // SYNC: either this task sees the room, or the thread that frees it sees the flag; pairs with the fence in `recheck`, with the
        // fence in `admit_after_freeing`, and with the SeqCst operations that free a call slot and read the flag.
        fence(Ordering::SeqCst);
        self.want_link_for_tasks(executor);
        self.admit(executor);
        if is_first {
            // The serving thread may sleep, armed for requests only. While the flag is set it arms for everything.
            self.listen(sink, executor);
        }
        ticket
    }

    /// Returns the state of a ticket. If it waits, the waker is woken when that changes.
    pub fn poll_queue(&self, ticket: &RoomTicket, waker: &Waker, executor: &impl Executor) -> RoomState {
        let (state, went_back) = self.admission.poll(ticket, waker, executor);
        if went_back {
            self.admit_after_freeing(executor);
        }
        state
    }

    /// Puts a ticket back to its place in the queue, because its task was refused. `attempt` counts the refusals of this poll of the task,
    /// from 0. The task may have room again immediately: poll the ticket.
    pub fn rejoin_queue(
        &self,
        ticket: &RoomTicket,
        refused: &SendError,
        attempt: u32,
        executor: &impl Executor,
    ) {
        if attempt + 1 < ATTEMPTS {
            self.admission.back(ticket, refused, executor);
        } else {
            self.admission.until_tick(ticket, executor);
        }
        self.admit_after_freeing(executor);
    }

    /// Removes a task from the queue, because it has sent its message or has given up. If it had room and has not used it, the next task
    /// gets it.
    pub fn leave_queue(&self, ticket: &RoomTicket, executor: &impl Executor) {
        self.admission.leave(ticket, &self.wanted, executor);
        self.admit_after_freeing(executor);
    }

    /// Takes the end of a call that has ended, and frees its slot. A task that waits for room gets it.
    #[inline]
    pub fn take(&self, call: CallId, executor: &impl Executor) -> End<Q::Lease> {
        let end = self.calls.take(call);
        self.slot_was_freed(executor);
        end
    }

    /// Called after the calling thread may have freed a call slot without the engine.
    #[inline]
    pub(super) fn slot_was_freed(&self, executor: &impl Executor) {
        // Loom does not model SeqCst operations other than fences.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.wanted.wants_room() {
            self.admit(executor);
        }
    }

    /// Frees a call slot that the engine has never seen.
    #[cold]
    pub(super) fn unclaim(&self, call: CallId, executor: &impl Executor) {
        self.calls.unclaim(call);
        self.admit_after_freeing(executor);
    }

    /// Puts back a credit that was not used.
    #[cold]
    pub(super) fn put_back(&self, class: Class, credit: Credit, executor: &impl Executor) {
        self.credits[class.index()].put_back(credit);
        self.admit_after_freeing(executor);
    }

    /// Called after the calling thread has freed room of any kind without the engine.
    pub(super) fn admit_after_freeing(&self, executor: &impl Executor) {
        // SYNC: pairs with the fence in `join_queue`.
        fence(Ordering::SeqCst);
        if self.wanted.wants_room() {
            self.admit(executor);
        }
    }

    /// Gives the room that is free to the tasks that wait longest, and wakes each of them.
    #[cold]
    pub(super) fn admit(&self, executor: &impl Executor) {
        while let Some(given) = self.admission.give(|| self.available(), executor) {
            if let Some(waker) = given {
                executor.foreign(|| waker.wake());
            }
        }
        for class in Class::ALL {
            self.ask_for_tasks(class, executor);
        }
    }

    /// Asks the peer for a larger window if a task waits for a credit. If another thread holds the engine, that thread does so when it
    /// releases it, or the next tick does.
    fn ask_for_tasks(&self, class: Class, executor: &impl Executor) {
        let may_ask = &self.may_ask[class.index()];
        let Available::Up(available) = self.available() else { return };
        // The flag is reset before the recheck of the engine, which comes here again.
        let asks = may_ask.load(Ordering::Relaxed)
            && self.admission.lacks_credit(class, available, executor)
            && may_ask.swap(false, Ordering::Relaxed);
        if asks && self.in_free_engine(executor, |engine| engine.ask_for_credit(class, self)).is_none() {
            may_ask.store(true, Ordering::Relaxed);
        }
    }

    /// Ends all waits of tasks, present and future ones, because the node has ended: no tick would end them at their deadlines.
    pub fn close_queue(&self, executor: &impl Executor) {
        for waker in self.admission.close(&self.wanted, executor) {
            executor.foreign(|| waker.wake());
        }
    }

    /// Ends the waits whose deadline has passed.
    pub(super) fn tick_queue(&self, now: Nanos, executor: &impl Executor) {
        if !self.wanted.wants_room() {
            return;
        }
        for waker in self.admission.tick(now, &self.wanted, executor) {
            executor.foreign(|| waker.wake());
        }
        self.want_link_for_tasks(executor);
        self.admit(executor);
    }

    /// Asks the node for a link if tasks wait and none takes messages. An attempt of a task asked already; the link may have ended since.
    fn want_link_for_tasks(&self, executor: &impl Executor) {
        let is_closed = || !self.is_up() || self.credits.iter().any(Credits::is_closed);
        if self.is_on_demand() && self.wanted.wants_room() && is_closed() {
            self.want_link(executor);
        }
    }

    fn available(&self) -> Available {
        if !self.is_up() && !self.is_on_demand() {
            return Available::Down;
        }
        let credits = [0, 1].map(|class: usize| self.credits[class].available());
        let slots = u32::from(self.limits.calls.saturating_sub(self.calls.in_use()));
        let transfers = transfers_left(self.rendezvous.sends.load(Ordering::Relaxed));
        Available::Up(Room { credits, slots, transfers })
    }
}

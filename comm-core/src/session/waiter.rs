//! The waiter for whom a turn of the engine runs: its condition, and the destination of its call's end.

use pronto_wire::CallId;

use super::end::End;

/// The waiter for whom a turn of the engine runs.
pub(super) trait Waiter<L> {
    /// Returns whether the wait has ended, so that the turn receives no more messages.
    fn is_done(&self) -> bool;

    /// Returns whether the waiter waits for this call.
    fn waits_for(&self, call: CallId) -> bool;

    /// Takes the end of the waiter's call, directly from the message.
    fn catch(&mut self, end: End<L>);

    /// Returns whether the engine frees the slot of a call whose end the waiter took.
    fn leaves_its_slot(&self) -> bool;
}

impl<L, F: Fn() -> bool> Waiter<L> for F {
    #[inline]
    fn is_done(&self) -> bool {
        self()
    }

    #[inline]
    fn waits_for(&self, _: CallId) -> bool {
        false
    }

    fn catch(&mut self, _: End<L>) {
        unreachable!("this waiter waits for no call")
    }

    fn leaves_its_slot(&self) -> bool {
        unreachable!("this waiter waits for no call")
    }
}

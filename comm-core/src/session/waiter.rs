//! Whoever a turn is made for: what it waits for, and where it takes the end of its call.

use pronto_wire::CallId;

use super::end::End;

/// For whom a turn is made.
pub(super) trait Waiter<L> {
    /// Whether what it waits for has come: the turn receives no more.
    fn is_done(&self) -> bool;

    /// Whether this is its call.
    fn waits_for(&self, call: CallId) -> bool;

    /// The end of its call, straight from the message.
    fn catch(&mut self, end: End<L>);

    /// Whether it has no more to do with the slot of a call whose end it caught.
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
        unreachable!("it waits for no call")
    }

    fn leaves_its_slot(&self) -> bool {
        unreachable!("it waits for no call")
    }
}

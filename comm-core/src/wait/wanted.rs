//! Requests to the thread that holds a session's engine, in addition to the submission queue.
//!
//! A polling thread releases the engine only for a moment between two poll batches. A thread that needs the engine sets a flag here. The
//! flag counts as pending work and therefore ends the poll batch.

use pronto_sync::atomic::{AtomicU32, Ordering};

use super::back_off::BackOff;
use crate::executor::Executor;

/// Flag: the holder of the engine must look whether credits are due to the peer, because other threads have freed more than a quarter of the
/// window since the last message that returned any.
const CREDIT: u32 = 1;

/// Flag: a thread needs the engine and cannot leave its work to the holder.
const ENGINE: u32 = 2;

/// Flag: tasks wait for room to send. It stays set while they do, so it is no work that ends a poll batch; a thread that releases the engine
/// looks for room.
const ROOM: u32 = 4;

/// Requests of other threads to the engine's holder.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    flags: AtomicU32,
    /// Number of threads that wait without sleeping for something that a polling thread receives: they yield, or poll their own words.
    awaiting: AtomicU32,
}

/// A guard that counts a thread that waits without sleeping, until it is dropped.
pub(crate) struct Awaiting<'a>(&'a AtomicU32);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wanted {
    /// Returns whether there is a request that the engine's holder does.
    #[inline]
    pub(crate) fn anything(&self) -> bool {
        self.has(CREDIT | ENGINE)
    }

    /// Returns whether any flag is set, including that of tasks that wait for room.
    #[inline]
    pub(crate) fn anything_or_room(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Returns whether tasks wait for room to send.
    #[inline]
    pub(crate) fn wants_room(&self) -> bool {
        // SYNC: after the release of a call slot, which is SeqCst, too, this load sees the flag of a task that has not seen the slot; pairs
        // with the fence in `Session::join_queue`. On x86-64 it costs no more than a relaxed load.
        self.flags.load(Ordering::SeqCst) & ROOM != 0
    }

    /// Sets or clears the flag of tasks that wait for room.
    pub(crate) fn set_room(&self, is_wanted: bool) {
        if is_wanted == self.has(ROOM) {
            return;
        }
        if is_wanted {
            self.flags.fetch_or(ROOM, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!ROOM, Ordering::Relaxed);
        }
    }

    #[inline]
    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn takes(&self, flag: u32) -> bool {
        self.has(flag) && self.flags.fetch_and(!flag, Ordering::Relaxed) & flag != 0
    }

    /// Requests that the holder returns credits to the peer, and rings held doorbells.
    pub(crate) fn credit(&self) {
        self.flags.fetch_or(CREDIT, Ordering::Relaxed);
    }

    /// Returns whether that was requested.
    pub(crate) fn wants_credit(&self) -> bool {
        self.has(CREDIT)
    }

    /// Clears the flag of threads that want the engine, and returns whether it was set. Threads that still wait set it again.
    pub(crate) fn takes_engine(&self) -> bool {
        self.takes(ENGINE)
    }

    /// Engine only: clears the request for credits, before they are returned.
    pub(crate) fn credit_is_given(&self) {
        self.takes(CREDIT);
    }

    /// Sets the wanted flag and yields to the lock holder, which yields back.
    pub(crate) fn yield_to_holder(&self, executor: &impl Executor) {
        self.flags.fetch_or(ENGINE, Ordering::Relaxed);
        self.yield_counted(executor);
    }

    /// Sets the wanted flag and pauses, so that the lock holder runs regardless of the scheduling classes of the two threads; see
    /// [`BackOff`].
    pub(crate) fn wait_for_holder(&self, back_off: &mut BackOff, executor: &impl Executor) {
        self.flags.fetch_or(ENGINE, Ordering::Relaxed);
        let _awaits = self.awaits();
        back_off.pause(executor);
    }

    /// Yields, and counts the calling thread as waiting meanwhile.
    pub(crate) fn yield_counted(&self, executor: &impl Executor) {
        let _awaits = self.awaits();
        executor.yield_now();
    }

    /// Counts the calling thread as one that waits without sleeping.
    pub(crate) fn awaits(&self) -> Awaiting<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(&self.awaiting)
    }

    /// Returns whether any thread waits without sleeping. It may share the CPU of the polling thread, and then needs a yield to run.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::back_off::tests::RealTime;

    #[test]
    fn each_request_is_seen_where_it_is_meant_and_taken_once() {
        let wanted = Wanted::default();
        let state =
            || [wanted.anything(), wanted.anything_or_room(), wanted.wants_room(), wanted.wants_credit()];
        assert_eq!(state(), [false; 4]);
        wanted.set_room(true);
        assert_eq!(state(), [false, true, true, false], "the engine's holder does nothing for tasks");
        wanted.credit();
        assert_eq!(state(), [true; 4]);
        wanted.credit_is_given();
        wanted.set_room(false);
        assert_eq!(state(), [false; 4]);
        wanted.yield_to_holder(&RealTime::with(|| ()));
        assert_eq!(state(), [true, true, false, false]);
        assert!(wanted.takes_engine() && !wanted.takes_engine());
        assert_eq!(state(), [false; 4]);
        assert!(!wanted.is_awaited(), "nobody yields any more");
    }
}

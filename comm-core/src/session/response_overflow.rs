//! Responses for which the submission queue has no room. A response must not be lost because another thread holds the engine, as
//! the caller may have no deadline.

use alloc::collections::VecDeque;

use pronto_sync::TryLock;
use pronto_sync::atomic::{AtomicU32, Ordering};

use super::limits::MAX_CALLS;
use super::outgoing::Outgoing;
use crate::executor::Executor;
use crate::wait::back_off::BackOff;

/// Maximum number of responses: one for each open call that a peer may have. A further response belongs to a call that the peer has
/// cancelled.
const CAPACITY: usize = MAX_CALLS as usize;

/// Responses that wait for the engine's holder.
#[derive(Debug)]
pub(super) struct ResponseOverflow {
    responses: TryLock<VecDeque<Outgoing>>,
    /// Number of responses, which the engine's holder reads first.
    count: AtomicU32,
}

impl Default for ResponseOverflow {
    fn default() -> Self {
        Self { responses: TryLock::new(VecDeque::new()), count: AtomicU32::new(0) }
    }
}

impl ResponseOverflow {
    /// Adds a response, or returns it as an error if there is no room. After success the caller must notify the engine's holder.
    pub(super) fn push(&self, response: Outgoing, executor: &impl Executor) -> Result<(), Outgoing> {
        let mut back_off = BackOff::default();
        loop {
            // Another thread holds this lock only for one push or one pop.
            let Some(mut responses) = self.responses.try_lock() else {
                back_off.pause(executor);
                continue;
            };
            if responses.len() == CAPACITY {
                return Err(response);
            }
            responses.push_back(response);
            self.count.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }

    /// Engine only: takes the oldest response. Returns `None` also while another thread adds one; that thread then notifies the holder.
    #[inline]
    pub(super) fn take(&self) -> Option<Outgoing> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let response = self.responses.try_lock()?.pop_front()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(response)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use pronto_wire::{CallId, Class, Kind};

    use super::super::outgoing::OutgoingPayload;
    use super::*;
    use crate::session::outgoing::Carrier;
    use crate::time::Nanos;
    use crate::wait::back_off::tests::RealTime;

    #[test]
    fn a_real_time_thread_lets_a_thread_that_adds_a_response_run() {
        let overflow = ResponseOverflow::default();
        let held = Mutex::new(overflow.responses.try_lock());
        let thread = RealTime::with(|| drop(held.lock().expect("no panic").take()));
        let response = Outgoing {
            class: Class::Control,
            link: 0,
            kind: Kind::Cancel { call: CallId { slot: 0, generation: 0 } },
            payload: OutgoingPayload::EMPTY,
            carrier: Carrier::AnyLink,
            completes: None,
            timeout: Nanos::NEVER,
        };
        assert!(overflow.push(response, &thread).is_ok() && thread.has_slept());
        assert!(overflow.take().is_some());
    }
}

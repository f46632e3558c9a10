//! The rule by which a polling thread yields its CPU to other threads.

use super::wanted::Wanted;
use crate::executor::Executor;
use crate::time::Nanos;

/// Time for which a thread polls before it yields to another thread. It is about the cost of a wake-up, so that a reply that arrives soon
/// is not missed.
const YIELD_AFTER: Nanos = Nanos::from_micros(20);

/// The time when another thread began to hold the engine, or to wait without sleeping for something that this thread receives. The two
/// may share a CPU. Without a yield, the other thread would run only after this one's time slice.
#[derive(Debug, Default)]
pub struct YieldTimer(Option<Nanos>);

impl YieldTimer {
    /// Called after each poll batch. `engine_was_free` tells whether the engine was free for it. Yields if another thread has waited for
    /// [`YIELD_AFTER`].
    pub(crate) fn after_poll(
        &mut self,
        engine_was_free: bool,
        wanted: &Wanted,
        now: Nanos,
        executor: &impl Executor,
    ) {
        if engine_was_free && !wanted.is_awaited() {
            self.0 = None;
        } else if now.since(*self.0.get_or_insert(now)) >= YIELD_AFTER {
            wanted.yield_to_holder(executor);
            self.0 = None;
        }
    }
}

//! When a polling thread yields its CPU to other threads.

use super::wanted::Wanted;
use crate::executor::Executor;
use crate::time::Nanos;

/// The time for which a thread polls next to others before it yields. About the cost of a wake-up, so that a reply that comes soon is
/// not missed.
const YIELD_AFTER: Nanos = Nanos::from_micros(20);

/// Since when another thread has kept this one from polling, or has waited awake for what this one finds. The two may share a CPU, and
/// without a yield the other thread would run only after this one's time slice.
#[derive(Debug, Default)]
pub struct YieldTimer(Option<Nanos>);

impl YieldTimer {
    /// Called after each poll batch, with whether the engine was free for it. Yields if a thread has waited for [`YIELD_AFTER`].
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

//! Tasks that await a state of a peer. An event of a peer wakes them all; the serving thread's ticks end those whose deadline has passed.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use pronto_core::{Clock as _, Nanos};
use pronto_rpc::Host as _;
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::host::NodeHost;

/// The tasks that wait.
#[derive(Debug)]
pub(crate) struct StateTasks {
    waiting: Mutex<Waiting>,
    /// No task has an earlier deadline. Written under the lock.
    earliest: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: BTreeMap<u64, (Waker, Nanos)>,
    next: u64,
}

impl Default for StateTasks {
    fn default() -> Self {
        Self { waiting: Mutex::default(), earliest: AtomicU64::new(Nanos::NEVER.0) }
    }
}

impl StateTasks {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics")
    }

    /// Returns a time before which no deadline passes.
    pub(crate) fn next_due(&self) -> Nanos {
        Nanos(self.earliest.load(Ordering::Relaxed))
    }

    /// Takes all wakers, for an event. The caller must call them, and may hold an engine lock.
    pub(crate) fn all(&self) -> Vec<Waker> {
        let tasks = core::mem::take(&mut self.lock().tasks);
        tasks.into_values().map(|(waker, _)| waker).collect()
    }

    /// Takes the wakers of the tasks whose deadline has passed. The caller must call them.
    pub(crate) fn overdue(&self, now: Nanos) -> Vec<Waker> {
        if now < self.next_due() {
            return Vec::new();
        }
        let mut waiting = self.lock();
        let (overdue, rest) =
            core::mem::take(&mut waiting.tasks).into_iter().partition(|(_, (_, deadline))| *deadline <= now);
        waiting.tasks = rest;
        let earliest = waiting.tasks.values().map(|(_, deadline)| *deadline).min().unwrap_or(Nanos::NEVER);
        self.earliest.store(earliest.0, Ordering::Relaxed);
        let overdue: BTreeMap<u64, (Waker, Nanos)> = overdue;
        overdue.into_values().map(|(waker, _)| waker).collect()
    }

    fn register(&self, number: Option<u64>, waker: Waker, deadline: Nanos) -> u64 {
        let mut waiting = self.lock();
        let number = number.unwrap_or(waiting.next);
        waiting.next = waiting.next.max(number + 1);
        let old = waiting.tasks.insert(number, (waker, deadline));
        self.earliest.store(self.next_due().min(deadline).0, Ordering::Relaxed);
        drop(waiting);
        // A waker is code of the program, which must not run under the lock.
        drop(old);
        number
    }

    fn leave(&self, number: u64) {
        let left = self.lock().tasks.remove(&number);
        drop(left);
    }
}

/// A future that ends when `state` returns a value, or with `None` at its deadline.
#[derive(Debug)]
pub(crate) struct UntilState<'h, F> {
    host: &'h std::sync::Arc<NodeHost>,
    state: F,
    deadline: Nanos,
    /// Number of the task after its first poll.
    number: Option<u64>,
}

impl<'h, F> UntilState<'h, F> {
    pub(crate) const fn new(host: &'h std::sync::Arc<NodeHost>, deadline: Nanos, state: F) -> Self {
        Self { host, state, deadline, number: None }
    }
}

impl<F> Unpin for UntilState<'_, F> {}

impl<T, F: FnMut() -> Option<T>> Future for UntilState<'_, F> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        if let Some(found) = (this.state)() {
            return Poll::Ready(Some(found));
        }
        if this.host.now() >= this.deadline {
            return Poll::Ready(None);
        }
        let number = this.host.events.tasks.register(this.number, context.waker().clone(), this.deadline);
        this.number = Some(number);
        // The serving thread sleeps no longer than until the deadline.
        this.host.expects_responses();
        // The state may have changed before the task was registered.
        (this.state)().map_or(Poll::Pending, |found| Poll::Ready(Some(found)))
    }
}

impl<F> Drop for UntilState<'_, F> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.host.events.tasks.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_end_waits_in_their_order() {
        let tasks = StateTasks::default();
        assert_eq!(tasks.next_due(), Nanos::NEVER);
        let [late, early] = [30, 10].map(|at| tasks.register(None, Waker::noop().clone(), Nanos(at)));
        assert_eq!(tasks.next_due(), Nanos(10));
        assert!(tasks.overdue(Nanos(9)).is_empty());
        assert_eq!(tasks.overdue(Nanos(10)).len(), 1);
        assert_eq!(tasks.next_due(), Nanos(30));
        tasks.leave(early);
        tasks.leave(late);
        assert!(tasks.overdue(Nanos(30)).is_empty());
        assert_eq!(tasks.next_due(), Nanos::NEVER);
    }

    #[test]
    fn a_task_that_is_polled_again_has_one_waker() {
        let tasks = StateTasks::default();
        let number = tasks.register(None, Waker::noop().clone(), Nanos(5));
        assert_eq!(tasks.register(Some(number), Waker::noop().clone(), Nanos(5)), number);
        assert_ne!(tasks.register(None, Waker::noop().clone(), Nanos(5)), number);
        assert_eq!(tasks.all().len(), 2);
        assert!(tasks.all().is_empty());
    }
}

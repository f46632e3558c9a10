//! Guard thread for threads that made themselves real-time: it lowers a thread that runs too long without checking its budget.
//!
//! The guard has a higher real-time priority than the watched threads, if permitted. It checks ten times a second while one of
//! them runs, and once a second otherwise.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::time::ClockId;
use pronto_sched_policy::policy::caps::THREAD;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sync::atomic::Ordering;

use crate::fifo::{PRIORITY, Raised, now, read};
use crate::schedule::{CALLER, Class, schedule};

/// Intervals between two checks while a watched thread runs (`BUSY`) and while none does (`IDLE`).
const BUSY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(1);

/// Time that a raised thread may run beyond its share before the guard lowers it: two full budgets, as its own check comes late.
const GRACE: Nanos = Nanos::from_millis(20);

/// The guard; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    watched: Vec<Weak<Raised>>,
    stopping: bool,
}

/// CPU time of a thread at the last check, and the time of that check.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ran: Nanos,
    at: Nanos,
}

impl Guard {
    pub(crate) fn start() -> Result<Self, Errno> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pronto-guard".into()).spawn(move || theirs.run());
        let refused = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN));
        Ok(Self { shared, thread: Some(thread.map_err(refused)?) })
    }

    /// Watches a thread until it ends.
    pub(crate) fn watch(&self, thread: &Arc<Raised>) {
        let mut state = self.shared.lock();
        state.watched.retain(|thread| thread.strong_count() > 0);
        state.watched.push(Arc::downgrade(thread));
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The result does not matter: no watched thread is left.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The list of threads is valid even if its last user panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // If this is refused, the guard runs in the share that the kernel leaves to ordinary threads.
        let _ordinary = schedule(CALLER, Class::Fifo(PRIORITY + 1));
        let mut seen = BTreeMap::new();
        let mut pause = BUSY;
        loop {
            let state = self.lock();
            if state.stopping {
                return;
            }
            let (state, _) = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            let threads: Vec<_> = state.watched.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            seen.retain(|known, _| threads.iter().any(|thread| thread.thread == *known));
            let ran = threads.iter().filter(|thread| check(thread, &mut seen)).count();
            pause = if ran > 0 { BUSY } else { IDLE };
        }
    }
}

/// Lowers the thread if it ran too much. Returns whether it ran at all.
fn check(thread: &Raised, seen: &mut BTreeMap<i32, Seen>) -> bool {
    let current = Seen { ran: read(clock_of(thread.thread)), at: now() };
    let Some(before) = seen.insert(thread.thread, current) else { return true };
    let ran = current.ran.since(before.ran);
    if is_too_much(ran, current.at.since(before.at)) && thread.is_raised.swap(false, Ordering::Relaxed) {
        // An error means that the thread has ended. Its own meter charges it for all of this time.
        let _gone = schedule(thread.thread, Class::Normal);
    }
    ran > Nanos::ZERO
}

fn is_too_much(ran: Nanos, within: Nanos) -> bool {
    ran > Nanos(THREAD.of(within.0)).after(GRACE)
}

/// Returns the clock of another thread's CPU time, as the kernel numbers them (`linux/posix-timers.h`).
const fn clock_of(thread: i32) -> ClockId {
    const PER_THREAD: i32 = 4;
    const RUN_TIME: i32 = 2;
    ClockId::from_raw((!thread << 3) | PER_THREAD | RUN_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::gettid;
    use pronto_sync::atomic::AtomicBool;

    #[test]
    fn the_clock_number_is_that_of_the_threads_cpu_time() {
        let before = read(clock_of(gettid().as_raw()));
        let own = read(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let after = read(clock_of(gettid().as_raw()));
        assert!(before > Nanos::ZERO && before <= own && own <= after);
    }

    /// Shows: operations.fifo
    #[test]
    fn only_a_thread_that_exceeds_its_share_is_lowered() {
        let thread = Raised { thread: gettid().as_raw(), is_raised: AtomicBool::new(true) };
        let mut seen = BTreeMap::new();
        assert!(check(&thread, &mut seen));
        check(&thread, &mut seen);
        assert!(thread.is_raised.load(Ordering::Relaxed), "it ran less than its share");
        // As if no time passed while it runs.
        let begun = Seen { at: Nanos::NEVER, ..seen[&thread.thread] };
        while read(clock_of(thread.thread)).since(begun.ran) <= GRACE {}
        seen.insert(thread.thread, begun);
        assert!(check(&thread, &mut seen));
        assert!(!thread.is_raised.load(Ordering::Relaxed), "it ran more than its share");
        assert!(is_too_much(Nanos::from_millis(31), Nanos::from_millis(100)));
        assert!(!is_too_much(Nanos::from_millis(29), Nanos::from_millis(100)));
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let guard = Guard::start().unwrap();
        guard.watch(&Arc::new(Raised { thread: gettid().as_raw(), is_raised: AtomicBool::new(false) }));
        drop(guard);
    }
}

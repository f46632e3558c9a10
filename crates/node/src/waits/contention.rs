//! Contention: whether the threads of this node may poll while they wait. All of them share the evidence.
//!
//! A polling thread reports each polling phase that did not succeed within its first polls. If the report has a suspiciously long time
//! between two polls, a system call distinguishes a preemption from an interrupt and from a slow hypervisor. In addition, at
//! most every 5 ms, the thread reads from the kernel how long it was runnable without a CPU, because most of the time that other
//! threads take from it passes while it does not poll. At the end of a pause, a thread that has slept in its waits reads this before
//! polling is tried again, which shows whether it was woken late.

use core::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::sync::Mutex;

use nix::sys::resource::{UsageWho, getrusage};
use pronto_core::executor::Polled;
use pronto_core::{Clock, Nanos};
use pronto_sched_policy::policy::contention::{AWAY, Contention, Poll, Verdict, waited_for_cpu};
use pronto_sched_policy::policy::time::Nanos as PolicyNanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Involuntary context switches of this thread at its last check.
    static PREEMPTIONS: Cell<i64> = const { Cell::new(0) };
    /// Scheduling times of this thread at its last reading, and the time of that reading.
    static LAST_SCHED_TIMES: Cell<Option<(Nanos, SchedTimes)>> = const { Cell::new(None) };
}

/// Least time between two readings of a thread's scheduling times. Over one such interval, [`AWAY`] is exactly the share of the time,
/// a tenth, from which on waiting for a CPU counts as evidence.
const ASKED: Nanos = Nanos::from_millis(5);
/// Age from which the previous reading is not used any more.
const STALE: Nanos = Nanos::from_millis(200);

/// Evidence of contention, shared by all threads of a node.
#[derive(Debug)]
pub(crate) struct ContentionEvidence {
    contention: Mutex<Contention>,
    /// Whether the last verdict of `contention` was to sleep. It stays set when the pause is over, until a thread asks.
    sleeps: AtomicBool,
    /// Whether a trial is in progress, in which successful polls must be reported, too.
    tries: AtomicBool,
    /// Whether there are more nodes on this host, each of which may poll, than CPUs.
    many_nodes: AtomicBool,
}

/// Reason why adaptive waits sleep immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentionCause {
    /// There are more nodes on this host, not counting visitors, than CPUs that this process may use.
    Nodes,
    /// Polling threads were preempted, or were runnable without a CPU.
    Preempted {
        /// Number of preemptions among the last outcomes.
        bad: u32,
        /// Number of outcomes, at most eight.
        of: u8,
        /// Pause after the last preemption until polling is tried again.
        pause: Nanos,
    },
}

impl ContentionEvidence {
    pub(crate) fn new() -> Self {
        let (sleeps, tries) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { contention: Mutex::new(Contention::NEW), sleeps, tries, many_nodes: AtomicBool::new(false) }
    }

    /// Compares the number of known nodes on this host with the number of CPUs.
    pub(crate) fn count(&self, nodes: usize, cpus: usize) {
        self.many_nodes.store(nodes > cpus, Ordering::Relaxed);
    }

    /// Returns whether a thread that is about to wait may poll for a bounded time. Reads the clock only if the last verdict was to sleep.
    #[inline]
    pub(crate) fn may_poll(&self, clock: &impl Clock) -> bool {
        // SYNC: flags that order nothing; a thread that reads an old value waits once more as before.
        if self.many_nodes.load(Ordering::Relaxed) {
            return false;
        }
        !self.sleeps.load(Ordering::Relaxed) || self.ask(clock)
    }

    #[cold]
    fn ask(&self, clock: &impl Clock) -> bool {
        let now = clock.now();
        let tries = |contention: Contention| contention.before_wait(of_policy(now));
        match self.update(tries) {
            Some(Verdict::Sleeps) => return false,
            Some(Verdict::Polls) | None => return true,
            Some(Verdict::Tries) => {}
        }
        // The trial fails immediately if the thread was kept waiting for a CPU although it did not poll.
        let away = waited_lately(now);
        let poll = Poll { lasted: PolicyNanos::ZERO, away };
        self.update(|contention| contention.polled(&poll, of_policy(now))) != Some(Verdict::Sleeps)
    }

    /// Records a polling phase of the calling thread.
    pub(crate) fn polled(&self, polled: Polled, clock: &impl Clock) {
        let longest = of_policy(polled.longest);
        let now = clock.now();
        let away = if longest >= AWAY && was_preempted() { longest } else { waited_lately(now) };
        if away == PolicyNanos::ZERO && !self.tries.load(Ordering::Relaxed) {
            return;
        }
        let poll = Poll { lasted: of_policy(polled.lasted), away };
        self.update(|contention| contention.polled(&poll, of_policy(now)));
    }

    /// Updates the evidence and returns the new verdict. Returns `None` if another thread is updating it, whose evidence serves as well.
    fn update(&self, with: impl FnOnce(Contention) -> Contention) -> Option<Verdict> {
        let mut contention = self.contention.try_lock().ok()?;
        *contention = with(*contention);
        let verdict = contention.verdict();
        self.sleeps.store(verdict == Verdict::Sleeps, Ordering::Relaxed);
        self.tries.store(verdict == Verdict::Tries, Ordering::Relaxed);
        Some(verdict)
    }

    /// Returns why adaptive waits sleep immediately, if they do.
    pub(crate) fn contention(&self) -> Option<ContentionCause> {
        if self.many_nodes.load(Ordering::Relaxed) {
            return Some(ContentionCause::Nodes);
        }
        let contention = *self.contention.lock().expect("no holder panics");
        let (bad, of) = contention.outcomes();
        let pause = Nanos(contention.pause().0);
        (contention.verdict() == Verdict::Sleeps).then_some(ContentionCause::Preempted { bad, of, pause })
    }
}

impl core::fmt::Display for ContentionCause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Nodes => f.write_str("there are more nodes on this host than CPUs"),
            Self::Preempted { bad, of, pause } => {
                write!(
                    f,
                    "other threads wanted the CPUs in {bad} of {of} trials to poll; tried again after {} ms",
                    pause.0 / 1_000_000
                )
            }
        }
    }
}

/// Returns whether the calling thread was preempted since its last check. Costs a system call.
fn was_preempted() -> bool {
    let now = getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches());
    PREEMPTIONS.replace(now) < now
}

/// Scheduling times of a thread since its start: the first two numbers of `/proc/thread-self/schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SchedTimes {
    /// Time on a CPU.
    ran: PolicyNanos,
    /// Time runnable without a CPU.
    waited: PolicyNanos,
}

impl SchedTimes {
    /// Reads the times of the calling thread. Returns `None` if the kernel does not report them.
    fn read() -> Option<Self> {
        let mut bytes = [0; 96];
        let len = File::open("/proc/thread-self/schedstat").ok()?.read(&mut bytes).ok()?;
        Self::parse(core::str::from_utf8(&bytes[..len]).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().map(PolicyNanos));
        Some(Self { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }
}

/// Returns how long the calling thread was runnable without a CPU since its last reading, if that is evidence, otherwise zero. Costs
/// four system calls, unless the last reading is less than [`ASKED`] ago.
fn waited_lately(now: Nanos) -> PolicyNanos {
    let before = LAST_SCHED_TIMES.get();
    if before.is_some_and(|(before_wait, _)| now.since(before_wait) < ASKED) {
        return PolicyNanos::ZERO;
    }
    let times = SchedTimes::read();
    // Preemptions up to now must not be attributed to the next polling phase.
    was_preempted();
    LAST_SCHED_TIMES.set(times.map(|times| (now, times)));
    waited_since(before, now, times)
}

fn waited_since(before: Option<(Nanos, SchedTimes)>, now: Nanos, times: Option<SchedTimes>) -> PolicyNanos {
    match (before, times) {
        (Some((before_wait, before)), Some(times)) if now.since(before_wait) < STALE => {
            waited_for_cpu(times.ran.since(before.ran), times.waited.since(before.waited))
        }
        _ => PolicyNanos::ZERO,
    }
}

const fn of_policy(nanos: Nanos) -> PolicyNanos {
    PolicyNanos(nanos.0)
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::contention::{FIRST, TRIAL};
    use pronto_sync::atomic::AtomicU64;

    use super::*;

    /// A clock that stands still until it is set.
    struct Set(AtomicU64);

    impl Set {
        fn at(now: Nanos) -> Self {
            Self(AtomicU64::new(now.0))
        }
    }

    impl Clock for Set {
        fn now(&self) -> Nanos {
            Nanos(self.0.load(Ordering::Relaxed))
        }
    }

    fn away(long: PolicyNanos) -> Polled {
        Polled { lasted: Nanos(long.0), longest: Nanos(long.0) }
    }

    /// Makes the next check of this thread find a preemption, whatever the machine does.
    fn preempted() {
        PREEMPTIONS.set(-1);
    }

    /// Shows: operations.contention
    #[test]
    fn one_preempted_poll_makes_all_threads_sleep_until_a_trial() {
        let (waits, clock) = (ContentionEvidence::new(), Set::at(Nanos(5)));
        assert!(waits.may_poll(&clock));
        preempted();
        waits.polled(away(AWAY), &clock);
        assert!(!waits.may_poll(&clock));
        let pause = Nanos(FIRST.0);
        assert_eq!(waits.contention(), Some(ContentionCause::Preempted { bad: 1, of: 1, pause }));
        clock.0.store((Nanos(5) + pause).0, Ordering::Relaxed);
        assert!(waits.may_poll(&clock), "a trial");
        assert_eq!(waits.contention(), None);
        preempted();
        waits.polled(away(AWAY), &clock);
        assert!(!waits.may_poll(&clock), "the trial failed");
        let text = waits.contention().map(|contention| contention.to_string());
        assert_eq!(
            text.as_deref(),
            Some("other threads wanted the CPUs in 2 of 2 trials to poll; tried again after 80 ms")
        );
    }

    #[test]
    fn polls_without_a_preemption_end_a_trial_and_are_not_recorded_otherwise() {
        let (waits, clock) = (ContentionEvidence::new(), Set::at(Nanos(5)));
        let undisturbed = Polled { lasted: Nanos(TRIAL.0), longest: Nanos::ZERO };
        let poll = || {
            // The kernel is not read, whose times depend on the load of the machine.
            LAST_SCHED_TIMES
                .set(Some((clock.now(), SchedTimes { ran: PolicyNanos::ZERO, waited: PolicyNanos::ZERO })));
            waits.polled(undisturbed, &clock);
            waits.contention.lock().unwrap().outcomes()
        };
        assert_eq!(poll(), (0, 0), "outside of a trial");
        preempted();
        waits.polled(away(AWAY), &clock);
        clock.0.fetch_add(FIRST.0, Ordering::Relaxed);
        LAST_SCHED_TIMES.set(None);
        assert!(waits.may_poll(&clock), "a trial");
        assert_eq!(poll(), (1, 2), "the trial has succeeded");
        assert_eq!(poll(), (1, 2), "the trial is over");
    }

    #[test]
    fn scheduling_times_are_read_from_the_kernel() {
        let times = |ran, waited| SchedTimes { ran: PolicyNanos(ran), waited: PolicyNanos(waited) };
        assert_eq!(SchedTimes::parse("12 345 6\n"), Some(times(12, 345)));
        for bad in ["", "12", "12 x 3", "-1 2 3"] {
            assert_eq!(SchedTimes::parse(bad), None, "{bad:?}");
        }
        assert!(SchedTimes::read().is_some(), "this kernel reports the times");
    }

    #[test]
    fn readings_that_are_too_recent_or_too_old_are_no_evidence() {
        let times = |ran, waited| SchedTimes { ran: PolicyNanos(ran), waited: PolicyNanos(waited) };
        let before = Some((Nanos::from_millis(7), times(1_000, 1_000)));
        let after = Some(times(9_000_000, 1_001_000));
        let waited = |span| waited_since(before, Nanos::from_millis(7) + span, after);
        assert_eq!(waited(ASKED), PolicyNanos(1_000_000));
        assert_eq!(waited(STALE), PolicyNanos::ZERO);
        assert_eq!(waited_since(None, ASKED, after), PolicyNanos::ZERO);
        assert_eq!(waited_since(before, Nanos::from_millis(7) + ASKED, None), PolicyNanos::ZERO);
        LAST_SCHED_TIMES.set(before);
        assert_eq!(waited_lately(Nanos::from_millis(7)), PolicyNanos::ZERO);
        assert_eq!(LAST_SCHED_TIMES.get(), before, "the kernel was not read");
    }

    #[test]
    fn short_times_between_polls_are_no_evidence() {
        let (waits, clock) = (ContentionEvidence::new(), Set::at(Nanos::ZERO));
        LAST_SCHED_TIMES
            .set(Some((Nanos::ZERO, SchedTimes { ran: PolicyNanos::ZERO, waited: PolicyNanos::ZERO })));
        preempted();
        waits.polled(away(PolicyNanos(AWAY.0 - 1)), &clock);
        assert!(waits.may_poll(&clock));
        assert_eq!(PREEMPTIONS.get(), -1, "the kernel was not asked");
    }

    /// Shows: operations.nodes-here
    #[test]
    fn more_nodes_than_cpus_are_too_many() {
        let (waits, clock) = (ContentionEvidence::new(), Set::at(Nanos::ZERO));
        waits.count(3, 2);
        assert!(!waits.may_poll(&clock));
        assert_eq!(waits.contention(), Some(ContentionCause::Nodes));
        waits.count(2, 2);
        assert!(waits.may_poll(&clock));
    }
}

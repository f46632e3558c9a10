//! Whether threads of this node may poll while they wait: what polls have shown, for all of them together.
//!
//! A thread that polls reports how it did when its answer was not there within the first looks. A report of a time between
//! two looks that was suspiciously long costs a system call, which tells a thread that was taken off its processor from an
//! interrupt, and from a host below that took its time. Besides, each 5 ms at most, the kernel is asked for how long the thread
//! has waited for a processor: most of the time that others take from it passes while it does not poll. At the end of a pause that is
//! asked before polling is tried again, by a thread that has slept in its waits and was woken late, or not.

use core::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::sync::Mutex;

use nix::sys::resource::{UsageWho, getrusage};
use pronto_core::executor::Polled;
use pronto_core::{Clock, Nanos};
use pronto_sched_policy::policy::crowding::{AWAY, Crowding, Poll, Verdict, waited_for_processor};
use pronto_sched_policy::policy::time::Nanos as PolicyNanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Involuntary context switches of this thread, when it last looked.
    static PREEMPTIONS: Cell<i64> = const { Cell::new(0) };
    /// How this thread had fared when the kernel was asked last, and when that was.
    static FARED: Cell<Option<(Nanos, Fared)>> = const { Cell::new(None) };
}

/// The kernel is asked how a thread fares at most so often: what is evidence of somebody else ([`AWAY`]) is then the share of the time
/// that is evidence, too.
const ASKED: Nanos = Nanos::from_millis(5);
/// What was asked longer ago says nothing of the present.
const STALE: Nanos = Nanos::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(crate) struct Waits {
    crowding: Mutex<Crowding>,
    /// What `crowding` says, but for pauses that are over.
    sleeps: AtomicBool,
    /// It says that a trial is under way: polls that end well are news.
    tries: AtomicBool,
    /// There are more nodes on this host than processors, each of which may poll.
    many_nodes: AtomicBool,
}

/// Why adaptive waits sleep at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// There are more nodes on this host, visitors aside, than this process may use processors.
    Nodes,
    /// Threads that polled were taken off their processors by others, or waited for one besides.
    Preempted {
        /// Of the last judgements, at most eight: how many found it so.
        bad: u32,
        /// All of them.
        of: u8,
        /// From the last one until polling is tried again.
        pause: Nanos,
    },
}

impl Waits {
    pub(crate) fn new() -> Self {
        let (sleeps, tries) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { crowding: Mutex::new(Crowding::NEW), sleeps, tries, many_nodes: AtomicBool::new(false) }
    }

    /// How many nodes are known on this host, and how many processors there are.
    pub(crate) fn count(&self, nodes: usize, processors: usize) {
        self.many_nodes.store(nodes > processors, Ordering::Relaxed);
    }

    /// Whether a thread that is about to wait may poll for a bounded time. Reads the clock only where it may not.
    #[inline]
    pub(crate) fn may_poll(&self, clock: &impl Clock) -> bool {
        // SYNC: flags that order nothing; who reads an old one waits once more as before.
        if self.many_nodes.load(Ordering::Relaxed) {
            return false;
        }
        !self.sleeps.load(Ordering::Relaxed) || self.ask(clock)
    }

    #[cold]
    fn ask(&self, clock: &impl Clock) -> bool {
        let now = clock.now();
        let tries = |crowding: Crowding| crowding.asked(of_policy(now));
        match self.update(tries) {
            Some(Verdict::Sleeps) => return false,
            Some(Verdict::Polls) | None => return true,
            Some(Verdict::Tries) => {}
        }
        // The trial is over before it began where the thread is kept waiting all the same.
        let away = waited_lately(now);
        let poll = Poll { lasted: PolicyNanos::ZERO, away };
        self.update(|crowding| crowding.polled(&poll, of_policy(now))) != Some(Verdict::Sleeps)
    }

    /// A thread has polled for a bounded time.
    pub(crate) fn polled(&self, polled: Polled, clock: &impl Clock) {
        let longest = of_policy(polled.longest);
        let now = clock.now();
        let away = if longest >= AWAY && was_preempted() { longest } else { waited_lately(now) };
        if away == PolicyNanos::ZERO && !self.tries.load(Ordering::Relaxed) {
            return;
        }
        let poll = Poll { lasted: of_policy(polled.lasted), away };
        self.update(|crowding| crowding.polled(&poll, of_policy(now)));
    }

    /// None if another thread is at it: what it is told is as good.
    fn update(&self, with: impl FnOnce(Crowding) -> Crowding) -> Option<Verdict> {
        let mut crowding = self.crowding.try_lock().ok()?;
        *crowding = with(*crowding);
        let verdict = crowding.verdict();
        self.sleeps.store(verdict == Verdict::Sleeps, Ordering::Relaxed);
        self.tries.store(verdict == Verdict::Tries, Ordering::Relaxed);
        Some(verdict)
    }

    /// Why adaptive waits sleep at once, if they do.
    pub(crate) fn crowded(&self) -> Option<Crowded> {
        if self.many_nodes.load(Ordering::Relaxed) {
            return Some(Crowded::Nodes);
        }
        let crowding = *self.crowding.lock().expect("no holder panics");
        let (bad, of) = crowding.outcomes();
        let pause = Nanos(crowding.pause().0);
        (crowding.verdict() == Verdict::Sleeps).then_some(Crowded::Preempted { bad, of, pause })
    }
}

impl core::fmt::Display for Crowded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Nodes => f.write_str("there are more nodes here than processors"),
            Self::Preempted { bad, of, pause } => {
                write!(
                    f,
                    "others wanted the processors in {bad} of {of} trials to poll, tried again every {} ms",
                    pause.0 / 1_000_000
                )
            }
        }
    }
}

/// Whether the calling thread was taken off its processor since it last asked. Costs a system call.
fn was_preempted() -> bool {
    let now = getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches());
    PREEMPTIONS.replace(now) < now
}

/// How a thread has fared since its start: the first two numbers of `/proc/thread-self/schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fared {
    /// For how long it had a processor.
    ran: PolicyNanos,
    /// For how long it wanted one and had none.
    waited: PolicyNanos,
}

impl Fared {
    /// None where the kernel does not say.
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

/// For how long the calling thread has waited for a processor since it last asked, if that is evidence. Costs four system calls,
/// where it has not asked lately.
fn waited_lately(now: Nanos) -> PolicyNanos {
    let before = FARED.get();
    if before.is_some_and(|(asked, _)| now.since(asked) < ASKED) {
        return PolicyNanos::ZERO;
    }
    let fared = Fared::read();
    // What had taken it off its processor until now does not count as what does so next.
    was_preempted();
    FARED.set(fared.map(|fared| (now, fared)));
    waited_since(before, now, fared)
}

fn waited_since(before: Option<(Nanos, Fared)>, now: Nanos, fared: Option<Fared>) -> PolicyNanos {
    match (before, fared) {
        (Some((asked, before)), Some(fared)) if now.since(asked) < STALE => {
            waited_for_processor(fared.ran.since(before.ran), fared.waited.since(before.waited))
        }
        _ => PolicyNanos::ZERO,
    }
}

const fn of_policy(nanos: Nanos) -> PolicyNanos {
    PolicyNanos(nanos.0)
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::crowding::FIRST;
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

    /// Has this thread look preempted to itself, whatever the machine does.
    fn preempted() {
        PREEMPTIONS.set(-1);
    }

    #[test]
    fn one_poll_that_was_preempted_has_all_sleep_until_a_trial() {
        let (waits, clock) = (Waits::new(), Set::at(Nanos(5)));
        assert!(waits.may_poll(&clock));
        preempted();
        waits.polled(away(AWAY), &clock);
        assert!(!waits.may_poll(&clock));
        let pause = Nanos(FIRST.0);
        assert_eq!(waits.crowded(), Some(Crowded::Preempted { bad: 1, of: 1, pause }));
        clock.0.store((Nanos(5) + pause).0, Ordering::Relaxed);
        assert!(waits.may_poll(&clock), "a trial");
        assert_eq!(waits.crowded(), None);
        preempted();
        waits.polled(away(AWAY), &clock);
        assert!(!waits.may_poll(&clock), "it failed");
        let text = waits.crowded().map(|crowded| crowded.to_string());
        assert_eq!(
            text.as_deref(),
            Some("others wanted the processors in 2 of 2 trials to poll, tried again every 80 ms")
        );
    }

    #[test]
    fn how_a_thread_fares_is_read_from_the_kernel() {
        let fared = |ran, waited| Fared { ran: PolicyNanos(ran), waited: PolicyNanos(waited) };
        assert_eq!(Fared::parse("12 345 6\n"), Some(fared(12, 345)));
        for bad in ["", "12", "12 x 3", "-1 2 3"] {
            assert_eq!(Fared::parse(bad), None, "{bad:?}");
        }
        assert!(Fared::read().is_some(), "this kernel says so");
    }

    #[test]
    fn what_was_asked_too_lately_or_too_long_ago_is_no_evidence() {
        let fared = |ran, waited| Fared { ran: PolicyNanos(ran), waited: PolicyNanos(waited) };
        let before = Some((Nanos::from_millis(7), fared(1_000, 1_000)));
        let after = Some(fared(9_000_000, 1_001_000));
        let waited = |span| waited_since(before, Nanos::from_millis(7) + span, after);
        assert_eq!(waited(ASKED), PolicyNanos(1_000_000));
        assert_eq!(waited(STALE), PolicyNanos::ZERO);
        assert_eq!(waited_since(None, ASKED, after), PolicyNanos::ZERO);
        assert_eq!(waited_since(before, Nanos::from_millis(7) + ASKED, None), PolicyNanos::ZERO);
        FARED.set(before);
        assert_eq!(waited_lately(Nanos::from_millis(7)), PolicyNanos::ZERO);
        assert_eq!(FARED.get(), before, "nobody has asked");
    }

    #[test]
    fn short_times_between_looks_are_no_evidence() {
        let (waits, clock) = (Waits::new(), Set::at(Nanos::ZERO));
        FARED.set(Some((Nanos::ZERO, Fared { ran: PolicyNanos::ZERO, waited: PolicyNanos::ZERO })));
        preempted();
        waits.polled(away(PolicyNanos(AWAY.0 - 1)), &clock);
        assert!(waits.may_poll(&clock));
        assert_eq!(PREEMPTIONS.get(), -1, "nobody has looked");
    }

    #[test]
    fn more_nodes_than_processors_are_too_many() {
        let (waits, clock) = (Waits::new(), Set::at(Nanos::ZERO));
        waits.count(3, 2);
        assert!(!waits.may_poll(&clock));
        assert_eq!(waits.crowded(), Some(Crowded::Nodes));
        waits.count(2, 2);
        assert!(waits.may_poll(&clock));
    }
}

//! What waiting costs on this host, and whether there is a processor to wait on.

use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use pronto_core::Nanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Wake-ups measured.
const ROUNDS: usize = 16;
/// Bounds of what is believed: a processor that sleeps deeply, or a measurement on a busy host, says little.
const LEAST: Duration = Duration::from_micros(5);
const MOST: Duration = Duration::from_micros(50);

/// What waking a sleeping thread costs here, measured once per process: the bound of adaptive polling, which then costs at
/// most twice the better choice. The processors that the process may use are counted with it. A program that pins its
/// threads asks before it does: a wake-up that stays on one processor is another thing.
pub fn wake_up_cost() -> Nanos {
    static COST: OnceLock<Nanos> = OnceLock::new();
    *COST.get_or_init(|| {
        let _counted = processors();
        let cost = measure().clamp(LEAST, MOST);
        tracing::debug!(?cost, "wake-up cost");
        Nanos(u64::try_from(cost.as_nanos()).expect("bounded above"))
    })
}

/// Median time from unparking a thread to its running, both ways halved.
fn measure() -> Duration {
    let main = std::thread::current();
    let over = Arc::new(AtomicBool::new(false));
    let turn = Arc::new(AtomicBool::new(false));
    let (their_over, their_turn) = (Arc::clone(&over), Arc::clone(&turn));
    let partner = std::thread::Builder::new().name("pronto-calibrate".into()).spawn(move || {
        while !their_over.load(Ordering::Acquire) {
            std::thread::park();
            if their_turn.swap(false, Ordering::AcqRel) {
                main.unpark();
            }
        }
    });
    let Ok(partner) = partner else { return MOST };
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            #[expect(clippy::disallowed_methods, reason = "the node is where the clock is read")]
            let begun = Instant::now();
            turn.store(true, Ordering::Release);
            partner.thread().unpark();
            while turn.load(Ordering::Acquire) && begun.elapsed() < Duration::from_millis(20) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            begun.elapsed() / 2
        })
        .collect();
    over.store(true, Ordering::Release);
    partner.thread().unpark();
    // A partner that panicked has measured nothing worse than what the others say.
    let _ended = partner.join();
    times.sort_unstable();
    times[ROUNDS / 2]
}

/// Processors that this process may use. Counted once: the count reads a dozen files where there are control groups, and
/// is asked for with every tick.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Evidence that there are more threads that want to run than processors.
#[derive(Debug, Default)]
pub(crate) struct Oversubscription {
    sampled: Option<Nanos>,
    preempted: i64,
    until: Nanos,
}

/// Who wants to know whether the host is oversubscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Everybody spins or sleeps at once, whatever the answer.
    Nobody,
    /// Somebody who waits adaptively.
    Adaptive,
}

/// Samples are at least so far apart.
const SAMPLE: Nanos = Nanos::from_millis(10);
/// How long evidence holds.
const HOLDS: Nanos = Nanos::from_secs(1);
/// Preemptions between two samples that are no accident.
const PREEMPTIONS: i64 = 2;

impl Oversubscription {
    /// Whether to treat the host as oversubscribed from now on. `processes` is how many nodes this one knows of on this
    /// host, itself included: each may poll. Evidence is taken only while it is of use: it costs a system call.
    pub(crate) fn sample(&mut self, now: Nanos, processes: usize, of_use: Use) -> bool {
        if processes > processors() {
            return true;
        }
        if of_use == Use::Nobody {
            self.sampled = None;
            return now < self.until;
        }
        if self.sampled.is_none_or(|sampled| now.since(sampled) >= SAMPLE) {
            let preempted = own_preemptions();
            if self.sampled.is_some() && preempted - self.preempted >= PREEMPTIONS {
                self.until = now + HOLDS;
            }
            (self.sampled, self.preempted) = (Some(now), preempted);
        }
        now < self.until
    }
}

/// How often threads of this process were taken off a processor against their will.
fn own_preemptions() -> i64 {
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)
        .map_or(0, |usage| usage.involuntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_bounded() {
        let cost = wake_up_cost();
        assert!(cost.0 >= 5_000 && cost.0 <= 50_000, "{cost:?}");
    }

    #[test]
    fn more_nodes_than_processors_is_oversubscribed() {
        let mut evidence = Oversubscription::default();
        assert!(evidence.sample(Nanos::ZERO, processors() + 1, Use::Nobody));
    }

    #[test]
    fn without_use_no_evidence_is_taken_and_what_was_before_counts_for_nothing_later() {
        let mut evidence =
            Oversubscription { sampled: Some(Nanos::ZERO), preempted: -1_000, until: Nanos::ZERO };
        assert!(!evidence.sample(SAMPLE, 1, Use::Nobody));
        assert_eq!((evidence.sampled, evidence.preempted), (None, -1_000));
        assert!(!evidence.sample(SAMPLE, 1, Use::Adaptive), "a first sample has nothing to compare with");
        assert_eq!(evidence.sampled, Some(SAMPLE));
        evidence.preempted -= PREEMPTIONS;
        assert!(evidence.sample(SAMPLE + SAMPLE, 1, Use::Adaptive));
    }
}

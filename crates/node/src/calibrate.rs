//! What waiting costs on this host, and how many processors there are to wait on.

use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pronto_sched_policy::policy::spin;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Wake-ups measured.
const ROUNDS: usize = 16;
/// Between two of them: the other thread sleeps again by then.
const SETTLES: Duration = Duration::from_micros(50);
/// A wake-up that takes so long says that the host is busy, and no more.
const LOST: Duration = Duration::from_millis(5);

/// What waking a sleeping thread costs here, measured once per process: the bound of adaptive polling, which then costs at
/// most twice the better choice. The processors that the process may use are counted with it. A program that pins its
/// threads asks before it does: a wake-up that stays on one processor is another thing.
pub fn wake_up_cost() -> pronto_core::Nanos {
    static COST: OnceLock<pronto_core::Nanos> = OnceLock::new();
    *COST.get_or_init(|| {
        let _counted = cpus();
        let measured = measure();
        let nanos =
            |span: Duration| spin::believed(Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        let cost = measured.map_or(spin::BUSY_WAIT, nanos);
        tracing::debug!(?measured, ?cost, "wake-up cost");
        pronto_core::Nanos(cost.0)
    })
}

/// Median time from unparking a thread on another processor to its running. The thread that unparks polls for it, as one that
/// sleeps would be moved to the processor that it is woken from, and what is measured were a switch within one.
/// None if nobody can be woken to measure it.
fn measure() -> Option<Duration> {
    if cpus() == 1 {
        // Who polls keeps it from those that are waited for: as little as can be.
        return Some(Duration::ZERO);
    }
    let over = Arc::new(AtomicBool::new(false));
    let turn = Arc::new(AtomicBool::new(false));
    let (their_over, their_turn) = (Arc::clone(&over), Arc::clone(&turn));
    let measures_on = here();
    let partner = std::thread::Builder::new().name("pronto-calibrate".into()).spawn(move || {
        keep_off(measures_on);
        while !their_over.load(Ordering::Acquire) {
            std::thread::park();
            their_turn.store(false, Ordering::Release);
        }
    });
    let partner = partner.ok()?;
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            std::thread::park_timeout(SETTLES);
            turn.store(true, Ordering::Release);
            #[expect(clippy::disallowed_methods, reason = "the node is where the clock is read")]
            let begun = Instant::now();
            partner.thread().unpark();
            while turn.load(Ordering::Acquire) && begun.elapsed() < LOST {
                core::hint::spin_loop();
            }
            begun.elapsed()
        })
        .collect();
    over.store(true, Ordering::Release);
    partner.thread().unpark();
    // A partner that panicked has measured nothing worse than what the others say.
    let _ended = partner.join();
    times.sort_unstable();
    Some(times[ROUNDS / 2])
}

/// The processor that the calling thread runs on.
fn here() -> Option<usize> {
    nix::sched::sched_getcpu().ok()
}

/// Keeps the calling thread off a processor, if there is another one for it.
fn keep_off(cpu: Option<usize>) {
    let (Some(cpu), Ok(mut mask)) = (cpu, sched_getaffinity(Pid::from_raw(0))) else { return };
    if cpus() > 1 && mask.unset(cpu).is_ok() {
        // Refused, it is measured where it is.
        let _refused = sched_setaffinity(Pid::from_raw(0), &mask);
    }
}

/// Processors that this process may use. Counted once: the count reads a dozen files where there are control groups, and
/// is asked for with every tick.
pub(crate) fn cpus() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_bounded() {
        let cost = wake_up_cost();
        assert!(cost.0 >= 5_000 && cost.0 <= 50_000, "{cost:?}");
    }
}

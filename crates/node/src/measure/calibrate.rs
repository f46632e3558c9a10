//! The cost of a wake-up on this host, and the number of CPUs that this process may use.

use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pronto_sched_policy::policy::spin;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Number of measured wake-ups.
const ROUNDS: usize = 16;
/// Interval between two of them, after which the other thread sleeps again.
const SETTLE_TIME: Duration = Duration::from_micros(50);
/// Time after which a wake-up is given up. Such a wake-up shows only that the host is busy.
const GIVE_UP: Duration = Duration::from_millis(5);

/// Returns the cost of waking a sleeping thread on this host, measured once per process. It is the polling limit of adaptive waits,
/// which then cost at most twice the better choice. The first call also counts the CPUs that the process may use. A program that pins its
/// threads should call this before, because a wake-up within one CPU has a different cost.
pub fn wake_up_cost() -> pronto_core::Nanos {
    static COST: OnceLock<pronto_core::Nanos> = OnceLock::new();
    *COST.get_or_init(|| {
        let _counted = available_cpus();
        let measured = measure();
        let nanos =
            |span: Duration| spin::believed(Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        let cost = measured.map_or(spin::BUSY_WAIT, nanos);
        tracing::debug!(?measured, ?cost, "wake-up cost");
        pronto_core::Nanos(cost.0)
    })
}

/// Returns the median time from unparking a thread on another CPU until it runs. The unparking thread polls meanwhile: if it slept, the
/// scheduler would move it to the CPU of the thread that wakes it, and the result would be a context switch within one CPU. Returns
/// `None` if no second thread can be started.
fn measure() -> Option<Duration> {
    if available_cpus() == 1 {
        // On a single CPU, a polling thread blocks the thread that it waits for, so the limit is the shortest possible one.
        return Some(Duration::ZERO);
    }
    let over = Arc::new(AtomicBool::new(false));
    let turn = Arc::new(AtomicBool::new(false));
    let (their_over, their_turn) = (Arc::clone(&over), Arc::clone(&turn));
    let measuring_cpu = current_cpu();
    let partner = std::thread::Builder::new().name("pronto-calibrate".into()).spawn(move || {
        avoid_cpu(measuring_cpu);
        while !their_over.load(Ordering::Acquire) {
            std::thread::park();
            their_turn.store(false, Ordering::Release);
        }
    });
    let partner = partner.ok()?;
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            std::thread::park_timeout(SETTLE_TIME);
            turn.store(true, Ordering::Release);
            #[expect(clippy::disallowed_methods, reason = "the node is where the clock is read")]
            let begun = Instant::now();
            partner.thread().unpark();
            while turn.load(Ordering::Acquire) && begun.elapsed() < GIVE_UP {
                core::hint::spin_loop();
            }
            begun.elapsed()
        })
        .collect();
    over.store(true, Ordering::Release);
    partner.thread().unpark();
    // If the partner panicked, the remaining rounds end at the time limit and count as slow wake-ups.
    let _ended = partner.join();
    times.sort_unstable();
    Some(times[ROUNDS / 2])
}

/// Returns the CPU on which the calling thread runs.
fn current_cpu() -> Option<usize> {
    nix::sched::sched_getcpu().ok()
}

/// Removes a CPU from the affinity of the calling thread, if there is another one.
fn avoid_cpu(cpu: Option<usize>) {
    let (Some(cpu), Ok(mut mask)) = (cpu, sched_getaffinity(Pid::from_raw(0))) else { return };
    if available_cpus() > 1 && mask.unset(cpu).is_ok() {
        // If this is refused, the measurement runs on any CPU.
        let _refused = sched_setaffinity(Pid::from_raw(0), &mask);
    }
}

/// Returns the number of CPUs that this process may use. Counted once, because every tick calls this, and the count reads a dozen files
/// if there are control groups.
pub(crate) fn available_cpus() -> usize {
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

//! What waiting costs on this host, and how many processors there are to wait on.

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
pub(crate) fn processors() -> usize {
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

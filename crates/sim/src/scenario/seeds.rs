//! Running one scenario for many seeds.

use core::ops::Range;
use core::panic::AssertUnwindSafe;
use std::env;
use std::panic::{catch_unwind, resume_unwind};
use std::thread;

use pronto_sync::atomic::{AtomicU64, Ordering};

/// Interval of the seeds that are run twice.
const TWICE: u64 = 10;
/// Divisor of the number of seeds that gives the number of fresh ones.
const FRESH: u64 = 4;
/// Factor by which an unoptimised build is slower, and runs fewer seeds.
const UNOPTIMISED: u64 = 20;
/// Debug assertions say nothing about this: the simulation stage has both.
const IS_OPTIMISED: bool = !matches!(env!("PRONTO_SIM_OPT_LEVEL").as_bytes(), b"0");

/// Runs `story` once per seed, on all CPUs. Some seeds are run twice, with the same result. `usual` is the number of
/// seeds, unless `PRONTO_SIM_SEEDS` sets it. If `PRONTO_SIM_FRESH` is set, as by the test stage to a number of the date,
/// runs a quarter as many seeds from that number on, too. A failure names its seed; `PRONTO_SIM_SEED` runs that seed alone.
///
/// # Panics
/// A run fails, or its repetition has another result, or a variable is not a number.
pub fn for_each_seed(usual: u64, story: impl Fn(u64) -> u64 + Sync) {
    tell_all(range(usual), &story);
}

/// Runs `story` once per seed, like [`for_each_seed`]. If `PRONTO_SIM_SOAK` is set, as by `cargo xtask soak`, runs at
/// least `soak` seeds.
///
/// # Panics
/// A run fails, or its repetition has another result, or a variable is not a number.
pub fn for_each_seed_or_soak(usual: u64, soak: u64, story: impl Fn(u64) -> u64 + Sync) {
    let Range { start, end } = range(usual);
    let alone = number("PRONTO_SIM_SEED").is_some();
    let soaks = env::var_os("PRONTO_SIM_SOAK").is_some() && !alone;
    tell_all(start..if soaks { end.max(soak) } else { end }, &story);
}

/// Runs the seeds of the range, and fresh ones.
fn tell_all(range: Range<u64>, story: &(impl Fn(u64) -> u64 + Sync)) {
    let fresh = number("PRONTO_SIM_FRESH").filter(|_| number("PRONTO_SIM_SEED").is_none());
    let fresh = fresh.map(|first| first..first + (range.end - range.start).div_ceil(FRESH));
    tell_each(range, story);
    if let Some(fresh) = fresh {
        tell_each(fresh, story);
    }
}

fn tell_each(range: Range<u64>, story: &(impl Fn(u64) -> u64 + Sync)) {
    let next = AtomicU64::new(range.start);
    let tellers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let tell = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if !range.contains(&seed) {
                    return;
                }
                let told = catch_unwind(AssertUnwindSafe(|| tell(seed, story)));
                if told.is_err() {
                    // The other threads need not begin another run.
                    next.store(range.end, Ordering::Relaxed);
                    panic!("the scenario failed: repeat it with PRONTO_SIM_SEED={seed}");
                }
            }
        };
        let tellers: Vec<_> = (0..tellers).map(|_| scope.spawn(tell)).collect();
        for teller in tellers {
            teller.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    println!("{} seeds from {} on", range.end - range.start, range.start);
}

fn tell(seed: u64, story: &impl Fn(u64) -> u64) {
    let hash = story(seed);
    if seed.is_multiple_of(TWICE) {
        assert_eq!(hash, story(seed), "two runs with one seed differ: the scenario is not deterministic");
    }
}

fn range(usual: u64) -> Range<u64> {
    if let Some(seed) = number("PRONTO_SIM_SEED") {
        return seed..seed + 1;
    }
    let usual = if IS_OPTIMISED { usual } else { usual.div_ceil(UNOPTIMISED) };
    0..number("PRONTO_SIM_SEEDS").unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("invalid {variable} {text:?}: expected a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_and_some_twice() {
        let told = AtomicU64::new(0);
        for_each_seed(400, |seed| {
            told.fetch_add(1, Ordering::Relaxed);
            seed
        });
        let twice = |range: Range<u64>| range.filter(|seed| seed.is_multiple_of(TWICE)).count() as u64;
        let usual = range(400);
        let length = |range: &Range<u64>| range.end - range.start;
        let fresh =
            number("PRONTO_SIM_FRESH").map_or(0..0, |first| first..first + length(&usual).div_ceil(FRESH));
        let seeds = length(&usual) + length(&fresh);
        assert_eq!(told.load(Ordering::Relaxed), seeds + twice(usual) + twice(fresh));
    }

    #[test]
    fn a_scenario_that_is_not_deterministic_is_detected() {
        let chance = AtomicU64::new(0);
        let told = catch_unwind(AssertUnwindSafe(|| {
            for_each_seed(20, |_| chance.fetch_add(1, Ordering::Relaxed));
        }));
        assert!(told.is_err());
    }
}

//! Telling one story many times.

use core::ops::Range;
use core::panic::AssertUnwindSafe;
use std::env;
use std::panic::{catch_unwind, resume_unwind};
use std::thread;

use pronto_sync::atomic::{AtomicU64, Ordering};

/// One story in so many is told twice.
const TWICE: u64 = 10;
/// Without optimisation a story takes so many times longer, and so many times fewer are told.
const UNOPTIMISED: u64 = 20;

/// Tells a story once per seed, on all processors; some twice, and both times it must be the same. `usual` is how many
/// seeds, unless `PRONTO_SIM_SEEDS` says how many. A story that fails is told by its seed, which `PRONTO_SIM_SEED`
/// repeats alone.
///
/// # Panics
/// If a story fails, or differs when told again, or if a variable is no number.
pub fn for_each_seed(usual: u64, story: impl Fn(u64) -> u64 + Sync) {
    tell_all(range(usual), story);
}

/// Tells a story once per seed, as [`for_each_seed`], and for at least `soak` seeds where `PRONTO_SIM_SOAK` is set, as
/// `cargo xtask soak` sets it.
///
/// # Panics
/// If a story fails, or differs when told again, or if a variable is no number.
pub fn for_each_seed_or_soak(usual: u64, soak: u64, story: impl Fn(u64) -> u64 + Sync) {
    let Range { start, end } = range(usual);
    let alone = number("PRONTO_SIM_SEED").is_some();
    let soaks = env::var_os("PRONTO_SIM_SOAK").is_some() && !alone;
    tell_all(start..if soaks { end.max(soak) } else { end }, story);
}

fn tell_all(range: Range<u64>, story: impl Fn(u64) -> u64 + Sync) {
    let next = AtomicU64::new(range.start);
    let tellers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let tell = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if !range.contains(&seed) {
                    return;
                }
                let told = catch_unwind(AssertUnwindSafe(|| tell(seed, &story)));
                if told.is_err() {
                    // Nobody need begin another one.
                    next.store(range.end, Ordering::Relaxed);
                    panic!("the story failed: repeat it with PRONTO_SIM_SEED={seed}");
                }
            }
        };
        let tellers: Vec<_> = (0..tellers).map(|_| scope.spawn(tell)).collect();
        for teller in tellers {
            teller.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    println!("{} seeds", range.end - range.start);
}

fn tell(seed: u64, story: &impl Fn(u64) -> u64) {
    let hash = story(seed);
    if seed.is_multiple_of(TWICE) {
        assert_eq!(hash, story(seed), "one seed, two stories: something is left to chance");
    }
}

fn range(usual: u64) -> Range<u64> {
    if let Some(seed) = number("PRONTO_SIM_SEED") {
        return seed..seed + 1;
    }
    let usual = if cfg!(debug_assertions) { usual.div_ceil(UNOPTIMISED) } else { usual };
    0..number("PRONTO_SIM_SEEDS").unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_told_and_some_twice() {
        let told = AtomicU64::new(0);
        for_each_seed(400, |seed| {
            told.fetch_add(1, Ordering::Relaxed);
            seed
        });
        let seeds = range(400).count() as u64;
        assert_eq!(told.load(Ordering::Relaxed), seeds + seeds.div_ceil(TWICE));
    }

    #[test]
    fn a_story_left_to_chance_is_found_out() {
        let chance = AtomicU64::new(0);
        let told = catch_unwind(AssertUnwindSafe(|| {
            for_each_seed(20, |_| chance.fetch_add(1, Ordering::Relaxed));
        }));
        assert!(told.is_err());
    }
}

//! The profile of these tests: a broken invariant ends the run that breaks it, and an optimised build runs all seeds.

use core::hint::black_box;
use std::env;
use std::panic::catch_unwind;

use pronto_sim::scenario::for_each_seed;
use pronto_sync::atomic::{AtomicU64, Ordering};

#[test]
fn debug_assertions_and_overflow_checks_are_on() {
    let broken = catch_unwind(|| debug_assert!(black_box(1) == 2, "an assertion of this test"));
    assert!(broken.is_err(), "the profile has no debug assertions");
    let most = black_box(u32::MAX);
    assert!(catch_unwind(|| black_box(most + 1)).is_err(), "the profile has no overflow checks");
}

#[test]
fn an_optimised_build_runs_all_seeds() {
    if env::var_os("PRONTO_SIM_SEEDS").is_some() {
        return;
    }
    let program = env::current_exe().expect("procfs is mounted");
    // The folder of cargo's dev profile, which does not optimise.
    let is_optimised = program.iter().all(|folder| folder != "debug");
    let told = AtomicU64::new(0);
    for_each_seed(1000, |seed| {
        told.fetch_add(1, Ordering::Relaxed);
        seed
    });
    let told = told.load(Ordering::Relaxed);
    assert_eq!(told >= 1000, is_optimised, "{told} runs in {}", program.display());
}

//! The storms on eight CPUs, between which threads move.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../lab/coverage.rs"]
mod coverage;
#[path = "../lab/log.rs"]
mod log;
#[path = "../lab/machine.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod machine;
#[path = "../lab/program.rs"]
mod program;
#[path = "../lab/random.rs"]
mod random;
#[path = "../lab/storm.rs"]
mod storm;

//! `cargo bench`: the parts of a call one by one, from a ring's line up to a whole call between two processes; then the
//! quick table of `pronto-bench latency`.
//!
//! One program prints both, so that the table is last. The table is omitted if arguments select parts.

mod call;
mod codec;
mod dispatch;
mod poll;
mod ring;

use core::time::Duration;
use std::ffi::OsString;
use std::process::ExitCode;

use criterion::Criterion;
use pronto_bench::cli;
use pronto_bench::placement::{Placement, alone};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = if cli::is_other_side(&arguments) {
        cli::run(std::env::args_os())
    } else {
        measure().and_then(|()| if wants_table(&arguments) { print_table() } else { Ok(()) })
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hot_path: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all parts, in a thread pinned to the callers' CPU.
fn measure() -> anyhow::Result<()> {
    let placement = Placement::choose()?;
    // Measured before the thread is pinned, because the result has to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    alone(placement.caller(), || {
        let mut criterion = Criterion::default()
            .sample_size(SAMPLES)
            .warm_up_time(WARM_UP)
            .measurement_time(MEASUREMENT)
            .nresamples(RESAMPLES)
            .configure_from_args();
        ring::benches(&mut criterion);
        codec::benches(&mut criterion);
        dispatch::benches(&mut criterion);
        poll::benches(&mut criterion);
        call::benches(&mut criterion, placement)?;
        criterion.final_summary();
        Ok(())
    })
}

/// Returns whether the table is printed: `cargo bench` passes `--bench`, `cargo test` does not, and further arguments select parts.
fn wants_table(arguments: &[OsString]) -> bool {
    let quick = |argument: &OsString| argument == "--bench" || argument == "--quick";
    arguments.iter().any(|argument| argument == "--bench") && arguments.iter().all(quick)
}

fn print_table() -> anyhow::Result<()> {
    println!();
    cli::run(["pronto-bench", "latency", "--quick"].map(OsString::from))
}

/// Small, because the parts take nanoseconds: all measurements take a minute and a half.
const SAMPLES: usize = 20;
const WARM_UP: Duration = Duration::from_millis(300);
const MEASUREMENT: Duration = Duration::from_secs(1);
const RESAMPLES: usize = 10_000;

//! `pronto-jobs`: runs a job, as one rank of it or as the starter of all its ranks.
#![forbid(unsafe_code)]

mod cli;
mod report;
mod start;

use core::cell::Cell;
use core::time::Duration;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use nix::sys::signal::{SigSet, Signal};
use pronto_parallel_jobs::calcula::{self, Until};
use pronto_parallel_jobs::comm::{Comm, CommError, MOST_RANKS, OverPronto, Rank, Settings};
use pronto_parallel_jobs::is::IntegerSort;
use pronto_parallel_jobs::master_slave::MasterSlave;
use pronto_parallel_jobs::mg::{Coefficients, MultiGrid};
use pronto_parallel_jobs::outcome::{Outcome, SystemClock, Watch};
use pronto_sync::atomic::{AtomicBool, Ordering};

use cli::{Cli, CommKind, Job, Output, Ranks};
use report::Report;

fn main() -> ExitCode {
    let job = Cli::parse().job;
    let place = job.ranks().and_then(|ranks| ranks.rank);
    match run(&job) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let place = place.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
            print_error(&format!("{place}{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a job. Returns whether every result was verified.
fn run(job: &Job) -> anyhow::Result<bool> {
    let Some(ranks) = job.ranks() else { return run_calcula(job) };
    match (ranks.comm, ranks.rank) {
        (CommKind::Mpi, _) => run_over_mpi(job, ranks),
        (CommKind::Pronto, None) => {
            let count =
                ranks.ranks.context("the number of ranks is missing: add --ranks N, or --rank and --at")?;
            check_size(job, ranks, count)?;
            start::all(count, ranks.over)
        }
        (CommKind::Pronto, Some(rank)) => {
            if let Some(starter) = ranks.started_by {
                start::end_with(starter)?;
            }
            check_size(job, ranks, ranks.at.len())?;
            ensure!(rank < ranks.at.len(), "rank {rank} has no address: --at has {}", ranks.at.len());
            let settings = Settings {
                wait: ranks.wait.into(),
                plaintext: ranks.plaintext,
                patience: Duration::from_secs(ranks.patience),
                liveness: Duration::from_secs(ranks.liveness),
                ..Settings::new(ranks.at.clone())
            };
            repeat(job, &mut OverPronto::start(Rank(rank), &settings)?)
        }
    }
}

#[cfg(feature = "mpi")]
fn run_over_mpi(job: &Job, ranks: &Ranks) -> anyhow::Result<bool> {
    let mut comm = pronto_parallel_jobs::comm::Mpi::open()?;
    let result = check_size(job, ranks, comm.size()).and_then(|()| repeat(job, &mut comm));
    if let Err(error) = &result {
        // A rank that has not closed MPI ends all others, and itself, before `main` prints the error.
        print_error(&format!("rank {}: {error:#}", comm.rank()));
    }
    result
}

#[cfg(not(feature = "mpi"))]
fn run_over_mpi(_: &Job, _: &Ranks) -> anyhow::Result<bool> {
    anyhow::bail!("this program was built without Open MPI: build it with --features mpi")
}

fn check_size(job: &Job, ranks: &Ranks, size: usize) -> anyhow::Result<()> {
    let expected = ranks.ranks.unwrap_or(size);
    ensure!(expected == size, "the job has {size} ranks instead of {expected}");
    ensure!((1..=MOST_RANKS).contains(&size), CommError::Size(size));
    ensure!(
        size.is_power_of_two() || !job.divides_by_two(),
        "{size} ranks: the number of ranks of {} must be 1, 2, 4 or 8",
        job.name()
    );
    Ok(())
}

/// Runs a job as one of its ranks, as often as its options say.
fn repeat(job: &Job, comm: &mut impl Comm) -> anyhow::Result<bool> {
    let Output { json, repeat } = job.output();
    let mut verified = true;
    for run in 1..=repeat {
        let progress = Progress::new(job.name(), comm.rank() == Rank(0));
        let outcome = run_once(job, comm, &progress)?;
        progress.clear();
        verified &= outcome.verified;
        let usages = outcome.usage.gather(comm)?;
        if comm.rank() == Rank(0) {
            print(&Report { job, run, outcome: &outcome, usages: &usages }, json)?;
        }
    }
    comm.close()?;
    Ok(verified)
}

fn run_once(job: &Job, comm: &mut impl Comm, watch: &Progress) -> Result<Outcome, CommError> {
    match job {
        Job::Is { class, ranks, .. } => {
            let mut sort = IntegerSort::new(comm, (*class).into());
            if ranks.damage && comm.rank() == Rank(0) {
                // It has become smaller than all test keys.
                let largest = sort.keys_mut().iter_mut().max().expect("each rank has keys");
                *largest = 0;
            }
            sort.run(comm, &SystemClock, watch)
        }
        Job::Mg { class, ranks, .. } => {
            let mut coefficients = Coefficients::NPB;
            if ranks.damage {
                coefficients.smoother[1] *= 1.001;
            }
            MultiGrid::new(comm, (*class).into(), coefficients).run(comm, &SystemClock, watch)
        }
        Job::MasterSlave { iterations, bytes, units, .. } => {
            let bytes = usize::try_from(*bytes).expect("at most 16 MiB");
            MasterSlave { iterations: *iterations, bytes, units: *units }.run(comm, &SystemClock, watch)
        }
        Job::Calcula { .. } => unreachable!("calcula has no ranks"),
    }
}

fn run_calcula(job: &Job) -> anyhow::Result<bool> {
    let Job::Calcula { units, seconds, output } = job else { unreachable!("only calcula has no ranks") };
    let stopped = Arc::new(AtomicBool::new(false));
    let until = match (units, seconds) {
        (Some(units), _) => Until::Units(*units),
        (None, Some(seconds)) => Until::Seconds(*seconds),
        (None, None) => {
            stop_by_signal(&stopped)?;
            Until::Stopped(&stopped)
        }
    };
    let mut verified = true;
    for run in 1..=output.repeat {
        let outcome = calcula::run(until, &SystemClock);
        verified &= outcome.verified;
        print(&Report { job, run, outcome: &outcome, usages: &[outcome.usage] }, output.json)?;
    }
    Ok(verified)
}

/// Sets the flag at SIGINT or SIGTERM.
fn stop_by_signal(stopped: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    // Blocked before the thread starts, so that only its wait takes them.
    signals.thread_block()?;
    let stopped = Arc::clone(stopped);
    std::thread::spawn(move || {
        let _signal = signals.wait();
        // SYNC: the flag alone is shared; it orders nothing else.
        stopped.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// Prints a line in one write, so that it does not mix with a line of another rank.
fn print_error(text: &str) {
    let line = format!("pronto-jobs: {text}\n");
    // Without a reader of stderr, the exit code remains.
    let _no_reader = std::io::stderr().write_all(line.as_bytes());
}

fn print(report: &Report<'_>, json: bool) -> anyhow::Result<()> {
    let text = if json { format!("{}\n", report.json()) } else { report.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot write the result")
}

/// Shows the iteration on a terminal.
struct Progress {
    job: &'static str,
    shows: bool,
    has_shown: Cell<bool>,
}

impl Progress {
    fn new(job: &'static str, is_first_rank: bool) -> Self {
        Self { job, shows: is_first_rank && std::io::stderr().is_terminal(), has_shown: Cell::new(false) }
    }

    /// Removes the line.
    fn clear(&self) {
        if self.has_shown.get() {
            eprint!("\r\x1b[K");
        }
    }
}

impl Watch for Progress {
    fn reached(&self, iteration: u32, of: u32) {
        // At most a hundred times, so that a job with many iterations is not delayed.
        if self.shows && iteration.is_multiple_of(of.div_ceil(100)) {
            self.has_shown.set(true);
            eprint!("\r\x1b[K{}: iteration {iteration} of {of}", self.job);
        }
    }
}

//! `expedite-mpi`: Debian's Open MPI and a program of it, both unmodified, with and without `pronto expedite run`.
//!
//! The receiver posts a buffer and computes on the CPU of the background; the sender measures its send. The message is longer than what Open
//! MPI sends without asking, so the send ends only after a thread of the receiver has answered. By default that is the computing
//! thread, once it waits, and it polls. With `btl_tcp_progress_thread` it is a thread that sleeps in `epoll_wait`.
//!
//! Senders poll, which virtual time does not show (docs/measuring.md). So the clock is the host's, and medians are judged. The emulated
//! CPU needs several times as long for an instruction, so a slice is longer, too.

use std::process::Command;

use anyhow::Context as _;

use super::trial::median;
use super::{IN_THE_LAB, lab};
use crate::claim::Claim;
use crate::expedite::{Counters, Kind, Load, Machine, PARTITION, Setting};
use crate::experiment::{Experiment, Rounds, Run};
use crate::lab::{self, Lab, OpenMpi};
use crate::params::{Axis, Choice as _, choices};
use crate::rendezvous::mpi::Ran;
use crate::report::{Fields, Report, decimals};
use crate::sample::{a_to_a, approximate};

/// Length of the message in bytes, and the length from which Open MPI asks the receiver first.
const BYTES: u32 = 8_192;
const ASKS_FROM: u32 = 4_096;
/// Slice of a boost, five times the default.
const SLICE: &str = "slice_us=1000";
/// CPU time that the receiver computes for.
const COMPUTE_MS: u32 = 10;
/// Messages of a round.
const TIMES: [u32; 2] = [60, 20];
/// Computing processes in the rows that have some.
const HOGS: usize = 4;
/// Our own bar: how much better the median must be for a receiver with a sleeping thread.
const BETTER: f64 = 2.0;

/// Becomes the receiver after it has moved to the CPU of the background.
const JOINS: &str = r#"echo 0 > "$1" && shift && exec "$@""#;

choices! {
    /// The thread of the receiver that reads from the connection.
    enum Reader {
        /// One that sleeps until data arrives.
        Thread = "thread",
        /// The computing one, when it waits: it polls, and yields the CPU.
        Poll = "poll",
    }
}

choices! {
    /// How the program is started.
    enum Start {
        /// By Open MPI.
        Plain = "plain",
        /// By Open MPI, which `pronto expedite run` starts.
        Run = "run",
    }
}

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-mpi",
    question: "Does an unmodified Open MPI program profit from `pronto expedite run`?",
    takes: [360, 60],
    paper: None,
    about: "Open MPI over TCP, unmodified: the duration of a send while its receiver computes next to other processes, started with and without \
            pronto expedite run",
    axes: &[
        Axis::new("reader", "Only receivers that read by this thread", Reader::NAMES),
        Axis::new("start", "Only programs started in this way", Start::NAMES),
    ],
    rounds: [Rounds::new(5, 0), Rounds::new(2, 0)],
    lab: |params| Ok(Some(Lab { open_mpi: true, virtual_time: false, ..lab(params.quick) })),
    claims: &["mpi-thread"],
    run,
    ..IN_THE_LAB
};

/// A row, and its measurements so far.
#[derive(Debug)]
struct Row {
    reader: Reader,
    start: Start,
    hogs: usize,
    rounds: Vec<Ran>,
    counters: Counters,
}

impl Row {
    fn new(reader: Reader, start: Start, hogs: usize) -> Self {
        Self { reader, start, hogs, rounds: Vec::new(), counters: Counters::default() }
    }

    fn label(&self) -> String {
        format!("{} {} with {} processes", self.reader.name(), self.start.name(), self.hogs)
    }

    fn round(&mut self, machine: &Machine, mpi: &OpenMpi, times: u32) -> anyhow::Result<()> {
        let counted = machine.counters(Setting::Module)?;
        let background = || Load::start_all(Kind::Compute, self.hogs, 0);
        self.rounds.push(Ran::of(&mut self.command(mpi, times), background)?);
        self.counters.add(&machine.counters(Setting::Module)?.since(&counted));
        Ok(())
    }

    fn command(&self, mpi: &OpenMpi, times: u32) -> Command {
        let mut command = mpi.command(self.start == Start::Run);
        let has_thread = if self.reader == Reader::Thread { "1" } else { "0" };
        command
            .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated"])
            .args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"])
            .args(["--mca", "btl_tcp_eager_limit", &ASKS_FROM.to_string()])
            .args(["--mca", "mpi_yield_when_idle", "1", "--mca", "btl_tcp_progress_thread", has_thread])
            // The thread needs a library that expects threads; by this variable the program need not ask for it.
            .args(["-x", "OMPI_MPI_THREAD_LEVEL=3"]);
        let words = |command: &mut Command| {
            let [sender, receiver] = ["1", "0"];
            command.arg(mpi.program()).args([COMPUTE_MS.to_string(), times.to_string()]);
            command.args([sender, receiver]).arg(BYTES.to_string());
        };
        command.args(["-np", "1"]);
        words(&mut command);
        command.args([":", "-np", "1", "sh", "-c", JOINS, "sh"]).arg(format!("{PARTITION}/cgroup.procs"));
        words(&mut command);
        command
    }

    /// Returns the durations of the sends during which the receiver computed, by round, in microseconds and in order.
    fn sends(&self) -> impl Iterator<Item = Vec<f64>> {
        self.rounds.iter().map(|round| {
            let mut sends: Vec<_> = round.computing().map(|one| one.send_us).collect();
            sends.sort_unstable_by(f64::total_cmp);
            sends
        })
    }

    /// Returns the median of each round.
    fn medians(&self) -> Vec<f64> {
        self.sends().map(|sends| percentile(&sends, 50)).collect()
    }

    /// Returns the number of boosts of all processes per message, of which half come to a waiting receiver.
    fn boosts(&self) -> f64 {
        let messages = 2 * self.rounds.iter().map(|round| round.computing().count() as u64).sum::<u64>();
        approximate(self.counters.boosts()) / approximate(messages.max(1))
    }

    fn fields(&self) -> Fields {
        let mut sends = self.sends().flatten().collect::<Vec<_>>();
        sends.sort_unstable_by(f64::total_cmp);
        let at = |percent| decimals(percentile(&sends, percent), 0);
        let whole = self.rounds.iter().flat_map(Ran::computing).filter(|one| one.before_end).count();
        let computed = median(self.rounds.iter().flat_map(Ran::computing).map(|one| one.compute_us));
        Fields::default()
            .with("reader", self.reader.name())
            .with("start", self.start.name())
            .with("hogs", self.hogs)
            .with("send_p50_us", at(50))
            .with("aa", decimals(a_to_a(&self.medians()), 2))
            .with("send_p90_us", at(90))
            .with("send_max_us", at(100))
            .with("before_end", decimals(whole as f64 / sends.len() as f64, 2))
            .with("compute_ms", decimals(computed / 1e3, 1))
            .with("boosts_per_message", decimals(self.boosts(), 2))
            .with("denied", self.counters.denied())
    }
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let (machine, mpi) = (Machine::in_real_time()?, lab::open_mpi()?);
    machine.reload(&[SLICE])?;
    let times = TIMES[usize::from(run.params.quick)];
    let all = [
        Row::new(Reader::Thread, Start::Plain, 0),
        Row::new(Reader::Thread, Start::Plain, HOGS),
        Row::new(Reader::Thread, Start::Run, HOGS),
        Row::new(Reader::Poll, Start::Plain, 0),
        Row::new(Reader::Poll, Start::Plain, HOGS),
        Row::new(Reader::Poll, Start::Run, HOGS),
    ];
    let is_kept = |row: &Row| {
        run.params.keeps("reader", row.reader.name()) && run.params.keeps("start", row.start.name())
    };
    let mut rows: Vec<_> = all.into_iter().filter(is_kept).collect();
    run.begin(rows.len());
    run.in_turns(&mut rows, Row::label, |row, _| {
        row.round(&machine, &mpi, times).with_context(|| row.label())
    })?;
    let version = rows.iter().flat_map(|row| &row.rounds).next().map(|round| round.version.clone());
    report.params = Fields::default()
        .with("version", version.context("no row is selected")?)
        .with("bytes", BYTES)
        .with("asks_from_bytes", ASKS_FROM)
        .with("compute_ms", COMPUTE_MS)
        .with("module", SLICE)
        .with("messages", times * run.rounds)
        .with("rounds", run.rounds);
    report.claims.extend(thread(&rows));
    report.rows = rows.iter().map(Row::fields).collect();
    report.note("compute_ms of a row is elapsed time, in which the receiver shares its CPU. boosts_per_message counts all threads that sleep in flagged \
                 files, also those of mpirun.");
    Ok(report)
}

/// Judges the receiver with a sleeping thread.
fn thread(rows: &[Row]) -> Option<Claim> {
    let of =
        |start| rows.iter().find(|row| (row.reader, row.start, row.hogs) == (Reader::Thread, start, HOGS));
    let [plain, boosted] = [of(Start::Plain)?.medians(), of(Start::Run)?.medians()];
    let better = median(plain.iter().zip(&boosted).map(|(plain, boosted)| plain / boosted));
    let detail = format!("median of the rounds; {:.0} us, {:.0} us without", median(boosted), median(plain));
    Some(Claim::at_least("mpi-thread", detail, BETTER, better, 2))
}

/// Returns the value that `percent` of the values do not exceed; NaN without values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(at - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::{Repetition, Repetitions};

    /// Returns a row with one round in which the sends took this long.
    fn row(start: Start, sends: &[f64]) -> Row {
        let one = |send_us: &f64| Repetition { send_us: *send_us, ..Repetition::default() };
        let all = Repetitions { computing: sends.iter().map(one).collect(), ..Repetitions::default() };
        let round = Ran { version: String::new(), sizes: [(BYTES.into(), all)].into() };
        Row { rounds: vec![round], ..Row::new(Reader::Thread, start, HOGS) }
    }

    #[test]
    fn the_median_must_be_twice_as_good() {
        let sends = |median| [900.0, 1.0, median];
        let judged = |with| {
            let rows = [row(Start::Plain, &sends(60.0)), row(Start::Run, &sends(with))];
            thread(&rows).map(|claim| claim.holds())
        };
        assert_eq!((judged(20.0), judged(40.0)), (Some(true), Some(false)));
        assert!(thread(&[row(Start::Plain, &sends(60.0))]).is_none());
    }
}

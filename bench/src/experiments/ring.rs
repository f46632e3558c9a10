//! `ring`: the cost of allocating and releasing a send buffer, with one thread and with two on one connection.

use core::hint::black_box;
use core::time::Duration;
use std::sync::Barrier;
use std::thread;

use anyhow::Context as _;
use pronto::{Class, Peer, WaitPolicy};

use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::floor::two_additions;
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, Placement, alone, pin};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, Sample};
use crate::traffic::receiver::Receiver;

/// The experiment. Nothing is sent, the peer sleeps, and each of two threads has its own CPU.
#[derive(Debug)]
pub(crate) struct Ring;

impl Experiment for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "cost of allocating and releasing a send buffer, by one thread and by two on one connection"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "threads", help: "Only these numbers of threads", values: &["1", "2"] },
            Axis { column: "size", help: "Only these buffers, bytes", values: &["64", "4096"] },
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let mut rows: Vec<Row> = [64, 4096]
            .into_iter()
            .flat_map(|size| [1, 2].map(|threads| Row::new(threads, size)))
            .filter(|row| params.keeps("threads", &row.threads.to_string()))
            .filter(|row| params.keeps("size", &row.size.to_string()))
            .collect();
        progress.begin(u64::from(rounds) * rows.len() as u64);
        let wait = Wait(WaitPolicy::Block);
        let receiver = Receiver::spawn(Provider::Shm, wait, cpus.server)?;
        let (_node, peer) = receiver.meet(wait)?;
        for _ in 0..rounds {
            for row in &mut rows {
                progress.step(&format!("{} B x{}", row.size, row.threads));
                row.round(&peer, cpus, budget)?;
            }
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("provider", "shm; the ring is the same over every transport")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        let seen: Vec<(&Row, Sample)> = rows.iter().map(|row| (row, row.seen.sample())).collect();
        report.claims = claims(&seen);
        report.rows = seen.iter().map(|(row, sample)| row.fields(sample)).collect();
        Ok(report)
    }
}

/// One row.
#[derive(Debug)]
struct Row {
    threads: usize,
    size: usize,
    seen: Recorder,
    floor: Recorder,
}

impl Row {
    fn new(threads: usize, size: usize) -> Self {
        Self { threads, size, seen: Recorder::new(), floor: Recorder::new() }
    }

    /// Runs one round. All threads begin together, each on its own CPU. The floor gets a tenth of the time.
    fn round(&mut self, peer: &Peer, cpus: CpuPair, budget: Duration) -> anyhow::Result<()> {
        alone(cpus.caller, || two_additions(budget / 10, &mut self.floor))?;
        let together = Barrier::new(self.threads);
        let size = self.size;
        let work = |cpu| {
            let pinned = pin(cpu);
            together.wait();
            pinned?;
            let mut seen = Recorder::new();
            let session = peer.session();
            seen.round(budget, || {
                session.loan(Class::Bulk, black_box(size), 0).map(|loan| drop(black_box(loan)))
            })
            .context("a buffer")?;
            Ok(seen)
        };
        let seen: Vec<anyhow::Result<Recorder>> = thread::scope(|scope| {
            let threads: Vec<_> = [cpus.caller, cpus.server]
                .into_iter()
                .take(self.threads)
                .map(|cpu| scope.spawn(move || work(cpu)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("measurements do not panic")).collect()
        });
        let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.seen.as_round(|all| seen.iter().for_each(|recorder| all.add(recorder)));
        Ok(())
    }

    fn fields(&self, sample: &Sample) -> Fields {
        let floor_ns = self.floor.sample().batch_ns;
        Fields::default()
            .with("threads", self.threads)
            .with("size", self.size)
            .with_sample(sample)
            .with("floor", "two-additions")
            .with("floor_batch_ns", decimals(floor_ns, 1))
            .with("ratio", decimals(sample.batch_ns / floor_ns, 2))
    }
}

fn claims(rows: &[(&Row, Sample)]) -> Vec<Claim> {
    let most = |threads: usize| {
        rows.iter()
            .filter(|(row, _)| row.threads == threads)
            .map(|(_, sample)| sample.batch_ns)
            .max_by(f64::total_cmp)
    };
    let bar = |id, threads, text: &str, bound: f64| {
        most(threads).map(|measured| Claim {
            id,
            text: text.into(),
            published: decimals(bound, 1),
            measured: decimals(measured, 1),
            holds: measured <= bound,
        })
    };
    [
        bar("G1", 1, "one thread, allocating and releasing a buffer, median of batches, ns: at most", ALONE),
        bar("G2", 2, "each of two threads on one connection, median of batches, ns: at most", SHARED),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The bars, nanoseconds.
const ALONE: f64 = 12.0;
const SHARED: f64 = 40.0;

/// 4 rows take 4 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(100);

/// 4 rows take under a second.
const QUICK_ROUNDS: u32 = 5;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_size_is_held_against_the_bar() {
        let row = Row::new;
        let of = |batch_ns| Sample { batch_ns, ..Sample::default() };
        let rows = [row(1, 64), row(1, 4096), row(2, 64)];
        let seen = [(&rows[0], of(10.0)), (&rows[1], of(13.0)), (&rows[2], of(39.0))];
        let verdicts: Vec<_> = claims(&seen).iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("G1", false), ("G2", true)]);
        assert!(claims(&[]).is_empty());
    }

    #[test]
    fn a_buffer_is_held_against_two_additions_in_batches_alike() {
        let mut row = Row::new(1, 64);
        row.floor.record_single(Duration::from_nanos(40));
        row.floor.record_batch(10, Duration::from_nanos(100));
        let fields = row.fields(&Sample { batch_ns: 15.0, p50_ns: 40, ..Sample::default() });
        assert_eq!(fields.value("floor_batch_ns"), Some(&serde_json::json!(10.0)));
        assert_eq!(fields.value("ratio"), Some(&serde_json::json!(1.5)));
    }
}

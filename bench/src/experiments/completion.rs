//! `completion`: synchronous sends whose sender polls, compared with sends that a dedicated thread completes.

use core::time::Duration;
use std::thread;

use pronto::{Peer, WaitPolicy};
use pronto_core::session::Doorbells;

use crate::claim::Claim;
use crate::echo::Wait;
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::Axis;
use crate::rdma::over::{self, PROVIDER_HELP, PROVIDERS};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};
use crate::traffic::sends::{Dedicated, Idle, polled};
use crate::workers;

/// Both designs alternate over the same connection to a separate process.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "completion",
    paper: Some("comm-layer"),
    figure: Some("3.2"),
    about: "synchronous sends: the sender polls, or a dedicated thread completes them",
    axes: &[
        Axis::new("provider", PROVIDER_HELP, &PROVIDERS),
        Axis::new("threads", "Only these numbers of senders", &["1", "2", "4", "8"]),
        Axis::new("design", "Only this design", &[POLLED, DEDICATED]),
        Axis::new("wait", "Only this waiting policy", &["spin", "block"]),
    ],
    cpus: Cpus::Two,
    // 32 rows take 30 s, or 6 s in a quick run.
    rounds: [Rounds::new(10, 80), Rounds::new(4, 40)],
    lab: over::lab,
    claims: &["K29", "K31"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let nodes = over::nodes(params)?;
    let mut parts = Vec::new();
    for over in over::all(params, nodes.as_ref()) {
        for wait in params.kept("wait", [WaitPolicy::Spin, WaitPolicy::Block].map(Wait), |wait| wait.name()) {
            let provider = over.name();
            let mut rows = Vec::new();
            for threads in params.kept("threads", THREADS, usize::to_string) {
                for design in params.kept("design", [POLLED, DEDICATED], |design| *design) {
                    rows.push(Row { provider, wait, threads, design, seen: Recorder::new() });
                }
            }
            parts.push((over, wait, rows));
        }
    }
    parts.retain(|(.., rows)| !rows.is_empty());
    run.begin(parts.iter().map(|(.., rows)| rows.len()).sum());
    for (over, wait, rows) in &mut parts {
        let receiver = over.spawn(*wait, run.cpus.server, Doorbells::Shared)?;
        let (_node, peer) = receiver.meet(*wait)?;
        let label = |row: &Row| format!("{} {} x{}", row.provider, row.design, row.threads);
        run.in_turns(rows, label, |row, budget| row.round(&peer, budget))?;
    }
    let rows = parts.into_iter().flat_map(|(.., rows)| rows);
    let rows: Vec<(Sample, Row)> = rows.map(|row| (row.seen.sample(), row)).collect();
    let mut report = Report {
        params: run
            .timing()
            .with("receiver", "separate process, pinned to a CPU; reads every byte")
            .with("senders", "threads of one connection; they and the dedicated thread are not pinned")
            .with("size", BYTES),
        claims: claims(&rows),
        rows: rows.iter().map(|(sample, row)| row.fields(sample, &rows)).collect(),
        ..Report::default()
    };
    report.note(
        "the dedicated thread sleeps in an eventfd, as in a completion channel; the sender raises the event that hardware would raise",
    );
    Ok(report)
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: &'static str,
    wait: Wait,
    threads: usize,
    design: &'static str,
    seen: Recorder,
}

impl Row {
    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let idle = if self.wait.0 == WaitPolicy::Spin { Idle::Spins } else { Idle::Sleeps };
        let (design, threads) = (self.design, self.threads);
        let dedicated = Dedicated::new(threads, idle)?;
        let (seen, completed) = thread::scope(|scope| {
            let completer = (design == DEDICATED).then(|| scope.spawn(|| dedicated.complete(peer)));
            let seen = workers::each(0..threads, |sender| {
                let mut seen = Recorder::new();
                match design {
                    DEDICATED => dedicated.send(peer, (sender, BYTES), budget, &mut seen)?,
                    _ => polled(peer, BYTES, budget, &mut seen)?,
                }
                anyhow::Ok(seen)
            });
            dedicated.end();
            let completed =
                completer.map(|completer| completer.join().expect("the completer does not panic"));
            (seen, completed.unwrap_or(Ok(())))
        });
        completed?;
        let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.seen.as_round(|all| seen.iter().for_each(|recorder| all.add(recorder)));
        Ok(())
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.provider, self.wait, self.threads) == (other.provider, other.wait, other.threads)
    }

    fn fields(&self, sample: &Sample, all: &[(Sample, Self)]) -> Fields {
        let to_polled = gain(self, sample, all);
        Fields::default()
            .with("provider", self.provider)
            .with("wait", self.wait.name())
            .with("threads", self.threads)
            .with("design", self.design)
            .with_sample(sample)
            .with("to_polled", decimals(to_polled, 2))
    }
}

/// Returns the median of a row divided by that of the corresponding sender-polled row.
fn gain(row: &Row, sample: &Sample, all: &[(Sample, Row)]) -> f64 {
    let polled = all.iter().find(|(_, other)| other.design == POLLED && row.is_like(other));
    polled.map_or(f64::NAN, |(polled, _)| approximate(sample.p50_ns) / approximate(polled.p50_ns))
}

/// Evaluates the paper's claims about the two designs, and the bar.
fn claims(rows: &[(Sample, Row)]) -> Vec<Claim> {
    let gain_at = |provider: &'static str, threads| {
        let dedicated = rows.iter().find(|(_, row)| {
            (row.provider, row.wait.0, row.threads, row.design)
                == (provider, WaitPolicy::Block, threads, DEDICATED)
        });
        dedicated.map(|(sample, row)| gain(row, sample, rows)).filter(|gain| gain.is_finite())
    };
    let text = "tcp, one thread, block: a synchronous send with a dedicated completion thread, as a multiple of one whose \
                sender polls, at least (the paper: up to hundreds of us more)";
    let bar = gain_at("tcp", 1).map(|gain| Claim::at_least("K29", text, BAR, gain, 2));
    let at_one = PROVIDERS.into_iter().filter_map(|provider| {
        let one = gain_at(provider, 1)?;
        let others: Vec<f64> =
            THREADS[1..].iter().filter_map(|threads| gain_at(provider, *threads)).collect();
        let most = others.iter().copied().max_by(f64::total_cmp)?;
        let text = format!("{provider}, block: one thread gains most; the value is its gain");
        Some(Claim::at_least("K31", text, most, one, 2))
    });
    bar.into_iter().chain(at_one).collect()
}

const POLLED: &str = "sender-polled";
const DEDICATED: &str = "dedicated";
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Payload, bytes: too long for an inline message, so it is placed in send memory.
const BYTES: usize = 64;

/// The bar for one thread over TCP.
const BAR: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(threads: usize, design: &'static str, p50_ns: u64) -> (Sample, Row) {
        let (provider, wait, seen) = ("tcp", Wait(WaitPolicy::Block), Recorder::new());
        (Sample { p50_ns, ..Sample::default() }, Row { provider, wait, threads, design, seen })
    }

    #[test]
    fn a_gain_is_that_of_the_same_threads_and_the_bar_that_of_one() {
        assert!(claims(&[]).is_empty());
        let rows = [row(1, POLLED, 10), row(1, DEDICATED, 35), row(2, POLLED, 20), row(2, DEDICATED, 80)];
        let found: Vec<_> =
            claims(&rows).iter().map(|claim| (claim.id, claim.measured.clone(), claim.holds())).collect();
        assert_eq!(found, [("K29", serde_json::json!(3.5), true), ("K31", serde_json::json!(3.5), false)]);
        let fields = rows[3].1.fields(&rows[3].0, &rows);
        assert_eq!(fields.value("to_polled"), Some(&serde_json::json!(4.0)));
    }
}

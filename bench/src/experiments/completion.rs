//! `completion`: synchronous sends whose sender polls, compared with sends that a dedicated thread completes.

use core::time::Duration;
use std::thread;

use pronto::{Peer, WaitPolicy};
use pronto_core::session::Doorbells;

use crate::echo::Wait;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::rdma::over::{self, PROVIDER_HELP, PROVIDERS};
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};
use crate::traffic::sends::{Dedicated, Idle, polled};

/// The experiment. Both designs alternate over the same connection to a separate process.
#[derive(Debug)]
pub(crate) struct Completion;

impl Experiment for Completion {
    fn name(&self) -> &'static str {
        "completion"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("comm-layer")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("3.2")
    }

    fn about(&self) -> &'static str {
        "synchronous sends: the sender polls, or a dedicated thread completes them"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: PROVIDER_HELP, values: &PROVIDERS },
            Axis { column: "threads", help: "Only these numbers of senders", values: &["1", "2", "4", "8"] },
            Axis { column: "design", help: "Only this design", values: &[POLLED, DEDICATED] },
            Axis { column: "wait", help: "Only this waiting policy", values: &["spin", "block"] },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        over::lab(params)
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let nodes = over::nodes(params)?;
        let mut rows = Vec::new();
        for over in over::all(params, nodes.as_ref()) {
            let provider = over.name();
            for wait in [WaitPolicy::Spin, WaitPolicy::Block].map(Wait) {
                let row = |(threads, design)| Row { provider, wait, threads, design, seen: Recorder::new() };
                let kept = |row: &Row| {
                    params.keeps("wait", row.wait.name())
                        && params.keeps("threads", &row.threads.to_string())
                        && params.keeps("design", row.design)
                };
                let all = THREADS.into_iter().flat_map(|threads| [(threads, POLLED), (threads, DEDICATED)]);
                rows.push((over, all.map(row).filter(kept).collect::<Vec<_>>()));
            }
        }
        progress.begin(u64::from(rounds) * rows.iter().map(|(_, rows)| rows.len()).sum::<usize>() as u64);
        for (over, rows) in rows.iter_mut().filter(|(_, rows)| !rows.is_empty()) {
            let receiver = over.spawn(rows[0].wait, cpus.server, Doorbells::Shared)?;
            let (_node, peer) = receiver.meet(rows[0].wait)?;
            for _ in 0..rounds {
                for row in rows.iter_mut() {
                    progress.step(&format!("{} {} x{}", row.provider, row.design, row.threads));
                    row.round(&peer, budget)?;
                }
            }
        }
        let rows: Vec<(Row, Sample)> = rows
            .into_iter()
            .flat_map(|(_, rows)| rows)
            .map(|row| {
                let sample = row.seen.sample();
                (row, sample)
            })
            .collect();
        report.params = Fields::default()
            .with("receiver", "separate process, pinned to a CPU; reads every byte")
            .with("senders", "threads of one connection; they and the dedicated thread are not pinned")
            .with("size", BYTES)
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.note(
            "the dedicated thread sleeps in an eventfd, as in a completion channel; the sender raises the event that hardware would raise",
        );
        report.claims = claims(&rows);
        report.rows = rows.iter().map(|(row, sample)| row.fields(sample, &rows)).collect();
        Ok(report)
    }
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
            let send = |sender| {
                let mut seen = Recorder::new();
                match design {
                    DEDICATED => dedicated.send(peer, (sender, BYTES), budget, &mut seen)?,
                    _ => polled(peer, BYTES, budget, &mut seen)?,
                }
                Ok(seen)
            };
            let senders: Vec<_> = (0..threads).map(|sender| scope.spawn(move || send(sender))).collect();
            let seen: Vec<anyhow::Result<Recorder>> =
                senders.into_iter().map(|sender| sender.join().expect("senders do not panic")).collect();
            dedicated.end();
            (
                seen,
                completer.map_or(Ok(()), |completer| completer.join().expect("the completer does not panic")),
            )
        });
        completed?;
        let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.seen.as_round(|all| seen.iter().for_each(|recorder| all.add(recorder)));
        Ok(())
    }

    fn is_beside(&self, other: &Self) -> bool {
        (self.provider, self.wait, self.threads) == (other.provider, other.wait, other.threads)
    }

    fn fields(&self, sample: &Sample, all: &[(Self, Sample)]) -> Fields {
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
fn gain(row: &Row, sample: &Sample, all: &[(Row, Sample)]) -> f64 {
    let polled = all.iter().find(|(other, _)| other.design == POLLED && row.is_beside(other));
    polled.map_or(f64::NAN, |(_, polled)| approximate(sample.p50_ns) / approximate(polled.p50_ns))
}

/// Evaluates the paper's claims about the two designs, and the bar.
fn claims(rows: &[(Row, Sample)]) -> Vec<Claim> {
    let gain_at = |provider: &'static str, threads| {
        let dedicated = rows.iter().find(|(row, _)| {
            (row.provider, row.wait.0, row.threads, row.design)
                == (provider, WaitPolicy::Block, threads, DEDICATED)
        });
        dedicated.map(|(row, sample)| gain(row, sample, rows)).filter(|gain| gain.is_finite())
    };
    let bar = gain_at("tcp", 1).map(|gain| Claim {
        id: "K29",
        text: "tcp, one thread, block: a synchronous send with a dedicated completion thread, as a multiple of one whose \
               sender polls, at least (the paper: up to hundreds of us more)"
            .into(),
        published: decimals(BAR, 1),
        measured: decimals(gain, 2),
        holds: gain >= BAR,
    });
    let at_one = PROVIDERS.into_iter().filter_map(|provider| {
        let one = gain_at(provider, 1)?;
        let others: Vec<f64> =
            THREADS[1..].iter().filter_map(|threads| gain_at(provider, *threads)).collect();
        let most = others.iter().copied().max_by(f64::total_cmp)?;
        Some(Claim {
            id: "K31",
            text: format!("{provider}, block: one thread gains most; the value is its gain"),
            published: decimals(most, 2),
            measured: decimals(one, 2),
            holds: one >= most,
        })
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

/// 32 rows take 30 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(80);

/// 32 rows take 6 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(threads: usize, design: &'static str, p50_ns: u64) -> (Row, Sample) {
        let (provider, wait, seen) = ("tcp", Wait(WaitPolicy::Block), Recorder::new());
        (Row { provider, wait, threads, design, seen }, Sample { p50_ns, ..Sample::default() })
    }

    #[test]
    fn a_gain_is_that_of_the_same_threads_and_the_bar_that_of_one() {
        assert!(claims(&[]).is_empty());
        let rows = [row(1, POLLED, 10), row(1, DEDICATED, 35), row(2, POLLED, 20), row(2, DEDICATED, 80)];
        let found: Vec<_> =
            claims(&rows).iter().map(|claim| (claim.id, claim.measured.clone(), claim.holds)).collect();
        assert_eq!(found, [("K29", serde_json::json!(3.5), true), ("K31", serde_json::json!(3.5), false)]);
        let fields = rows[3].0.fields(&rows[3].1, &rows);
        assert_eq!(fields.value("to_polled"), Some(&serde_json::json!(4.0)));
    }
}

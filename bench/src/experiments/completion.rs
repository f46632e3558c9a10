//! `completion`: synchronous sends whose sender polls, compared with sends that a dedicated thread completes.

use core::num::NonZero;
use core::time::Duration;
use std::thread;

use pronto::{Peer, WaitPolicy};
use pronto_core::session::Doorbells;

use crate::claim::{Claim, Verdict};
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
    question: "Is it faster if senders poll for completions than if a thread wakes them?",
    takes: [35, 8],
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
                    let [seen, events] = [(); 2].map(|()| Recorder::new());
                    rows.push(Row { provider, wait, threads, design, seen, events });
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
    let rows: Vec<Measured> = parts.iter().flat_map(|(.., rows)| rows).map(Row::measured).collect();
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let mut report = Report {
        params: run
            .timing()
            .with("receiver", "separate process, pinned to a CPU; reads every byte")
            .with("senders", "threads of one connection; they and the dedicated thread are not pinned")
            .with("size", BYTES),
        claims: claims(&rows, cpus),
        rows: rows.iter().map(|row| row.fields(&rows)).collect(),
        ..Report::default()
    };
    report.note(
        "the dedicated thread sleeps in an eventfd, as in a completion channel. The sender raises the event that hardware would raise; \
         this takes event_ns, which to_polled leaves out. Where the thread runs before the event is raised, that is too much",
    );
    Ok(report)
}

/// One row while it is measured.
#[derive(Debug)]
struct Row {
    provider: &'static str,
    wait: Wait,
    threads: usize,
    design: &'static str,
    seen: Recorder,
    /// Durations of raising an event, which hardware would not ask of the sender.
    events: Recorder,
}

/// One row after the last round.
#[derive(Clone, Copy, Debug)]
struct Measured {
    provider: &'static str,
    wait: Wait,
    threads: usize,
    design: &'static str,
    sample: Sample,
    /// Median duration of raising an event; `None` if the sender raised none.
    event_ns: Option<u64>,
}

impl Row {
    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let idle = if self.wait.0 == WaitPolicy::Spin { Idle::Spins } else { Idle::Sleeps };
        let (design, threads) = (self.design, self.threads);
        let dedicated = Dedicated::new(threads, idle)?;
        let (seen, completed) = thread::scope(|scope| {
            let completer = (design == DEDICATED).then(|| scope.spawn(|| dedicated.complete(peer)));
            let seen = workers::each(0..threads, |sender| {
                let [mut seen, mut events] = [(); 2].map(|()| Recorder::new());
                match design {
                    DEDICATED => dedicated.send(peer, (sender, BYTES), budget, [&mut seen, &mut events])?,
                    _ => polled(peer, BYTES, budget, &mut seen)?,
                }
                anyhow::Ok([seen, events])
            });
            dedicated.end();
            let completed =
                completer.map(|completer| completer.join().expect("the completer does not panic"));
            (seen, completed.unwrap_or(Ok(())))
        });
        completed?;
        let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.seen.as_round(|all| seen.iter().for_each(|[sends, _]| all.add(sends)));
        self.events.as_round(|all| seen.iter().for_each(|[_, events]| all.add(events)));
        Ok(())
    }

    fn measured(&self) -> Measured {
        let events = self.events.sample();
        Measured {
            provider: self.provider,
            wait: self.wait,
            threads: self.threads,
            design: self.design,
            sample: self.seen.sample(),
            event_ns: (events.count > 0).then_some(events.p50_ns),
        }
    }
}

impl Measured {
    fn is_like(&self, other: &Self) -> bool {
        (self.provider, self.wait, self.threads) == (other.provider, other.wait, other.threads)
    }

    /// Returns the median without the event that the sender raised, in nanoseconds.
    fn without_event(&self) -> f64 {
        approximate(self.sample.p50_ns) - approximate(self.event_ns.unwrap_or_default())
    }

    fn fields(&self, all: &[Self]) -> Fields {
        let to_polled = gain(self, all);
        Fields::default()
            .with("provider", self.provider)
            .with("wait", self.wait.name())
            .with("threads", self.threads)
            .with("design", self.design)
            .with_sample(&self.sample)
            .with("event_ns", self.event_ns)
            .with("to_polled", decimals(to_polled, 2))
    }
}

/// Returns the median of a row, without events, divided by that of the corresponding sender-polled row.
fn gain(row: &Measured, all: &[Measured]) -> f64 {
    let polled = all.iter().find(|other| other.design == POLLED && row.is_like(other));
    polled.map_or(f64::NAN, |polled| row.without_event() / polled.without_event())
}

/// Evaluates the paper's claims about the two designs from the rows that sleep.
fn claims(rows: &[Measured], cpus: usize) -> Vec<Claim> {
    let blocking = |provider: &str, threads, design: &str| {
        rows.iter().find(|row| {
            (row.provider, row.wait.0, row.threads, row.design)
                == (provider, WaitPolicy::Block, threads, design)
        })
    };
    let gain_at = |provider: &str, threads| {
        blocking(provider, threads, DEDICATED).map(|row| gain(row, rows)).filter(|gain| gain.is_finite())
    };
    let more = blocking("tcp", 1, DEDICATED).zip(blocking("tcp", 1, POLLED));
    let longer = more.map(|(dedicated, polled)| {
        let more_us = (dedicated.without_event() - polled.without_event()) / 1e3;
        let detail = format!(
            "as a multiple: TCP, one thread, asleep, without the event that the sender raises; {} us more",
            decimals(more_us, 1)
        );
        Claim::at_least("K29", detail, BAR, gain(dedicated, rows), 2)
    });
    longer.into_iter().chain(most_at_one(&gain_at, cpus)).collect()
}

/// Evaluates whether one sending thread gains most, over every transport. Numbers of threads are judged for which there are CPUs.
fn most_at_one(gain_at: &dyn Fn(&str, usize) -> Option<f64>, cpus: usize) -> Option<Claim> {
    let judged = THREADS.into_iter().filter(|threads| *threads > 1 && threads + OTHERS <= cpus);
    let judged: Vec<usize> = judged.collect();
    let gains = PROVIDERS.into_iter().filter_map(|provider| {
        let one = gain_at(provider, 1)?;
        let others = judged.iter().filter_map(|threads| gain_at(provider, *threads));
        Some((one, others.max_by(f64::total_cmp)))
    });
    let gains: Vec<(f64, Option<f64>)> = gains.collect();
    let least = gains.iter().map(|(one, _)| *one).min_by(f64::total_cmp)?;
    let of_many: Vec<bool> = gains.iter().filter_map(|(one, most)| Some(*one >= (*most)?)).collect();
    let (detail, verdict) = if of_many.is_empty() {
        let needed = THREADS[1] + OTHERS;
        let detail = format!(
            "the gain of one thread; needs more senders and {needed} idle CPUs or more, here {cpus}: run `pronto-bench completion` there"
        );
        (detail, Verdict::NotResolvable)
    } else {
        let most = judged.last().copied().unwrap_or_default();
        let detail = format!("the gain of one thread, compared with those of up to {most} threads");
        (detail, Verdict::graded(of_many.iter().all(|is_most| *is_most), of_many.contains(&true)))
    };
    Some(Claim::new("K31", detail, decimals(least, 2), verdict))
}

const POLLED: &str = "sender-polled";
const DEDICATED: &str = "dedicated";
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Payload, bytes: too long for an inline message, so it is placed in send memory.
const BYTES: usize = 64;

/// Number of other threads that need a CPU of their own: the receiver's and the dedicated one.
const OTHERS: usize = 2;

/// Least multiple that counts as longer. Chosen by us; no source.
const BAR: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(threads: usize, design: &'static str, p50_ns: u64) -> Measured {
        let (provider, wait) = ("tcp", Wait(WaitPolicy::Block));
        let sample = Sample { p50_ns, ..Sample::default() };
        let event_ns = (design == DEDICATED).then_some(5);
        Measured { provider, wait, threads, design, sample, event_ns }
    }

    fn verdict(id: &str, rows: &[Measured], cpus: usize) -> Option<Verdict> {
        claims(rows, cpus).iter().find(|claim| claim.id == id).map(|claim| claim.verdict)
    }

    #[test]
    fn a_gain_is_that_of_the_same_threads_without_the_event() {
        assert!(claims(&[], 8).is_empty());
        let rows = [row(1, POLLED, 10), row(1, DEDICATED, 35), row(2, POLLED, 20), row(2, DEDICATED, 85)];
        assert_eq!(rows[3].fields(&rows).value("to_polled"), Some(&serde_json::json!(4.0)));
        assert_eq!(claims(&rows, 2)[0].measured, serde_json::json!(3.0));
        assert_eq!(verdict("K29", &rows, 2), Some(Verdict::Holds));
        let shorter = [row(1, POLLED, 10), row(1, DEDICATED, 34)];
        assert_eq!(verdict("K29", &shorter, 2), Some(Verdict::DoesNotHold));
    }

    #[test]
    fn one_thread_is_compared_with_as_many_as_have_cpus() {
        let one = [row(1, POLLED, 10), row(1, DEDICATED, 35)];
        let more = |threads, dedicated| [row(threads, POLLED, 10), row(threads, DEDICATED, dedicated)];
        let more_at_eight = [one, more(2, 30), more(8, 95)].concat();
        assert_eq!(verdict("K31", &more_at_eight, 2), Some(Verdict::NotResolvable));
        assert_eq!(verdict("K31", &one, 16), Some(Verdict::NotResolvable));
        assert_eq!(verdict("K31", &more_at_eight, 4), Some(Verdict::Holds));
        assert_eq!(verdict("K31", &more_at_eight, 10), Some(Verdict::DoesNotHold));
        let shm = more_at_eight[..4].iter().map(|row| Measured { provider: "shm", ..*row });
        let both: Vec<_> = more_at_eight.iter().copied().chain(shm).collect();
        assert_eq!(verdict("K31", &both, 10), Some(Verdict::InPart));
    }
}

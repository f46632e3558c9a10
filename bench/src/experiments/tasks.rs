//! `tasks`: calls of many tasks over one connection, compared with the calls of one thread that keeps as many open.

use core::cell::Cell;
use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use pronto::{Limits, Peer, WaitPolicy};

use crate::claim::Claim;
use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, Params};
use crate::placement::apart;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate, median};
use crate::traffic::drive::{Open, calls};
use crate::traffic::messages::Call32;
use crate::traffic::receiver::Receiver;
use crate::traffic::speed::Speed;

/// All tasks run on one thread, a tokio runtime of the kind `current_thread`. Rounds of the thread and of the tasks alternate.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "tasks",
    question: "How fast are the calls of many tasks that share a connection, and do all tasks have their turn?",
    takes: [110, 18],
    about: "calls of up to 10,000 tasks over one connection, next to one thread with as many open calls",
    axes: &[
        Axis::PROVIDER,
        Axis::new("wait", "Only these waiting policies of the node of the tasks", &["block", "adaptive"]),
        Axis::new("tasks", "Only these numbers of tasks", &["64", "1000", "10000"]),
    ],
    cpus: Cpus::Two,
    rounds: [Rounds::new(10, 400), Rounds::new(4, 150)],
    claims: &["Y1", "Y2", "Y3"],
    run,
    ..Experiment::DEFAULT
};

/// Open calls of the connection, for the tasks together and for the thread.
const WINDOW: u16 = 48;
/// Time limit of a call, most of which a task spends in the queue.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of tasks that the claims are about.
const MOST: usize = 10_000;
/// The policy of the thread, whose calls are compared with those of the tasks, and of the receiver.
const WAIT: Wait = Wait(WaitPolicy::Block);
/// The policies of the node whose serving thread receives for the tasks. The last one is the default of nodes.
const SERVED: [Wait; 2] = [Wait(WaitPolicy::Block), Wait(WaitPolicy::Adaptive)];

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let providers = Provider::kept(run.params);
    let (numbers, served) = (numbers(run.params), run.params.kept("wait", SERVED, |wait| wait.name()));
    run.begin(providers.len() * served.len() * numbers.len());
    let mut rows = Vec::new();
    for provider in providers {
        rows.extend(apart(run.cpus.server, |_| {
            let receiver = Receiver::spawn(provider, WAIT, run.cpus.server)?;
            let limits = Limits { calls: WINDOW, ..Limits::default() };
            let (_node, of_thread) = receiver.meet_with(0, WAIT, limits)?;
            let (mut rows, mut nodes) = (Vec::new(), Vec::new());
            for (wait, sender) in served.iter().zip(1..) {
                let (node, peer) = receiver.meet_served(sender, *wait, limits)?;
                nodes.push(node);
                rows.extend(numbers.iter().map(|tasks| (Row::new(provider, *wait, *tasks), peer.clone())));
            }
            run.in_turns(
                &mut rows,
                |(row, _)| format!("{} {}, {} tasks", provider.name(), row.wait.name(), row.tasks),
                |(row, peer), budget| row.round(&of_thread, peer, budget),
            )?;
            Ok(rows.into_iter().map(|(row, _)| row).collect::<Vec<_>>())
        })?);
    }
    Ok(Report {
        params: run
            .fields()
            .with("callee", "separate process, pinned; handlers run inline")
            .with("runtime", "tokio, current_thread")
            .with("thread_wait", WAIT.name())
            .with("window", WINDOW)
            .with("size", 32),
        claims: rows.iter().filter(|row| row.is_judged()).flat_map(Row::claims).collect(),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

/// Returns the selected numbers of tasks.
fn numbers(params: &Params) -> Vec<usize> {
    [64, 1_000, MOST].into_iter().filter(|tasks| params.keeps("tasks", &tasks.to_string())).collect()
}

/// A number of tasks over one transport.
struct Row {
    provider: Provider,
    wait: Wait,
    tasks: usize,
    speed: Speed,
    /// The thread, in the same minutes.
    thread: Speed,
    calls: u64,
    polls: u64,
    waits: Recorder,
    /// Longest time of a call as a multiple of the median, of each round.
    longest: Vec<f64>,
}

impl Row {
    fn new(provider: Provider, wait: Wait, tasks: usize) -> Self {
        let (speed, thread) = (Speed::default(), Speed::default());
        Self {
            provider,
            wait,
            tasks,
            speed,
            thread,
            calls: 0,
            polls: 0,
            waits: Recorder::new(),
            longest: Vec::new(),
        }
    }

    fn round(&mut self, of_thread: &Peer, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let started = clock::now();
        let replies = calls(of_thread, &Call32 { bytes: [7; 32] }, Open(WINDOW.into()), budget)?;
        self.thread.round(replies, started.elapsed());
        let round = tasks(peer, self.tasks, budget)?;
        self.speed.round(round.times.len(), round.time);
        self.calls += round.times.len();
        self.polls += round.polls;
        self.longest.push(approximate(round.times.max()) / approximate(round.times.value_at_quantile(0.5)));
        self.waits.as_round(|waits| {
            for value in round.times.iter_recorded() {
                for _ in 0..value.count_at_value() {
                    waits.record_single(Duration::from_nanos(value.value_iterated_to()));
                }
            }
        });
        Ok(())
    }

    fn polls_per_call(&self) -> f64 {
        approximate(self.polls) / approximate(self.calls)
    }

    fn of_thread(&self) -> f64 {
        self.speed.per_second() / self.thread.per_second()
    }

    fn longest(&self) -> f64 {
        median(self.longest.clone())
    }

    const fn is_judged(&self) -> bool {
        self.tasks == MOST
            && matches!(self.provider, Provider::Shm)
            && matches!(self.wait.0, WaitPolicy::Adaptive)
    }

    fn claims(&self) -> [Claim; 3] {
        let detail = format!("{MOST} tasks, {} calls", self.calls);
        [
            Claim::at_most("Y1", detail.clone(), 3.0, self.polls_per_call(), 2),
            Claim::at_least("Y2", detail.clone(), 0.8, self.of_thread(), 2),
            Claim::at_most("Y3", detail, 20.0, self.longest(), 1),
        ]
    }

    fn fields(&self) -> Fields {
        let waits = self.waits.sample();
        Fields::default()
            .with("provider", self.provider.name())
            .with("wait", self.wait.name())
            .with("tasks", self.tasks)
            .with("calls", self.calls)
            .with("rpc_per_s", decimals(self.speed.per_second(), 0))
            .with("thread_rpc_per_s", decimals(self.thread.per_second(), 0))
            .with("of_thread", decimals(self.of_thread(), 2))
            .with("polls", decimals(self.polls_per_call(), 2))
            .with("p50_us", decimals(approximate(waits.p50_ns) / 1e3, 1))
            .with("p99_us", decimals(approximate(waits.p99_ns) / 1e3, 1))
            .with("longest", decimals(self.longest(), 1))
            .with("aa", decimals(self.speed.a_to_a(), 2))
    }
}

/// The calls of a round.
struct Round {
    time: Duration,
    polls: u64,
    /// Times of the calls, ns.
    times: Histogram<u64>,
}

/// Runs tasks for about `time`, each of which makes one call after the other.
fn tasks(peer: &Peer, tasks: usize, time: Duration) -> anyhow::Result<Round> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("a runtime")?;
    let (polls, started) = (Rc::new(Cell::new(0)), clock::now());
    let mut times = Histogram::new(3).context("a histogram")?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let all: Vec<_> = (0..tasks)
            .map(|_| tokio::task::spawn_local(repeat(peer.clone(), Rc::clone(&polls), started, time)))
            .collect();
        for task in all {
            for ns in task.await.context("a task")?? {
                times.record(ns).context("a time")?;
            }
        }
        anyhow::Ok(())
    }))?;
    Ok(Round { time: started.elapsed(), polls: polls.get(), times })
}

/// Makes calls until `time` has passed since `started`, at least one. Counts the polls of their futures, and returns their times in
/// nanoseconds.
async fn repeat(
    peer: Peer,
    polls: Rc<Cell<u64>>,
    started: std::time::Instant,
    time: Duration,
) -> anyhow::Result<Vec<u64>> {
    let (mut times, request) = (Vec::new(), Call32 { bytes: [7; 32] });
    loop {
        let before = clock::now();
        let mut call = pin!(peer.call_async_within(&request, PATIENCE));
        let reply = core::future::poll_fn(|context| {
            polls.set(polls.get() + 1);
            call.as_mut().poll(context)
        });
        anyhow::ensure!(reply.await.context("a call")?.bytes == request.bytes, "the reply is wrong");
        times.push(clock::nanos(before.elapsed()));
        if started.elapsed() >= time {
            return Ok(times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::receiver::connected;

    #[test]
    fn every_task_makes_a_call_and_its_polls_are_counted() {
        for provider in Provider::ALL {
            let (_nodes, peer) = connected(provider, "-tasks").unwrap();
            let round = tasks(&peer, 200, Duration::from_millis(1)).unwrap();
            assert!(round.times.len() >= 200 && round.polls >= round.times.len());
        }
    }

    #[test]
    fn each_bar_can_be_missed() {
        let row = |calls, thread, polls, longest| {
            let mut row = Row::new(Provider::Shm, SERVED[1], MOST);
            (row.calls, row.polls, row.longest) = (calls, polls, vec![longest]);
            row.speed.round(calls, Duration::from_secs(1));
            row.thread.round(thread, Duration::from_secs(1));
            row.claims().map(|claim| claim.holds())
        };
        assert_eq!(row(1_000, 1_000, 2_500, 4.0), [true; 3]);
        assert_eq!(row(1_000, 1_300, 3_100, 21.0), [false; 3]);
    }
}

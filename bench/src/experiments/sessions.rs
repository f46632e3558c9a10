//! `sessions`: the cost of many sessions over TCP for a node: set-up, memory and CPU at rest, calls of all of them, and memory after each has
//! sent and got 1 MiB.

use core::time::Duration;
use std::sync::Mutex;

use serde_json::Value;

use crate::claim::Claim;
use crate::clock;
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, numbers};
use crate::report::{Fields, Report, decimals};
use crate::sessions::{Acceptor, Peers};

/// The node that accepts is one process, all its peers are another.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sessions",
    question: "How much memory and CPU do thousands of sessions take, and do they slow each other down?",
    takes: [150, 30],
    about: "memory, CPU and rate of a node with up to 10,000 sessions over TCP",
    axes: &[Axis::new("sessions", "Only these numbers of sessions", &COUNT_NAMES)],
    without_aa: Some("one process serves many peers once, without rounds to compare"),
    claims: &["N1", "N2", "N3", "N4"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let asked = run.params.has_choice("sessions");
    let mut counts = run.params.kept("sessions", COUNTS, u16::to_string);
    if run.params.quick && !asked {
        counts.retain(|count| *count < 1000);
        report.note("--quick skips 1,000 sessions and more; select them with --sessions 1000");
    }
    run.begin(counts.len());
    run.in_turns(
        &mut counts,
        |count| format!("{count} sessions"),
        |count, _| {
            let row = measure(*count)?;
            report.claims.extend((*count == JUDGED).then(|| claims(&row)).into_iter().flatten());
            report.rows.push(row.fields());
            Ok(())
        },
    )?;
    report.params = Fields::default()
        .with(
            "accepts",
            "a separate process: one node at its defaults, echo handlers; resident memory is that of this process",
        )
        .with("peers", "one process; one thread drives all of them, and four make their links at the beginning")
        .with("calls", "32 bytes; each sender keeps 8 open; ten senders and all of them in turns, medians of three")
        .with("traffic", "each peer calls with 1 MiB and receives it back, one after the other")
        .with("watched_s", decimals(WATCHED.as_secs_f64(), 0));
    Ok(report)
}

/// One row; memory in bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    sessions: u16,
    /// Time in which all links were made, and CPU time of the node for them.
    set_up: Duration,
    set_up_cpu: Duration,
    /// CPU time of the node at rest, as a share of the time.
    idle: f64,
    /// Calls per second of ten senders, and of all.
    rates: [f64; 2],
    /// Memory without any session.
    alone: u64,
    /// Memory with all sessions before any traffic.
    before: u64,
    /// Largest sample during the traffic.
    peak: u64,
    /// Smallest sample after the traffic.
    after: u64,
    /// Time after which a sample was below the bar for the first time.
    back: Option<Duration>,
}

fn measure(sessions: u16) -> anyhow::Result<Row> {
    let acceptor = Acceptor::spawn()?;
    let alone = acceptor.child.resident()?;
    let (begun, cpu) = (clock::now(), || acceptor.child.cpu_ns().map(Duration::from_nanos));
    let used = cpu()?;
    let mut peers = Peers::spawn(&acceptor, sessions)?;
    let (set_up, set_up_cpu) = (begun.elapsed(), cpu()?.saturating_sub(used));
    clock::pause(SETTLES);
    let before = acceptor.child.resident()?;
    let used = cpu()?;
    clock::pause(IDLE);
    let idle = cpu()?.saturating_sub(used).as_secs_f64() / IDLE.as_secs_f64();
    let mut rates = [[0.0; 3]; 2];
    for turn in 0..3 {
        for (rates, senders) in rates.iter_mut().zip([FEW, sessions]) {
            rates[turn] = peers.call(senders, CALLS)?;
        }
    }
    let rates = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[1]
    });
    let peak = Mutex::new(before);
    peers.exchange(|| {
        let seen = acceptor.child.resident().unwrap_or_default();
        let mut peak = peak.lock().expect("no holder panics");
        *peak = seen.max(*peak);
        clock::pause(SAMPLE_EVERY);
    })?;
    let ended = clock::now();
    let (mut after, mut back) = (u64::MAX, None);
    while ended.elapsed() < WATCHED && back.is_none_or(|back| ended.elapsed() < back + SETTLES) {
        after = after.min(acceptor.child.resident()?);
        if back.is_none() && after < AFTER {
            back = Some(ended.elapsed());
        }
        clock::pause(SAMPLE_EVERY);
    }
    let peak = peak.into_inner().expect("no holder panics");
    Ok(Row { sessions, set_up, set_up_cpu, idle, rates, alone, before, peak, after, back })
}

impl Row {
    fn fields(&self) -> Fields {
        let each = self.before.saturating_sub(self.alone) / u64::from(self.sessions);
        Fields::default()
            .with("sessions", self.sessions)
            .with("set_up_s", decimals(self.set_up.as_secs_f64(), 2))
            .with("set_up_cpu_us", decimals(micros(self.set_up_cpu) / f64::from(self.sessions), 0))
            .with("idle_cpu_percent", decimals(self.idle * 100.0, 2))
            .with("ten_call_per_s", decimals(self.rates[0], 0))
            .with("all_call_per_s", decimals(self.rates[1], 0))
            .with("alone_mib", mib(self.alone))
            .with("before_mib", mib(self.before))
            .with("session_kib", decimals(each as f64 / 1024.0, 1))
            .with("peak_mib", mib(self.peak))
            .with("after_mib", mib(self.after))
            .with("back_s", self.back.map(|back| decimals(back.as_secs_f64(), 1)))
    }
}

fn claims(row: &Row) -> [Claim; 4] {
    let after = row.back.map_or_else(
        || "not below the bar within that time".to_owned(),
        |back| format!("below the bar after {:.1} s", back.as_secs_f64()),
    );
    [
        Claim::new("N1", "", mib(row.before), row.before < BEFORE).bar(mib(BEFORE)),
        Claim::new("N2", after, mib(row.after), row.back.is_some()).bar(mib(AFTER)),
        Claim::new("N3", "", decimals(row.idle * 100.0, 2), row.idle < IDLE_CPU)
            .bar(decimals(IDLE_CPU * 100.0, 0)),
        Claim::new("N4", "", decimals(row.rates[1] / row.rates[0], 2), row.rates[1] >= row.rates[0] * KEPT)
            .bar(decimals(KEPT, 1)),
    ]
}

fn mib(bytes: u64) -> Value {
    decimals(bytes as f64 / f64::from(1 << 20), 1)
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

numbers!(COUNTS: u16, COUNT_NAMES = 50, 250, 1000, 5000, 10000);

/// The number of sessions that the claims are about.
const JUDGED: u16 = 1000;
/// Number of senders that the calls of all are compared with.
const FEW: u16 = 10;
/// The bars: CPU of a node at rest, and the rate of all senders as a multiple of that of ten.
const IDLE_CPU: f64 = 0.01;
const KEPT: f64 = 0.7;
/// Time for which the node is at rest, and for which peers call.
const IDLE: Duration = Duration::from_secs(5);
const CALLS: Duration = Duration::from_secs(1);

/// The bars, bytes.
const BEFORE: u64 = 64 << 20;
const AFTER: u64 = 96 << 20;

/// Time within which memory has to be returned.
const WATCHED: Duration = Duration::from_secs(10);
/// Time for which memory is sampled after that.
const SETTLES: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_can_be_failed() {
        let row = Row {
            sessions: 1000,
            set_up: Duration::from_secs(1),
            set_up_cpu: Duration::from_millis(300),
            idle: 0.02,
            rates: [300_000.0, 250_000.0],
            alone: 8 << 20,
            before: 60 << 20,
            peak: 300 << 20,
            after: 97 << 20,
            back: None,
        };
        assert_eq!(claims(&row).map(|claim| claim.holds()), [true, false, false, true]);
        let row = Row { before: 65 << 20, after: 90 << 20, back: Some(Duration::from_secs(3)), ..row };
        let row = Row { idle: 0.009, rates: [300_000.0, 200_000.0], ..row };
        assert_eq!(claims(&row).map(|claim| claim.holds()), [false, true, true, false]);
        assert_eq!(row.fields().value("session_kib"), Some(&serde_json::json!(58.4)));
    }
}

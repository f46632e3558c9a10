//! `sessions`: the memory of a node with a thousand sessions over TCP, before and after each has sent and got 1 MiB.

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
    question: "How much memory do a thousand sessions take, and do they give it back?",
    takes: [60, 20],
    about: "the memory of a node with a thousand sessions over TCP, before and after traffic",
    axes: &[Axis::new("sessions", "Only these numbers of sessions", &COUNT_NAMES)],
    without_aa: Some("memory is sampled while one process serves many peers once, without rounds to compare"),
    claims: &["N1", "N2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let asked = run.params.has_choice("sessions");
    let mut counts = run.params.kept("sessions", COUNTS, u16::to_string);
    if run.params.quick && !asked {
        counts.retain(|count| *count != 1000);
        report.note("--quick skips 1,000 sessions; select them with --sessions 1000");
    }
    run.begin(counts.len());
    run.in_turns(
        &mut counts,
        |count| format!("{count} sessions"),
        |count, _| {
            let row = measure(*count)?;
            report.claims.extend((*count == 1000).then(|| claims(&row)).into_iter().flatten());
            report.rows.push(row.fields());
            Ok(())
        },
    )?;
    report.params = Fields::default()
        .with(
            "accepts",
            "a separate process: one node at its defaults, echo handlers; resident memory is that of this process",
        )
        .with("peers", "one process, a node for each session, one after the other")
        .with("traffic", "each peer calls with 1 MiB and receives it back, one after the other")
        .with("watched_s", decimals(WATCHED.as_secs_f64(), 0));
    Ok(report)
}

/// One row; memory in bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    sessions: u16,
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
    let mut peers = Peers::spawn(&acceptor, sessions)?;
    let before = acceptor.child.resident()?;
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
    Ok(Row { sessions, alone, before, peak, after, back })
}

impl Row {
    fn fields(&self) -> Fields {
        let each = self.before.saturating_sub(self.alone) / u64::from(self.sessions);
        Fields::default()
            .with("sessions", self.sessions)
            .with("alone_mib", mib(self.alone))
            .with("before_mib", mib(self.before))
            .with("session_kib", decimals(each as f64 / 1024.0, 1))
            .with("peak_mib", mib(self.peak))
            .with("after_mib", mib(self.after))
            .with("back_s", self.back.map(|back| decimals(back.as_secs_f64(), 1)))
    }
}

fn claims(row: &Row) -> [Claim; 2] {
    let after = row.back.map_or_else(
        || "not below the bar within that time".to_owned(),
        |back| format!("below the bar after {:.1} s", back.as_secs_f64()),
    );
    [
        Claim::new("N1", "", mib(row.before), row.before < BEFORE).bar(mib(BEFORE)),
        Claim::new("N2", after, mib(row.after), row.back.is_some()).bar(mib(AFTER)),
    ]
}

fn mib(bytes: u64) -> Value {
    decimals(bytes as f64 / f64::from(1 << 20), 1)
}

numbers!(COUNTS: u16, COUNT_NAMES = 50, 250, 1000);

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
    fn memory_that_is_not_returned_in_time_fails_its_bar() {
        let row = Row {
            sessions: 1000,
            alone: 8 << 20,
            before: 60 << 20,
            peak: 300 << 20,
            after: 97 << 20,
            back: None,
        };
        assert_eq!(claims(&row).map(|claim| claim.holds()), [true, false]);
        let row = Row { before: 65 << 20, after: 90 << 20, back: Some(Duration::from_secs(3)), ..row };
        assert_eq!(claims(&row).map(|claim| claim.holds()), [false, true]);
        assert_eq!(row.fields().value("session_kib"), Some(&serde_json::json!(58.4)));
    }
}

//! `sessions`: the memory of a node with a thousand sessions over TCP, before and after each has sent and got 1 MiB.

use core::time::Duration;
use std::sync::Mutex;

use crate::clock;
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sessions::{Acceptor, Peers};

/// The experiment: the node that accepts is one process, all its peers are another.
#[derive(Debug)]
pub(crate) struct Sessions;

impl Experiment for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "the memory of a node with a thousand sessions over TCP, before and after traffic"
    }

    fn axes(&self) -> &'static [Axis] {
        &[Axis { column: "sessions", help: "Only these numbers of sessions", values: &["50", "250", "1000"] }]
    }

    fn without_aa(&self) -> Option<&'static str> {
        Some("memory is sampled while one process serves one crowd of peers; there are no rounds to compare")
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let asked = params.chosen().any(|(column, _)| column == "sessions");
        let counts: Vec<u16> = [50, 250, 1000]
            .into_iter()
            .filter(|count| params.keeps("sessions", &count.to_string()))
            .filter(|count| asked || !params.quick || *count != 1000)
            .collect();
        if params.quick && !asked {
            report.note("--quick skips 1,000 sessions; select them with --sessions 1000");
        }
        progress.begin(counts.len() as u64);
        let mut rows = Vec::new();
        for count in counts {
            progress.step(&format!("{count} sessions"));
            rows.push(measure(count)?);
        }
        report.params = Fields::default()
            .with(
                "accepts",
                "a process of its own: one node at its defaults, echo handlers; resident memory is its",
            )
            .with("peers", "one process, a node for each session, one after the other")
            .with("traffic", "each peer calls with 1 MiB and gets it back, one after the other")
            .with("watched_s", decimals(WATCHED.as_secs_f64(), 0));
        report.claims = rows.iter().filter(|row| row.sessions == 1000).flat_map(claims).collect();
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
}

/// One row; memory in bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    sessions: u16,
    /// Without any session.
    alone: u64,
    /// All sessions are up, nothing was sent.
    before: u64,
    /// The most that was seen while they sent.
    peak: u64,
    /// The least that was seen in the time after.
    after: u64,
    /// When it was below the bar for the first time.
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
        clock::pause(LOOK_EVERY);
    })?;
    let ended = clock::now();
    let (mut after, mut back) = (u64::MAX, None);
    while ended.elapsed() < WATCHED && back.is_none_or(|back| ended.elapsed() < back + SETTLES) {
        after = after.min(acceptor.child.resident()?);
        if back.is_none() && after < AFTER {
            back = Some(ended.elapsed());
        }
        clock::pause(LOOK_EVERY);
    }
    let peak = peak.into_inner().expect("no holder panics");
    Ok(Row { sessions, alone, before, peak, after, back })
}

impl Row {
    fn fields(&self) -> Fields {
        let mib = |bytes: u64| decimals(bytes as f64 / f64::from(1 << 20), 1);
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
    let mib = |bytes: u64| decimals(bytes as f64 / f64::from(1 << 20), 1);
    [
        Claim {
            id: "N1",
            text:
                "1,000 sessions over tcp: resident memory of the accepting node before traffic, MiB, at most"
                    .into(),
            published: mib(BEFORE),
            measured: mib(row.before),
            holds: row.before < BEFORE,
        },
        Claim {
            id: "N2",
            text: "least resident memory within 10 s after each session sent and received 1 MiB, MiB, below"
                .into(),
            published: mib(AFTER),
            measured: mib(row.after),
            holds: row.back.is_some(),
        },
    ]
}

/// The bars, bytes.
const BEFORE: u64 = 64 << 20;
const AFTER: u64 = 96 << 20;

/// Time within which memory has to be returned.
const WATCHED: Duration = Duration::from_secs(10);
/// Time for which memory is sampled after that.
const SETTLES: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_does_not_come_back_in_time_fails_its_bar() {
        let row = Row {
            sessions: 1000,
            alone: 8 << 20,
            before: 60 << 20,
            peak: 300 << 20,
            after: 97 << 20,
            back: None,
        };
        assert_eq!(claims(&row).map(|claim| claim.holds), [true, false]);
        let row = Row { before: 65 << 20, after: 90 << 20, back: Some(Duration::from_secs(3)), ..row };
        assert_eq!(claims(&row).map(|claim| claim.holds), [false, true]);
        assert_eq!(row.fields().value("session_kib"), Some(&serde_json::json!(58.4)));
    }
}

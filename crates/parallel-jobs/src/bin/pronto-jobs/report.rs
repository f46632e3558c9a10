//! The result of a run, as text and as JSON.

use core::fmt::Write as _;

use pronto_parallel_jobs::outcome::Outcome;
use pronto_parallel_jobs::usage::Usage;
use serde_json::{Value, json};

use crate::cli::{CommKind, Job};

/// A run and its result.
pub(crate) struct Report<'a> {
    pub(crate) job: &'a Job,
    /// Number of the run, from 1.
    pub(crate) run: u32,
    /// Result at rank 0.
    pub(crate) outcome: &'a Outcome,
    /// Resources by rank.
    pub(crate) usages: &'a [Usage],
}

impl Report<'_> {
    /// Returns the time of the slowest rank.
    fn seconds(&self) -> f64 {
        self.usages.iter().map(|usage| usage.seconds).fold(0.0, f64::max)
    }

    /// Returns the parameters of the job, by name.
    fn parameters(&self) -> Vec<(&'static str, Value)> {
        let mut all = match self.job {
            Job::Is { class, .. } | Job::Mg { class, .. } => vec![("class", json!(format!("{class:?}")))],
            Job::MasterSlave { iterations, bytes, units, .. } => {
                vec![("iterations", json!(iterations)), ("bytes", json!(bytes)), ("units", json!(units))]
            }
            Job::Calcula { .. } => Vec::new(),
        };
        if let Some(ranks) = self.job.ranks() {
            all.push(("comm", json!(format!("{:?}", ranks.comm).to_lowercase())));
            if ranks.comm == CommKind::Pronto {
                let transport = ranks.at.first().and_then(|address| address.split(':').next());
                all.push(("transport", json!(transport)));
                all.push(("wait", json!(format!("{:?}", ranks.wait).to_lowercase())));
            }
        }
        all
    }

    /// Returns an object in one line.
    pub(crate) fn json(&self) -> Value {
        let seconds = self.seconds();
        let mut object = json!({
            "job": self.job.name(),
            "run": self.run,
            "ranks": self.usages.len(),
            "seconds": seconds,
            "verified": self.outcome.verified,
            "detail": self.outcome.detail,
            "work": self.outcome.work,
            "unit": self.outcome.unit,
            "per_second": self.outcome.work / seconds,
            "by_rank": self.usages.iter().map(by_rank).collect::<Vec<_>>(),
        });
        for (name, value) in self.parameters() {
            object[name] = value;
        }
        object
    }

    /// Returns lines for a reader.
    pub(crate) fn text(&self) -> String {
        let Outcome { verified, detail, work, unit, .. } = self.outcome;
        let seconds = self.seconds();
        let mut text = self.job.name().to_owned();
        for (name, value) in self.parameters() {
            let _to_string = write!(text, " {name} {}", value.to_string().trim_matches('"'));
        }
        let verified = if *verified { "verified" } else { "NOT VERIFIED" };
        let _to_string = writeln!(
            text,
            ", {} ranks: {seconds:.6} s, {:.4e} {unit} per second, {verified}: {detail}",
            self.usages.len(),
            work / seconds
        );
        for (rank, usage) in self.usages.iter().enumerate() {
            let _to_string = writeln!(
                text,
                "  rank {rank}: {:.6} s, CPU {:.6} s user and {:.6} s system, {} messages, {} bytes, {} collectives, {} major faults, {} \
                 voluntary and {} involuntary switches",
                usage.seconds,
                usage.user_seconds,
                usage.system_seconds,
                usage.traffic.messages,
                usage.traffic.bytes,
                usage.traffic.collectives,
                usage.major_faults,
                usage.voluntary_switches,
                usage.involuntary_switches,
            );
        }
        text
    }
}

fn by_rank(usage: &Usage) -> Value {
    json!({
        "seconds": usage.seconds,
        "user_seconds": usage.user_seconds,
        "system_seconds": usage.system_seconds,
        "messages": usage.traffic.messages,
        "bytes": usage.traffic.bytes,
        "collectives": usage.traffic.collectives,
        "major_faults": usage.major_faults,
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
    })
}

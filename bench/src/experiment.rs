//! An experiment as data: its description, and the function that measures its rows.

use core::time::Duration;

use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, ONE_CPU, Placement};
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};

/// A command of `pronto-bench`, declared in one file of [`crate::experiments`]. A declaration names what differs from [`Self::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    /// Name of the command, lower case.
    pub(crate) name: &'static str,
    /// The question that it answers, in one sentence.
    pub(crate) question: &'static str,
    /// Rough duration of a full and of a quick run in seconds, in the lab without its builds. `all` estimates its time from it.
    pub(crate) takes: [u32; 2],
    /// Paper that it reproduces a part of; `None` if it answers a question of our own.
    pub(crate) paper: Option<&'static str>,
    /// Figure, table or section of that paper.
    pub(crate) figure: Option<&'static str>,
    /// Description of what it measures, in one line.
    pub(crate) about: &'static str,
    /// Columns by which rows can be selected, with all their values.
    pub(crate) axes: &'static [Axis],
    /// Examples for the help: arguments after the name, and their purpose.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Requirement on CPUs. If it is not met, the experiment is skipped with a note.
    pub(crate) cpus: Cpus,
    /// Rounds of a full and of a quick run.
    pub(crate) rounds: [Rounds; 2],
    /// Seconds for which a full and a quick run measure each part by default; `None` if the user cannot choose the time.
    pub(crate) seconds: Option<[u32; 2]>,
    /// Whether [`Report::figures`] holds pictures; the command then has `--plots`.
    pub(crate) draws: bool,
    /// Whether [`Report::traces`] holds traces; the command then has `--trace`.
    pub(crate) traces: bool,
    /// Reason for rows without a column `aa`: counts and simulations give equal values each time. In all other experiments the
    /// column compares the even rounds with the odd ones ([`a_to_a`](crate::sample::a_to_a)).
    pub(crate) without_aa: Option<&'static str>,
    /// Ids of all claims that a run can have, in the order of the report.
    pub(crate) claims: &'static [&'static str],
    /// Returns the lab machine in which the selected rows are measured, or `None` for this host. Outside of the lab, the command
    /// starts that machine and runs itself there. Fails if rows are selected that are never measured together.
    pub(crate) lab: fn(&Params) -> anyhow::Result<Option<Lab>>,
    /// Measures the selected rows, within 60 s in a quick run. A row that this host cannot measure is skipped with a note.
    pub(crate) run: fn(&mut Run<'_>) -> anyhow::Result<Report>,
}

/// CPUs that an experiment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpus {
    /// One is enough, at least for some rows.
    One,
    /// One for the measuring side and one for its partner.
    Two,
}

/// Rounds of a run: all rows take turns, once per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Number of rounds.
    pub(crate) count: u32,
    /// Measuring time of one row in one round.
    pub(crate) budget: Duration,
}

impl Rounds {
    /// Returns `count` rounds in which each row is measured for `millis` milliseconds.
    pub(crate) const fn new(count: u32, millis: u64) -> Self {
        Self { count, budget: Duration::from_millis(millis) }
    }
}

impl Experiment {
    /// An experiment of our own on one CPU of this host, in one round, without axes and figures.
    pub(crate) const DEFAULT: Self = Self {
        name: "",
        question: "",
        takes: [60, 15],
        paper: None,
        figure: None,
        about: "",
        axes: &[],
        examples: &[],
        cpus: Cpus::One,
        rounds: [Rounds::new(1, 0); 2],
        seconds: None,
        draws: false,
        traces: false,
        without_aa: None,
        claims: &[],
        lab: |_| Ok(None),
        run: |_| Ok(Report::default()),
    };

    /// Measures the rows that `params` selects. If the process may use too few CPUs, the report has a note instead of rows.
    pub(crate) fn measure(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let placement = Placement::choose()?;
        let mut report = Report::default();
        if self.cpus == Cpus::Two && placement.pair().is_none() {
            report.note(ONE_CPU);
        } else {
            let Rounds { count, budget } = self.rounds[usize::from(params.quick)];
            let alone = CpuPair { caller: placement.caller(), server: placement.caller() };
            let cpus = placement.pair().unwrap_or(alone);
            report = (self.run)(&mut Run { params, progress, placement, cpus, rounds: count, budget })?;
        }
        self.check_claims(params, &mut report)?;
        if let Some(why) = self.without_aa {
            report.note(format!("rows have no A/A: {why}"));
        }
        Ok(report)
    }

    /// Checks that the claims of a run are declared, and notes which of them are missing although all rows were selected.
    fn check_claims(&self, params: &Params, report: &mut Report) -> anyhow::Result<()> {
        for claim in &report.claims {
            anyhow::ensure!(self.claims.contains(&claim.id), "the claim {} is not declared", claim.id);
        }
        let is_missing = |id: &&&str| report.claims.iter().all(|claim| claim.id != **id);
        let missing: Vec<_> = self.claims.iter().filter(is_missing).copied().collect();
        if params.chosen().next().is_none() && !missing.is_empty() {
            report.note(format!("not judged in this run: {}", missing.join(", ")));
        }
        Ok(())
    }

    /// Returns the measuring time of each part in seconds: the user's choice, or the default.
    pub(crate) fn seconds(&self, params: &Params) -> u32 {
        let [full, quick] = self.seconds.unwrap_or_default();
        params.seconds.unwrap_or(if params.quick { quick } else { full })
    }
}

/// One run of an experiment.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// Choices of the user.
    pub(crate) params: &'a Params,
    /// Progress on stderr.
    pub(crate) progress: &'a mut Progress,
    /// CPUs that this process may use.
    pub(crate) placement: Placement,
    /// CPUs of the measuring side and of its partner: one CPU twice if the process may use only one.
    pub(crate) cpus: CpuPair,
    /// Number of rounds.
    pub(crate) rounds: u32,
    /// Measuring time of one row in one round.
    pub(crate) budget: Duration,
}

impl Run<'_> {
    /// Announces `cells` rows, each of which is measured once per round.
    pub(crate) fn begin(&mut self, cells: usize) {
        self.progress.begin(u64::from(self.rounds) * cells as u64);
    }

    /// Measures all rows in turns, once per round, so that a slow spell of the machine affects all rows alike. `label` names a row in
    /// the progress, `round` measures it for the given time.
    pub(crate) fn in_turns<R>(
        &mut self,
        rows: &mut [R],
        label: impl Fn(&R) -> String,
        mut round: impl FnMut(&mut R, Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for _ in 0..self.rounds {
            for row in &mut *rows {
                self.progress.step(&label(row));
                round(row, self.budget)?;
            }
        }
        Ok(())
    }

    /// Returns the parameters of an experiment with pinned threads: CPUs, number of rounds, and their length.
    pub(crate) fn fields(&self) -> Fields {
        self.timing().with("cpus", self.placement.numbers())
    }

    /// Returns the number of rounds and their length as parameters.
    pub(crate) fn timing(&self) -> Fields {
        Fields::default()
            .with("rounds", self.rounds)
            .with("round_ms", decimals(self.budget.as_secs_f64() * 1e3, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_turns_and_the_first_error_ends_a_run() {
        let experiment = Experiment {
            rounds: [Rounds::new(3, 7), Rounds::new(2, 5)],
            run: |run| {
                let mut rows = [Vec::new(), Vec::new()];
                run.begin(rows.len());
                let mut order = 0_u64;
                run.in_turns(
                    &mut rows,
                    |row| row.len().to_string(),
                    |row, budget| {
                        order += 1;
                        row.push((order, budget.as_millis()));
                        Ok(())
                    },
                )?;
                let seen: Vec<_> = rows.concat().iter().map(|(order, ms)| format!("{order}:{ms}")).collect();
                let failed = run.in_turns(&mut [1, 2], u8::to_string, |row, _| anyhow::bail!("row {row}"));
                anyhow::ensure!(failed.is_err_and(|error| error.to_string() == "row 1"), "the error is kept");
                Ok(Report { params: run.fields().with("seen", seen), ..Report::default() })
            },
            ..Experiment::DEFAULT
        };
        let mut params = Params::new();
        params.quick = true;
        let report = experiment.measure(&params, &mut Progress::on_stderr("test")).unwrap();
        assert_eq!(report.params.value("seen"), Some(&serde_json::json!(["1:5", "3:5", "2:5", "4:5"])));
        assert_eq!(report.params.value("rounds"), Some(&2.into()));
        assert_eq!(report.params.value("round_ms"), Some(&5.0.into()));
    }
}

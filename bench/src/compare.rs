//! `compare OLD NEW`: changes between results of an experiment, and which of them exceed the noise.
//!
//! Two rows correspond if their texts and the columns by which rows are selected are equal. Two runs of one program differ by more
//! than the halves of either, so a verdict needs several runs of each. The ranges of a value must be further apart than the width of the
//! wider range, the deviation of the row's A/A columns, the change of its floor, and a step of the clock. Counts and simulations are equal
//! in each run, and need one run.

use core::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value};

use crate::experiments;
use crate::results;
use crate::sample::median;

/// Name of the command.
pub(crate) const COMPARE: &str = "compare";

pub(crate) fn command() -> Command {
    let files = |name, help| Arg::new(name).required(true).value_name(name).value_delimiter(',').help(help);
    Command::new(COMPARE)
        .about("Compares results of one experiment, as --json printed them")
        .arg(files(OLD, "The earlier result, or those of several runs: old-1.json,old-2.json,old-3.json"))
        .arg(files(NEW, "The later result, or those of several runs"))
        .arg(Arg::new(ALL).long(ALL).action(ArgAction::SetTrue).help("Show changes within the noise, too"))
        .after_help(EXAMPLE)
}

/// Returns the table of changes.
pub(crate) fn run(options: &ArgMatches) -> anyhow::Result<String> {
    let read = |name: &str| -> anyhow::Result<Vec<Value>> {
        let files = options.get_many::<String>(name).context("both results are required")?;
        files.map(|file| results::read(Path::new(file))).collect()
    };
    text(&read(OLD)?, &read(NEW)?, options.get_flag(ALL))
}

fn text(old: &[Value], new: &[Value], all: bool) -> anyhow::Result<String> {
    let mut names = old.iter().chain(new).map(|run| run["experiment"].as_str().unwrap_or_default());
    let name = names.next().context("no result is given")?;
    if let Some(other) = names.find(|other| *other != name) {
        bail!("the results are of two experiments: {name} and {other}");
    }
    let experiment = experiments::find(name);
    let axes = experiment.map_or(&[][..], |experiment| experiment.axes);
    let axes: Vec<&str> = axes.iter().map(|axis| axis.column).collect();
    let varies = if experiment.is_some_and(|experiment| experiment.without_aa.is_some()) {
        Varies::Never
    } else {
        Varies::FromRunToRun
    };
    let changes = changes(old, new, &axes, varies);
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["row", "column", "old", "new", "change", "noise", "verdict"]);
    let shown = changes.iter().filter(|change| all || change.verdict() != Verdict::Noise);
    for change in shown.clone() {
        table.add_row(change.cells());
    }
    for column in table.column_iter_mut().skip(2).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let differ = changes.iter().filter(|change| change.verdict() != Verdict::Noise).count();
    let mut text = format!("{name}: {differ} of {} values differ by more than noise\n", changes.len());
    if !table.is_empty() {
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
    if differ != 0 && varies == Varies::FromRunToRun && old.len().min(new.len()) < ENOUGH {
        let _ = writeln!(text, "\nNote: {TOO_FEW}");
    }
    if let (Some(old), Some(new)) = (old.last(), new.last()) {
        for note in notes(old, new) {
            let _ = writeln!(text, "\nNote: {note}");
        }
    }
    Ok(text.trim_end().to_owned())
}

/// Returns the verdict on each value of the rows, by its column. Rows are selected by the columns `axes`.
pub(crate) fn verdicts(old: &[Value], new: &[Value], axes: &[&str]) -> Vec<(String, Verdict)> {
    let changes = changes(old, new, axes, Varies::FromRunToRun);
    changes.into_iter().map(|change| (change.column.clone(), change.verdict())).collect()
}

/// Variation of the values between runs of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Varies {
    Never,
    FromRunToRun,
}

/// A value of a row in the runs of both sides.
#[derive(Debug)]
struct Change {
    row: String,
    column: String,
    old: Range,
    new: Range,
    /// Noise as a share; `None` if it is unknown.
    noise: Option<f64>,
    varies: Varies,
}

/// Values of the runs of one side.
#[derive(Clone, Copy, Debug)]
struct Range {
    runs: usize,
    least: f64,
    middle: f64,
    most: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Noise,
    Better,
    Worse,
    /// Beyond the noise, but the better direction is unknown, or the runs are too few to know the noise.
    Open,
}

impl Range {
    /// Returns the range of values; `None` if there are none, or if one is negative.
    fn of(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().min_by(f64::total_cmp).filter(|least| *least >= 0.0)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { runs: values.len(), least, middle: median(values.to_vec()), most })
    }

    /// Returns the width as a share of the least value: infinite if only that is zero.
    fn width(&self) -> f64 {
        // The maximum of NaN and one is one.
        (self.most / self.least).max(1.0) - 1.0
    }

    /// Returns the gap between two ranges as a share: zero if they overlap, infinite if one is zero.
    fn gap(&self, other: &Self) -> f64 {
        (self.least / other.most).max(other.least / self.most).max(1.0) - 1.0
    }
}

impl Change {
    fn share(&self) -> f64 {
        self.new.middle / self.old.middle - 1.0
    }

    fn verdict(&self) -> Verdict {
        if self.old.gap(&self.new) <= self.noise.unwrap_or(UNKNOWN).max(LEAST) + ROUNDING {
            return Verdict::Noise;
        }
        let runs = self.old.runs.min(self.new.runs);
        if self.varies == Varies::FromRunToRun && runs < ENOUGH {
            return Verdict::Open;
        }
        let share = self.share();
        let more_is_better = self.column.contains("per_s");
        let less_is_better = ["_ns", "_us", "ratio", "switches"].iter().any(|end| self.column.ends_with(end));
        match (more_is_better, less_is_better) {
            (true, _) if share > 0.0 => Verdict::Better,
            (true, _) => Verdict::Worse,
            (_, true) if share < 0.0 => Verdict::Better,
            (_, true) => Verdict::Worse,
            _ => Verdict::Open,
        }
    }

    fn cells(&self) -> [String; 7] {
        let verdict = match self.verdict() {
            Verdict::Noise => "noise",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Open => "?",
        };
        [
            self.row.clone(),
            self.column.clone(),
            results::number(self.old.middle),
            results::number(self.new.middle),
            format!("{:+.1} %", 100.0 * self.share()),
            self.noise.map_or_else(|| "unknown".to_owned(), |noise| format!("{:.1} %", 100.0 * noise)),
            verdict.to_owned(),
        ]
    }
}

fn changes(old: &[Value], new: &[Value], axes: &[&str], varies: Varies) -> Vec<Change> {
    let all = || old.iter().chain(new).flat_map(results::rows);
    let usual =
        ["aa", "rate_aa"].map(|column| median(all().filter_map(|row| from_one(row, column)).collect()));
    let mut changes = Vec::new();
    for row in new.first().into_iter().flat_map(results::rows) {
        let name = results::row_name(row, axes);
        let [before, after] = [old, new].map(|runs| {
            let same = |run| results::rows(run).find(|row| results::row_name(row, axes) == name);
            runs.iter().filter_map(same).collect::<Vec<_>>()
        });
        for column in row.keys().filter(|column| !axes.contains(&column.as_str()) && !is_control(column)) {
            let of = |rows: &[&Map<String, Value>]| Range::of(&numbers(rows, column));
            let Some((old, new)) = of(&before).filter(|old| old.middle > 0.0).zip(of(&after)) else {
                continue;
            };
            let noise = match varies {
                Varies::Never => Some(0.0),
                Varies::FromRunToRun => noise([&before, &after], [old, new], column, usual),
            };
            changes.push(Change { row: name.clone(), column: column.clone(), old, new, noise, varies });
        }
    }
    changes
}

/// Returns whether a column describes the quality of the measurement, or depends on single moments of the machine.
fn is_control(column: &str) -> bool {
    const MOMENTS: [&str; 3] = ["min_ns", "mean_ns", "count"];
    column == "aa" || column.ends_with("_aa") || column.starts_with("floor") || MOMENTS.contains(&column)
}

/// Returns whether a column is a tail, about which the A/A of the medians says nothing.
fn is_tail(column: &str) -> bool {
    ["p99_", "p999_"].iter().any(|part| column.contains(part))
}

/// Returns the change of a value by noise alone, as a share; `usual` is the median A/A of all rows, for medians and for rates.
fn noise(
    [old, new]: [&[&Map<String, Value>]; 2],
    ranges: [Range; 2],
    column: &str,
    usual: [f64; 2],
) -> Option<f64> {
    // A rate has a separate A/A in rows that have both.
    let is_rate = column.contains("per_s") || column.starts_with("rate");
    let with_aa = old.iter().chain(new).filter(|_| !is_tail(column));
    let halves = with_aa.flat_map(|row| match from_one(row, "rate_aa").filter(|_| is_rate) {
        Some(noise) => vec![noise, usual[1]],
        None => from_one(row, "aa").map_or_else(Vec::new, |noise| vec![noise, usual[0]]),
    });
    let runs = ranges.iter().filter(|range| range.runs >= ENOUGH).map(Range::width);
    let floor = |rows| Range::of(&numbers(rows, "floor_ns"));
    let floor = floor(old)
        .zip(floor(new))
        .filter(|_| !is_tail(column))
        .map(|(old, new)| (new.middle / old.middle - 1.0).abs());
    let known = halves.filter(|noise| noise.is_finite()).chain(runs).max_by(f64::total_cmp)?;
    let step =
        if column.ends_with("p50_ns") { CLOCK_STEP_NS / ranges[0].least.min(ranges[1].least) } else { 0.0 };
    Some(known.max(floor.unwrap_or(0.0)).max(step))
}

/// Returns the numbers in a column of some rows.
fn numbers(rows: &[&Map<String, Value>], column: &str) -> Vec<f64> {
    rows.iter().filter_map(|row| row.get(column).and_then(Value::as_f64)).collect()
}

/// Returns the deviation of an A/A column from one.
fn from_one(row: &Map<String, Value>, column: &str) -> Option<f64> {
    row.get(column).and_then(Value::as_f64).map(|aa| (aa.max(1.0 / aa) - 1.0).abs())
}

/// Returns notes on two results: differing hosts, and differing verdicts of claims.
fn notes(old: &Value, new: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for fact in
        ["kernel", "cpu", "cores_allowed", "preemption", "clocksource", "rustc", "profile", "accelerator"]
    {
        let (before, now) = (&old["host"][fact], &new["host"][fact]);
        if before != now {
            notes.push(format!("the hosts differ: {fact} was {before} and is {now}"));
        }
    }
    for (when, result) in [("earlier", old), ("later", new)] {
        if result["host"]["oversubscribed"] == true {
            notes
                .push(format!("the {when} run had more threads than CPUs: expect more noise than A/A shows"));
        }
    }
    for claim in new["claims"].as_array().into_iter().flatten() {
        let before = old["claims"].as_array().into_iter().flatten().find(|old| old["id"] == claim["id"]);
        if let Some(before) = before.filter(|before| before["verdict"] != claim["verdict"]) {
            let id = claim["id"].as_str().unwrap_or_default();
            let [old, new] = [before, claim].map(|claim| {
                let verdict = claim["verdict"].as_str().unwrap_or_default();
                format!("{verdict} ({})", results::word(&claim["measured"]))
            });
            notes.push(format!("{id}: {old} before, {new} now"));
        }
    }
    notes
}

const OLD: &str = "OLD";
const NEW: &str = "NEW";
const ALL: &str = "all";

const EXAMPLE: &str =
    "Example, with three runs of each build, taken in turns so that a slow spell of the machine meets both:
  for run in 1 2 3; do
    ./old latency --json > old-$run.json; ./new latency --json > new-$run.json
  done
  pronto-bench compare old-1.json,old-2.json,old-3.json new-1.json,new-2.json,new-3.json";

const TOO_FEW: &str = "a single run does not show how runs differ, hence no verdict. Give three runs or more of each, \
taken in turns: compare old-1.json,old-2.json,old-3.json new-1.json,new-2.json,new-3.json";

/// Number of runs of each side that show how runs of one program differ.
const ENOUGH: usize = 3;

/// Smallest change that counts, because runs can agree by chance.
const LEAST: f64 = 0.02;

/// Tolerance for rounding of quotients.
const ROUNDING: f64 = 1e-9;

/// Smallest change that is shown if the noise is unknown.
const UNKNOWN: f64 = 0.05;

/// Step of a median of single timings when the duration crosses the grain of the clock, in nanoseconds ([`crate::sample`]).
const CLOCK_STEP_NS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use serde_json::json;

    use super::*;

    fn result(p50: u64, rate: u64, aa: f64, floor: u64) -> Value {
        json!({
            "experiment": "latency", "host": {"kernel": "6.1"}, "claims": [{"id": "L1", "measured": 2, "verdict": if p50 < 150 { "holds" } else { "does not hold" }}],
            "rows": [{"provider": "shm", "wait": "spin", "size": 32, "p50_ns": p50, "rpc_per_s": rate, "aa": aa, "floor_ns": floor}],
        })
    }

    fn verdicts(old: &[Value], new: &[Value]) -> Vec<Verdict> {
        let axes = ["provider", "wait", "size"];
        changes(old, new, &axes, Varies::FromRunToRun).iter().map(Change::verdict).collect()
    }

    /// Runs with these medians and rates.
    fn runs(seen: [(u64, u64); 3]) -> [Value; 3] {
        seen.map(|(p50, rate)| result(p50, rate, 1.0, 50))
    }

    const ALIKE: [(u64, u64); 3] = [(500, 1_000), (510, 1_010), (520, 990)];

    #[test]
    fn a_change_counts_if_the_gap_between_runs_exceeds_their_spread() {
        use Verdict::{Better, Noise, Worse};
        let old = runs(ALIKE);
        assert_eq!(verdicts(&old, &runs([(510, 1_010), (500, 990), (530, 1_000)])), [Noise, Noise]);
        assert_eq!(
            verdicts(&old, &runs([(530, 900), (530, 960), (540, 1_000)])),
            [Noise, Noise],
            "the gap is too small"
        );
        assert_eq!(verdicts(&old, &runs([(600, 2_000), (580, 1_980), (590, 2_010)])), [Worse, Better]);
        assert_eq!(verdicts(&old, &runs([(400, 500), (410, 505), (405, 510)])), [Better, Worse]);
        assert_eq!(verdicts(&old, &runs([(500, 0), (510, 0), (520, 0)])), [Noise, Worse], "always zero");
        assert_eq!(verdicts(&old, &runs([(500, 0), (510, 0), (520, 10)])), [Noise, Noise], "sometimes zero");
        let scattered = runs([(600, 1_000), (1_200, 1_000), (2_400, 1_000)]);
        assert_eq!(verdicts(&old, &scattered), [Noise, Noise]);
    }

    #[test]
    fn halves_floors_and_clock_steps_count_as_noise() {
        use Verdict::{Noise, Worse};
        let old = runs([(100, 1_000); 3]);
        let slower = |p50, aa, floor| [(); 3].map(|()| result(p50, 1_000, aa, floor));
        assert_eq!(verdicts(&old, &slower(110, 1.0, 50)), [Noise, Noise], "one step of a clock");
        assert_eq!(verdicts(&old, &slower(120, 1.0, 50)), [Worse, Noise]);
        assert_eq!(verdicts(&old, &slower(130, 0.7, 50)), [Noise, Noise], "halves");
        assert_eq!(verdicts(&old, &slower(120, 1.0, 64)), [Noise, Noise], "a floor");
    }

    #[test]
    fn tails_are_judged_by_how_runs_differ_and_not_by_the_halves_of_medians() {
        let with_tail = |p99: u64| {
            let mut run = result(100, 1_000, 0.5, 50);
            run["rows"][0]["p99_ns"] = json!(p99);
            run
        };
        let verdict = |new: [u64; 3]| {
            let old = [1_000, 1_100, 1_200].map(with_tail);
            let changes =
                changes(&old, &new.map(with_tail), &["provider", "wait", "size"], Varies::FromRunToRun);
            changes.iter().find(|change| change.column == "p99_ns").map(Change::verdict)
        };
        assert_eq!(verdict([1_100, 1_150, 1_300]), Some(Verdict::Noise));
        assert_eq!(verdict([2_000, 2_100, 2_200]), Some(Verdict::Worse));
    }

    #[test]
    fn one_run_of_each_gives_no_verdict_unless_runs_never_differ() {
        let (old, new) = (result(100, 1_000, 1.0, 50), result(160, 1_000, 1.0, 50));
        assert_eq!(verdicts(from_ref(&old), from_ref(&new)), [Verdict::Open, Verdict::Noise]);
        assert_eq!(verdicts(from_ref(&old), from_ref(&old)), [Verdict::Noise, Verdict::Noise]);
        let counted = changes(&[old], &[new], &["provider", "wait", "size"], Varies::Never);
        assert_eq!(counted[0].verdict(), Verdict::Worse);
    }

    #[test]
    fn rows_correspond_by_their_names() {
        let mut other = result(200, 9, 1.0, 50);
        other["rows"][0]["size"] = json!(64);
        assert!(verdicts(&[result(100, 1, 1.0, 50)], &[other]).is_empty());
    }

    #[test]
    fn the_text_names_the_row_its_change_and_the_claim() {
        let (old, new) = (result(100, 1_000, 1.0, 50), result(160, 1_000, 1.0, 50));
        let three = |run: &Value| [(); 3].map(|()| run.clone());
        let shown = text(&three(&old), &three(&new), false).unwrap();
        for part in [
            "1 of 2 values",
            "shm spin size 32",
            "p50_ns",
            "+60.0 %",
            "WORSE",
            "L1: holds (2) before, does not hold (2) now",
        ] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
        assert!(!shown.contains("rpc_per_s") && !shown.contains(TOO_FEW), "{shown}");
        let shown = text(&[old], &[new], false).unwrap();
        assert!(shown.contains(TOO_FEW) && !shown.contains("WORSE"), "{shown}");
    }

    #[test]
    fn results_of_two_experiments_are_not_compared() {
        let mut other = result(1, 1, 1.0, 1);
        other["experiment"] = json!("rate");
        let error = text(&[result(1, 1, 1.0, 1)], &[other], false).unwrap_err();
        assert_eq!(error.to_string(), "the results are of two experiments: latency and rate");
    }
}

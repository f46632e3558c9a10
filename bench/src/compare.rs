//! `compare OLD NEW`: what changed between two results of an experiment, and which changes are more than noise.
//!
//! Rows are the same if everything that names them is: texts, and the columns by which rows are chosen. The noise of a row is what
//! its A/A columns say in either file, or by how much its floor differs between them, whichever is more: a floor that moved is a
//! machine that moved.

use core::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value};

use crate::experiments;
use crate::results;
use crate::sample::median;

/// The command.
pub(crate) const COMPARE: &str = "compare";

pub(crate) fn command() -> Command {
    let file = |name, help| Arg::new(name).required(true).value_name(name).help(help);
    Command::new(COMPARE)
        .about("Compares two results of one experiment, as --json printed them")
        .arg(file(OLD, "The earlier result"))
        .arg(file(NEW, "The later result"))
        .arg(Arg::new(ALL).long(ALL).action(ArgAction::SetTrue).help("Show changes within the noise, too"))
}

/// The table of changes.
///
/// # Errors
/// If a file cannot be read, or they are of two experiments.
pub(crate) fn run(options: &ArgMatches) -> anyhow::Result<String> {
    let read =
        |name: &str| results::read(Path::new(options.get_one::<String>(name).context("both are required")?));
    text(&read(OLD)?, &read(NEW)?, options.get_flag(ALL))
}

fn text(old: &Value, new: &Value, all: bool) -> anyhow::Result<String> {
    let name = old["experiment"].as_str().context("the earlier result names no experiment")?;
    ensure!(
        new["experiment"] == name,
        "the results are of two experiments: {name} and {}",
        new["experiment"]
    );
    let axes = experiments::find(name).map_or(&[][..], |experiment| experiment.axes());
    let axes: Vec<&str> = axes.iter().map(|axis| axis.column).collect();
    let changes = changes(old, new, &axes);
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
    let mut text =
        format!("{name}: {} of {} values differ by more than noise\n", shown.count(), changes.len());
    if !table.is_empty() {
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
    for note in notes(old, new) {
        let _ = writeln!(text, "\nNote: {note}");
    }
    Ok(text.trim_end().to_owned())
}

/// A value of a row in both files.
#[derive(Debug)]
struct Change {
    row: String,
    column: String,
    old: f64,
    new: f64,
    /// A share; none if neither file says.
    noise: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Noise,
    Better,
    Worse,
    /// Beyond the noise, and nobody said which way is better; or nothing says how large the noise is.
    Open,
}

impl Change {
    fn share(&self) -> f64 {
        self.new / self.old - 1.0
    }

    fn verdict(&self) -> Verdict {
        let share = self.share();
        let Some(noise) = self.noise else {
            return if share.abs() < UNKNOWN { Verdict::Noise } else { Verdict::Open };
        };
        if share.abs() <= noise.max(LEAST) {
            return Verdict::Noise;
        }
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
            results::number(self.old),
            results::number(self.new),
            format!("{:+.1} %", 100.0 * self.share()),
            self.noise.map_or_else(|| "unknown".to_owned(), |noise| format!("{:.1} %", 100.0 * noise)),
            verdict.to_owned(),
        ]
    }
}

fn changes(old: &Value, new: &Value, axes: &[&str]) -> Vec<Change> {
    let of = |column: &'static str| {
        results::rows(old).chain(results::rows(new)).filter_map(move |row| from_one(row, column))
    };
    let usual = [median(of("aa").collect()), median(of("rate_aa").collect())];
    let mut changes = Vec::new();
    for row in results::rows(new) {
        let name = results::row_name(row, axes);
        let before = results::rows(old).find(|before| results::row_name(before, axes) == name);
        let Some(before) = before else { continue };
        for (column, value) in row {
            let pair = before.get(column).and_then(Value::as_f64).zip(value.as_f64());
            let Some((old, new)) = pair else { continue };
            if !axes.contains(&column.as_str()) && !is_control(column) && old != 0.0 {
                let noise = noise(before, row, column, usual);
                changes.push(Change { row: name.clone(), column: column.clone(), old, new, noise });
            }
        }
    }
    changes
}

/// Columns that say how good the measurement is, and those whose noise nothing says.
fn is_control(column: &str) -> bool {
    const TAILS: [&str; 6] = ["min_ns", "p99_ns", "p999_ns", "mean_ns", "batch_ns", "count"];
    column == "aa" || column.ends_with("_aa") || column.starts_with("floor") || TAILS.contains(&column)
}

/// What noise alone makes of a value, as a share; `usual` is that of the middle row, for medians and for rates.
fn noise(old: &Map<String, Value>, new: &Map<String, Value>, column: &str, usual: [f64; 2]) -> Option<f64> {
    // A rate has its own, where a row has both.
    let is_rate = column.contains("per_s") || column.starts_with("rate");
    let of = |row: &Map<String, Value>| match from_one(row, "rate_aa").filter(|_| is_rate) {
        Some(noise) => Some((noise, usual[1])),
        None => from_one(row, "aa").map(|noise| (noise, usual[0])),
    };
    let halves = [of(old), of(new)].into_iter().flatten().flat_map(|(own, usual)| [own, usual]);
    let number = |row: &Map<String, Value>| row.get("floor_ns").and_then(Value::as_f64);
    let floor = number(old).zip(number(new)).map(|(old, new)| (new / old - 1.0).abs());
    let halves = halves.filter(|noise| noise.is_finite()).max_by(f64::total_cmp);
    halves.map(|noise| floor.map_or(noise, |floor| noise.max(floor)))
}

/// By how much an A/A column is off one.
fn from_one(row: &Map<String, Value>, column: &str) -> Option<f64> {
    row.get(column).and_then(Value::as_f64).map(|aa| (aa.max(1.0 / aa) - 1.0).abs())
}

/// What a reader must know of two results: hosts that differ, verdicts that do, rows that only one has.
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
            notes.push(format!(
                "the {when} run had more threads than CPUs: expect noise beyond what A/A says"
            ));
        }
    }
    for claim in new["claims"].as_array().into_iter().flatten() {
        let before = old["claims"].as_array().into_iter().flatten().find(|old| old["id"] == claim["id"]);
        if let Some(before) = before.filter(|before| before["holds"] != claim["holds"]) {
            let id = claim["id"].as_str().unwrap_or_default();
            let verdict = if claim["holds"] == true { "holds now" } else { "holds no more" };
            notes.push(format!("{id} {verdict}: {} before, {} now", before["measured"], claim["measured"]));
        }
    }
    notes
}

const OLD: &str = "OLD";
const NEW: &str = "NEW";
const ALL: &str = "all";

/// A change below this is none, whatever A/A says: two halves of a run can agree by chance.
const LEAST: f64 = 0.02;

/// Without anything that says how large the noise is, this is too little to be shown.
const UNKNOWN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(p50: u64, rate: u64, aa: f64, floor: u64) -> Value {
        json!({
            "experiment": "latency", "host": {"kernel": "6.1"}, "claims": [{"id": "L1", "measured": 2, "holds": p50 < 150}],
            "rows": [{"provider": "shm", "wait": "spin", "size": 32, "p50_ns": p50, "rpc_per_s": rate, "aa": aa, "floor_ns": floor}],
        })
    }

    fn verdicts(old: &Value, new: &Value) -> Vec<Verdict> {
        changes(old, new, &["provider", "wait", "size"]).iter().map(Change::verdict).collect()
    }

    #[test]
    fn a_change_counts_when_it_is_more_than_either_half_and_the_floor_say() {
        use Verdict::{Better, Noise, Worse};
        let old = result(100, 1_000, 1.01, 50);
        assert_eq!(verdicts(&old, &result(104, 1_000, 1.0, 50)), [Worse, Noise]);
        assert_eq!(verdicts(&old, &result(104, 1_000, 0.90, 50)), [Noise, Noise]);
        assert_eq!(verdicts(&old, &result(112, 1_000, 1.0, 50)), [Worse, Noise]);
        assert_eq!(verdicts(&old, &result(104, 1_000, 1.0, 54)), [Noise, Noise]);
        assert_eq!(verdicts(&old, &result(90, 2_000, 1.0, 50)), [Better, Better]);
        assert_eq!(verdicts(&old, &result(100, 500, 1.0, 50)), [Noise, Worse]);
    }

    #[test]
    fn rows_are_found_by_what_names_them() {
        let mut other = result(200, 9, 1.0, 50);
        other["rows"][0]["size"] = json!(64);
        assert!(verdicts(&result(100, 1, 1.0, 50), &other).is_empty());
    }

    #[test]
    fn what_is_shown_names_the_row_its_change_and_the_claim() {
        let text = text(&result(100, 1_000, 1.0, 50), &result(160, 1_000, 1.0, 50), false).unwrap();
        for part in ["1 of 2 values", "shm spin 32", "p50_ns", "+60.0 %", "WORSE", "L1 holds no more"] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("rpc_per_s"), "{text}");
    }

    #[test]
    fn results_of_two_experiments_are_not_compared() {
        let mut other = result(1, 1, 1.0, 1);
        other["experiment"] = json!("rate");
        assert!(text(&result(1, 1, 1.0, 1), &other, false).is_err());
    }
}

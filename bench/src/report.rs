//! The result of an experiment, as one JSON object or as a human-readable table.

use core::fmt;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

use crate::claim::Claim;
use crate::experiment::Experiment;
use crate::host::Host;
use crate::params::Params;
use crate::plot::{Figure, Spread};
use crate::sample::Sample;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Conditions of the measurement, in addition to the user's choices: CPUs, rounds, times.
    pub(crate) params: Fields,
    /// Measured rows, all with the same columns in the same order.
    pub(crate) rows: Vec<Fields>,
    /// Statements of a paper or of our own design about these rows, and whether they hold here.
    pub(crate) claims: Vec<Claim>,
    /// Figures that `--plots` writes.
    pub(crate) figures: Vec<Figure>,
    /// Traces that `--trace` writes.
    pub(crate) traces: Vec<TraceFile>,
    /// Facts that a reader must know, above all the reason for each missing row.
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// Adds a note.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Returns the object that `--json` prints.
    pub(crate) fn to_json(&self, experiment: &Experiment, params: &Params, host: &Host) -> Value {
        let mut asked = Fields::default().with("quick", params.quick);
        for (column, values) in params.chosen() {
            asked = asked.with(column, values);
        }
        asked.0.extend(self.params.0.iter().cloned());
        let asked = asked.with("notes", self.notes.as_slice());
        serde_json::json!({
            "experiment": experiment.name,
            "paper": experiment.paper,
            "figure": experiment.figure,
            "host": host,
            "params": asked,
            "rows": self.rows,
            "claims": self.claims,
        })
    }

    /// Writes the table, the claims below it, and the notes.
    pub(crate) fn write_text(
        &self,
        out: &mut dyn fmt::Write,
        experiment: &Experiment,
        host: &Host,
    ) -> fmt::Result {
        writeln!(out, "{}: {}", experiment.name, experiment.about)?;
        writeln!(out, "{}\n", host.summary())?;
        let Some(first) = self.rows.first() else {
            writeln!(out, "No row was measured.")?;
            return self.write_notes(out, host);
        };
        let rows = self.rows.iter().map(|row| row.0.iter().map(|(_, value)| cell(value)).collect());
        writeln!(out, "{}", aligned(first.0.iter().map(|(column, _)| (*column).to_owned()).collect(), rows))?;
        if !self.claims.is_empty() {
            let header = ["claim", "published", "bar", "measured", "verdict", "statement"];
            writeln!(
                out,
                "\n{}",
                aligned(header.map(str::to_owned).to_vec(), self.claims.iter().map(cells))
            )?;
            for claim in self.claims.iter().filter(|claim| !claim.detail.is_empty()) {
                writeln!(out, "\n{}: {}", claim.id, claim.detail)?;
            }
        }
        self.write_notes(out, host)
    }

    fn write_notes(&self, out: &mut dyn fmt::Write, host: &Host) -> fmt::Result {
        for note in &self.notes {
            writeln!(out, "\nNote: {note}")?;
        }
        if host.oversubscribed {
            let runnable = host.runnable.unwrap_or_default();
            writeln!(
                out,
                "\nNote: {runnable} threads wanted {} CPUs when this began; expect scheduling delays in every row.",
                host.cores
            )?;
        }
        Ok(())
    }
}

/// A trace for <https://ui.perfetto.dev>.
#[derive(Clone, Debug)]
pub(crate) struct TraceFile {
    /// Name of the file without its extension, which is `json`.
    pub(crate) file: &'static str,
    /// Chrome's trace events.
    pub(crate) text: String,
}

/// Named values in display order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Adds a column.
    pub(crate) fn with(mut self, column: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((column, value.into()));
        self
    }

    /// Adds the columns of a sample: `min_ns`, `p50_ns`, `p99_ns`, `p999_ns`, `mean_ns`, `batch_ns`, `aa`.
    pub(crate) fn with_sample(self, sample: &Sample) -> Self {
        self.with("min_ns", sample.min_ns)
            .with("p50_ns", sample.p50_ns)
            .with("p99_ns", sample.p99_ns)
            .with("p999_ns", sample.p999_ns)
            .with("mean_ns", decimals(sample.mean_ns, 1))
            .with("batch_ns", decimals(sample.batch_ns, 1))
            .with_aa(sample)
    }

    /// Adds the column `aa` of a sample.
    pub(crate) fn with_aa(self, sample: &Sample) -> Self {
        self.with("aa", sample.aa.map(|aa| decimals(aa, 2)))
    }

    /// Adds the columns `seconds`, `least` and `most`: median and extremes of a time over all seeds, which are `null` if a run was
    /// given up.
    pub(crate) fn with_spread(self, spread: Option<Spread>, digits: i32) -> Self {
        let part = |part: fn(Spread) -> f64| decimals(spread.map_or(f64::NAN, part), digits);
        self.with("seconds", part(|spread| spread.middle))
            .with("least", part(|spread| spread.least))
            .with("most", part(|spread| spread.most))
    }

    /// Returns the value of `column`.
    #[cfg(test)]
    pub(crate) fn value(&self, column: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == column).map(|(_, value)| value)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, value) in &self.0 {
            map.serialize_entry(column, value)?;
        }
        map.end()
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0.into_iter().map(|(column, value)| (column.to_owned(), value)).collect())
    }
}

/// Returns `value` with at most `digits` decimals, the resolution of the instrument; `null` if it is not a number.
pub(crate) fn decimals(value: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    Number::from_f64((value * scale).round() / scale).map_or(Value::Null, Value::Number)
}

fn cells(claim: &Claim) -> Vec<String> {
    let statement = claim.statement();
    let values = [statement.published.to_json(), claim.bar.clone(), claim.measured.clone()];
    let [published, bar, measured] = values.map(|value| cell(&value));
    vec![
        claim.id.to_owned(),
        published,
        bar,
        measured,
        claim.verdict.name().to_owned(),
        statement.text.to_owned(),
    ]
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => grouped(&number.to_string()),
        other => other.to_string(),
    }
}

/// Returns 1234567.8 as `1_234_567.8`: digits in threes, still one word and still a Rust literal.
fn grouped(number: &str) -> String {
    let whole = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let mut text = String::with_capacity(number.len() + whole / 3);
    for (index, digit) in number.char_indices() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Formats a table. Columns with a number in the first row are aligned to the right.
fn aligned(header: Vec<String>, rows: impl Iterator<Item = Vec<String>> + Clone) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    let first = rows.clone().next().unwrap_or_default();
    table.set_header(header);
    table.add_rows(rows);
    for (column, text) in table.column_iter_mut().zip(first) {
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// One rule below the header; columns are separated by spaces.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    fn report() -> Report {
        let mut report = Report::default();
        report.rows.push(Fields::default().with("name", "a").with("p50_ns", 1_234_567_u64));
        report.rows.push(Fields::default().with("name", "bb").with("p50_ns", Value::Null));
        report.claims.push(Claim::at_most("L1", "as fast as light", 1.0, 2.345, 2));
        report.note("nothing is as fast as light");
        report
    }

    #[test]
    fn the_object_has_exactly_the_keys_of_the_contract() {
        let host = Host::inspect();
        let mut params = Params::new();
        params.choose("name", vec!["a".into()]);
        let json = report().to_json(experiments::ALL[0], &params, &host);
        let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["claims", "experiment", "figure", "host", "paper", "params", "rows"]);
        assert_eq!(json["params"]["name"], serde_json::json!(["a"]));
        assert_eq!(json["params"]["notes"][0], "nothing is as fast as light");
        assert_eq!(json["rows"][1], serde_json::json!({"name": "bb", "p50_ns": null}));
        assert_eq!(
            (&json["claims"][0]["bar"], &json["claims"][0]["verdict"]),
            (&serde_json::json!(1.0), &serde_json::json!("does not hold"))
        );
    }

    #[test]
    fn the_text_shows_rows_claims_and_notes() {
        let mut text = String::new();
        report().write_text(&mut text, experiments::ALL[0], &Host::inspect()).unwrap();
        for expected in [
            "1_234_567",
            "bb",
            "L1",
            "does not hold",
            "as fast as light",
            "Note: nothing is as fast as light",
        ] {
            assert!(text.contains(expected), "{expected} is missing in:\n{text}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!(["0", "999", "1000", "12345678"].map(grouped), ["0", "999", "1_000", "12_345_678"]);
        assert_eq!(["1234.5678", "0.5", "-1234"].map(grouped), ["1_234.5678", "0.5", "-1234"]);
        assert_eq!(decimals(0.126, 2), serde_json::json!(0.13));
        assert_eq!(decimals(f64::NAN, 2), Value::Null);
        assert_eq!(cell(&serde_json::json!([1, 2])), "[1,2]");
    }
}

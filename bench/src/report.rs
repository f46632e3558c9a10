//! What an experiment hands back, as one JSON object or as a table a person reads.

use core::fmt;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

use crate::experiment::Experiment;
use crate::host::Host;
use crate::params::Params;
use crate::plot::Figure;
use crate::sample::Sample;

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How it was measured, beyond what was asked for: CPUs, rounds, times.
    pub params: Fields,
    /// The measured rows, all with the same columns in the same order.
    pub rows: Vec<Fields>,
    /// What a paper, or our own design, says of these rows, and whether it holds here.
    pub claims: Vec<Claim>,
    /// What `--plots` writes.
    pub figures: Vec<Figure>,
    /// What `--trace` writes.
    pub traces: Vec<TraceFile>,
    notes: Vec<String>,
}

impl Report {
    /// Adds what a reader must know, above all why a row is missing.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The one object that `--json` prints.
    #[must_use]
    pub fn to_json(&self, experiment: &dyn Experiment, params: &Params, host: &Host) -> Value {
        let mut asked = Fields::default().with("quick", params.quick);
        for (column, values) in params.chosen() {
            asked = asked.with(column, values);
        }
        asked.0.extend(self.params.0.iter().cloned());
        let asked = asked.with("notes", self.notes.as_slice());
        serde_json::json!({
            "experiment": experiment.name(),
            "paper": experiment.paper(),
            "figure": experiment.figure(),
            "host": host,
            "params": asked,
            "rows": self.rows,
            "claims": self.claims,
        })
    }

    /// The table, the claims below it, and what to know about both.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_text(
        &self,
        out: &mut dyn fmt::Write,
        experiment: &dyn Experiment,
        host: &Host,
    ) -> fmt::Result {
        writeln!(out, "{}: {}", experiment.name(), experiment.about())?;
        writeln!(out, "{}\n", host.summary())?;
        let Some(first) = self.rows.first() else {
            writeln!(out, "No row was measured.")?;
            return self.write_notes(out, host);
        };
        let rows = self.rows.iter().map(|row| row.0.iter().map(|(_, value)| cell(value)).collect());
        writeln!(out, "{}", aligned(first.0.iter().map(|(column, _)| (*column).to_owned()).collect(), rows))?;
        if !self.claims.is_empty() {
            let header = ["claim", "published", "measured", "holds", "what it says"];
            let claims = self.claims.iter().map(Claim::cells);
            writeln!(out, "\n{}", aligned(header.map(str::to_owned).to_vec(), claims))?;
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
pub struct TraceFile {
    /// The file's name without its ending, which is `json`.
    pub file: &'static str,
    /// Chrome's trace events.
    pub text: String,
}

/// Named values in the order in which they are to be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// With one more column.
    #[must_use]
    pub fn with(mut self, column: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((column, value.into()));
        self
    }

    /// With the columns of a sample: `min_ns`, `p50_ns`, `p99_ns`, `p999_ns`, `mean_ns`, `batch_ns`, `aa`.
    #[must_use]
    pub fn with_sample(self, sample: &Sample) -> Self {
        self.with("min_ns", sample.min_ns)
            .with("p50_ns", sample.p50_ns)
            .with("p99_ns", sample.p99_ns)
            .with("p999_ns", sample.p999_ns)
            .with("mean_ns", decimals(sample.mean_ns, 1))
            .with("batch_ns", decimals(sample.batch_ns, 1))
            .with("aa", sample.aa.map_or(Value::Null, |aa| decimals(aa, 2)))
    }

    /// The value of `column`.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<&Value> {
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

/// One statement about the rows, and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Its id in the table of claims, or our own.
    pub id: &'static str,
    /// The statement; if it does not hold here and the reason is known, the reason too.
    pub text: String,
    /// What was published, or the bound we set ourselves.
    pub published: Value,
    /// What this run gave.
    pub measured: Value,
    /// Whether the statement holds on this machine in this run.
    pub holds: bool,
}

impl Claim {
    fn cells(&self) -> Vec<String> {
        let holds = if self.holds { "yes" } else { "no" };
        vec![
            self.id.to_owned(),
            cell(&self.published),
            cell(&self.measured),
            holds.to_owned(),
            self.text.clone(),
        ]
    }
}

/// `value` with at most `digits` decimals, which is all the instrument gives; `null` if it is not a number.
#[must_use]
pub fn decimals(value: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    Number::from_f64((value * scale).round() / scale).map_or(Value::Null, Value::Number)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => grouped(&number.to_string()),
        other => other.to_string(),
    }
}

/// 1234567.8 as `1_234_567.8`: digits in threes, still one word and still a Rust literal.
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

/// Columns side by side; those that hold a number in the first row are aligned to the right.
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

/// One rule below the header, nothing else: columns are kept apart by space.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    fn report() -> Report {
        let mut report = Report::default();
        report.rows.push(Fields::default().with("name", "a").with("p50_ns", 1_234_567_u64));
        report.rows.push(Fields::default().with("name", "bb").with("p50_ns", Value::Null));
        report.claims.push(Claim {
            id: "Z1",
            text: "as fast as light".into(),
            published: decimals(1.0, 1),
            measured: decimals(2.345, 2),
            holds: false,
        });
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
            json["claims"][0],
            serde_json::json!({
                "id": "Z1", "text": "as fast as light", "published": 1.0, "measured": 2.35, "holds": false
            })
        );
    }

    #[test]
    fn the_text_shows_rows_claims_and_notes() {
        let mut text = String::new();
        report().write_text(&mut text, experiments::ALL[0], &Host::inspect()).unwrap();
        for expected in ["1_234_567", "bb", "Z1", "no", "Note: nothing is as fast as light"] {
            assert!(text.contains(expected), "{expected} is missing in:\n{text}");
        }
    }

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!(["0", "999", "1000", "12345678"].map(grouped), ["0", "999", "1_000", "12_345_678"]);
        assert_eq!(["1234.5678", "0.5", "-1234"].map(grouped), ["1_234.5678", "0.5", "-1234"]);
        assert_eq!(decimals(0.126, 2), serde_json::json!(0.13));
        assert_eq!(decimals(f64::NAN, 2), Value::Null);
        assert_eq!(cell(&serde_json::json!([1, 2])), "[1,2]");
    }
}

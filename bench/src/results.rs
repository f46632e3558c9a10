//! Results of experiments as files: the object that `--json` prints, read again.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value};

/// Reads a result.
///
/// # Errors
/// If it is no result of an experiment.
pub(crate) fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
    let named = value["experiment"].is_string() && value["rows"].is_array();
    anyhow::ensure!(named, "{} is no result of an experiment, as --json prints it", path.display());
    Ok(value)
}

/// Its rows.
pub(crate) fn rows(result: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    result["rows"].as_array().into_iter().flatten().filter_map(Value::as_object)
}

/// What tells a row from the others: the columns by which rows are chosen, in their order, then all other texts but remarks.
pub(crate) fn row_name(row: &Map<String, Value>, axes: &[&str]) -> String {
    row_name_among(row, axes, 0)
}

/// What tells a row from the others that are alike in the first `alike` of these columns.
pub(crate) fn row_name_among(row: &Map<String, Value>, axes: &[&str], alike: usize) -> String {
    let chosen = axes.iter().skip(alike).filter_map(|column| Some(name(column, row.get(*column)?)));
    let texts = row
        .iter()
        .filter(|(column, value)| value.is_string() && !axes.contains(&column.as_str()))
        .filter(|(column, _)| !is_remark(column))
        .map(|(_, value)| word(value));
    let words: Vec<_> = chosen.chain(texts).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// A value as part of a name: with what it is one of, where it does not say so itself; a number in full.
fn name(column: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Number(number) => format!("{column} {number}"),
        Value::String(text) if text == "on" || text == "off" => format!("{column} {text}"),
        value => word(value),
    }
}

/// Whether a column says something about a row and does not name it.
pub(crate) fn is_remark(column: &str) -> bool {
    REMARKS.contains(&column)
}

/// A value as it is read.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(value) => value.as_f64().map_or_else(|| value.to_string(), number),
        other => other.to_string(),
    }
}

/// A number with four digits or so; millions as such.
pub(crate) fn number(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 1e9 => format!("{:.2} G", value / 1e9),
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text.contains('.') && !text.contains(' ') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Texts that say something about a row, and do not name it.
const REMARKS: &[&str] = &["version", "how", "floor"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_named_by_what_chooses_it_and_by_its_texts() {
        let row = json!({"size": 32, "provider": "shm", "kind": "call", "how": "spin", "p50_ns": 100});
        let row = row.as_object().unwrap();
        assert_eq!(row_name(row, &["provider", "size"]), "shm size 32 call");
        assert_eq!(row_name_among(row, &["provider", "size", "kind"], 1), "size 32 call");
    }

    #[test]
    fn a_size_stands_in_full_in_a_name() {
        let row = json!({"size": 65_536});
        assert_eq!(row_name(row.as_object().unwrap(), &["size"]), "size 65536");
    }

    #[test]
    fn numbers_are_short() {
        let short = [0.0123, 0.8, 1.5, 32.0, 110.4, 52_345.0, 14_050_000.0].map(number);
        assert_eq!(short, ["0.0123", "0.8", "1.5", "32", "110", "52.3 k", "14.05 M"]);
    }
}

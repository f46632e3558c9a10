//! Results of experiments as files: the object that `--json` prints.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value};

/// Reads a result.
pub(crate) fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not valid JSON", path.display()))?;
    let named = value["experiment"].is_string() && value["rows"].is_array();
    anyhow::ensure!(named, "{} is not a result of an experiment, as printed by --json", path.display());
    Ok(value)
}

/// Returns the rows of a result.
pub(crate) fn rows(result: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    result["rows"].as_array().into_iter().flatten().filter_map(Value::as_object)
}

/// Returns the name of a row: the selection columns in their order, then all other texts except remarks.
pub(crate) fn row_name(row: &Map<String, Value>, axes: &[&str]) -> String {
    row_name_among(row, axes, 0)
}

/// Returns the name of a row among rows that are equal in the first `alike` selection columns.
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

/// Returns a value as part of a name: with its column, if the value alone is ambiguous; a number in full.
pub(crate) fn name(column: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Number(number) => format!("{column} {number}"),
        Value::String(text) if text == "on" || text == "off" => format!("{column} {text}"),
        value => word(value),
    }
}

/// Returns whether a column is a remark about a row and not part of its name.
pub(crate) fn is_remark(column: &str) -> bool {
    REMARKS.contains(&column)
}

/// Formats a value.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(value) => value.as_f64().map_or_else(|| value.to_string(), number),
        other => other.to_string(),
    }
}

/// Formats a number with about four digits.
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

/// Columns with remarks about a row that are not part of its name.
const REMARKS: &[&str] = &["version", "how", "floor"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_named_by_its_selection_and_its_texts() {
        let row = json!({"size": 32, "provider": "shm", "kind": "call", "how": "spin", "p50_ns": 100});
        let row = row.as_object().unwrap();
        assert_eq!(row_name(row, &["provider", "size"]), "shm size 32 call");
        assert_eq!(row_name_among(row, &["provider", "size", "kind"], 1), "size 32 call");
    }

    #[test]
    fn a_name_has_sizes_in_full() {
        let row = json!({"size": 65_536});
        assert_eq!(row_name(row.as_object().unwrap(), &["size"]), "size 65536");
    }

    #[test]
    fn numbers_are_short() {
        let short = [0.0123, 0.8, 1.5, 32.0, 110.4, 52_345.0, 14_050_000.0].map(number);
        assert_eq!(short, ["0.0123", "0.8", "1.5", "32", "110", "52.3 k", "14.05 M"]);
    }
}

//! Bars of a column, for experiments without a declared figure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{FLOOR, Legend, Row, SERIES, bars};
use crate::page::value;
use crate::results;

/// Columns that can be drawn, by kind: times and rates. Ratios are drawn where neither is.
const TIMES: &[&str] = &[
    "step_ns",
    "p50_ns",
    "send_ns",
    "buffer_ns",
    "batch_ns",
    "mean_ns",
    "p50_us",
    "mean_us",
    "seconds",
    "burn_s",
];
const RATES: &[&str] = &["rpc_per_s", "gbytes_per_s", "messages_per_s"];
const OTHERS: &[&str] =
    &["ratio", "to_linux", "normalised", "buffer_share", "late", "growth_kib", "peak_mib"];

/// Largest number of rows in a panel. Larger ones are divided by the first columns by which rows are selected.
const MOST: usize = 24;

/// Ratio of values above which the axis is logarithmic.
const FAR_APART: f64 = 40.0;

/// Writes the figures: of each kind the first column with a floor, or else the first with values.
pub(super) fn all(html: &mut String, result: &Value, axes: &[&str]) {
    let has = |column: &str| results::rows(result).any(|row| number(row, column).is_some());
    let first = |kind: &[&'static str]| {
        let has_floor = |column: &&&str| has(column) && floor_of(column).is_some_and(has);
        kind.iter().find(has_floor).or_else(|| kind.iter().find(|column| has(column))).copied()
    };
    let drawn: Vec<_> = [TIMES, RATES].into_iter().filter_map(first).collect();
    let other = if drawn.is_empty() { first(OTHERS) } else { None };
    for column in drawn.into_iter().chain(other) {
        figure(result, axes, column).write(html);
    }
}

fn number(row: &Map<String, Value>, column: &str) -> Option<f64> {
    row.get(column).and_then(Value::as_f64).filter(|value| *value > 0.0)
}

/// Returns the column with the floor of a column.
fn floor_of(column: &str) -> Option<&'static str> {
    match column {
        "batch_ns" => None,
        "gbytes_per_s" => Some("floor_gbytes_per_s"),
        column => column.ends_with("_ns").then_some("floor_ns"),
    }
}

/// Returns a figure of a column: one panel, or one for each part of the rows, all with one scale.
fn figure(result: &Value, axes: &[&str], column: &str) -> bars::Bars {
    let class = classes(result, axes);
    let rows: Vec<_> = results::rows(result).filter(|row| number(row, column).is_some()).collect();
    let (title, unit) = value::of_column(column);
    let floor = |row: Row<'_>| floor_of(column).and_then(|floor| number(row, floor));
    let mut legend = Legend::default();
    if rows.iter().any(|row| floor(row).is_some()) {
        legend.fixed("floor", FLOOR);
    }
    let bar = |row: &Row<'_>, alike: usize| {
        let value = number(row, column)?;
        let bar = bars::Bar { parts: vec![(class(row), value)], text: unit.show(value), floor: floor(row) };
        Some(bars::Row { name: results::row_name_among(row, axes, alike), bars: vec![bar] })
    };
    let panels = parts(&rows, axes).into_iter().map(|(part, rows)| bars::Panel {
        title: part.join(" "),
        marks: Vec::new(),
        rows: rows.iter().filter_map(|row| bar(row, part.len())).collect(),
    });
    let values = || rows.iter().flat_map(|row| [number(row, column), floor(row)]).flatten();
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let logarithmic = most / least > FAR_APART;
    bars::Bars { title, unit, logarithmic, panels: panels.collect(), legend }
}

/// Divides rows into parts of at most [`MOST`], by the values of as few selection columns as necessary.
fn parts<'a>(rows: &[Row<'a>], axes: &[&str]) -> Vec<(Vec<String>, Vec<Row<'a>>)> {
    let by = |depth: usize| {
        let mut parts: Vec<(Vec<String>, Vec<Row<'a>>)> = Vec::new();
        for row in rows {
            let values =
                axes[..depth].iter().map(|axis| row.get(*axis).map_or_else(String::new, results::word));
            let key: Vec<String> = values.collect();
            match parts.iter_mut().find(|(known, _)| *known == key) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((key, vec![row])),
            }
        }
        parts
    };
    let is_small =
        |parts: &Vec<(Vec<String>, Vec<Row<'a>>)>| parts.iter().all(|(_, rows)| rows.len() <= MOST);
    (0..axes.len()).map(by).find(is_small).unwrap_or_else(|| by(0))
}

/// Returns the class of a row's bar: ours, a peer's, or that of its first selection column.
fn classes<'a>(
    result: &Value,
    axes: &'a [&'a str],
) -> impl Fn(&Map<String, Value>) -> &'static str + use<'a> {
    let column = axes.first().copied().unwrap_or_default();
    let names: BTreeSet<String> =
        results::rows(result).filter_map(|row| row.get(column)).map(results::word).collect();
    let names: Vec<String> = names.into_iter().collect();
    move |row| match row.get("peer").and_then(Value::as_str) {
        Some("pronto") => "ours",
        Some("raw") => "bare",
        Some(_) => "theirs",
        // Names that are all different need no colours.
        None if names.len() > SERIES.len() => SERIES[0],
        None => {
            let name = row.get(column).map(results::word);
            let place = name.and_then(|name| names.iter().position(|known| *known == name));
            SERIES[place.unwrap_or(0)]
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn html(result: &Value, axes: &[&str]) -> String {
        let mut html = String::new();
        all(&mut html, result, axes);
        html
    }

    #[test]
    fn values_far_apart_have_a_logarithmic_axis_and_their_floors() {
        let result = json!({"rows": [
            {"provider": "shm", "p50_ns": 150, "floor_ns": 100},
            {"provider": "tcp", "p50_ns": 53_000, "floor_ns": 52_000},
        ]});
        let html = html(&result, &["provider"]);
        assert!(html.contains("logarithmic") && html.matches("class=\"floor\" style").count() == 2, "{html}");
        assert!(html.contains("Median time") && html.contains("53 us"), "{html}");
    }

    #[test]
    fn many_rows_are_divided_by_their_selection() {
        let row = |provider, size| json!({"provider": provider, "size": size, "p50_ns": 9});
        let rows: Vec<_> =
            ["shm", "tcp"].iter().flat_map(|p| (0..20).map(move |size| row(p, size))).collect();
        let html = html(&json!({"rows": rows}), &["provider", "size"]);
        assert!(html.contains("<h4>shm</h4>") && html.contains("<h4>tcp</h4>"), "{html}");
        assert!(html.contains(">size 19<"), "{html}");
    }
}

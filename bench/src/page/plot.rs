//! Plots of a result's rows: one bar for each row below its name, as wide as the page, with text of a fixed size on any screen.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::escaped;
use crate::results;

/// Columns that can be plotted, by kind. The first column of each kind that has values is plotted.
const KINDS: [&[&str]; 3] = [
    &["step_ns", "p50_ns", "send_ns", "batch_ns", "mean_ns", "p50_us", "mean_us", "seconds", "burn_s"],
    &["rpc_per_s", "gbytes_per_s", "messages_per_s"],
    &["ratio", "to_linux", "normalised", "buffer_share", "late", "work_per_cpu"],
];

/// Largest number of rows in a plot. Larger plots are divided by the first columns by which rows are selected.
const MOST: usize = 24;

/// Ratio of values above which a plot has a logarithmic axis.
const FAR_APART: f64 = 40.0;

/// Heights of a row and of the axis in pixels.
const ROW: usize = 34;
const AXIS: usize = 22;

struct Bar<'a> {
    name: String,
    value: f64,
    floor: Option<f64>,
    class: &'a str,
}

/// Writes every plot of a result: of each kind the first column with a floor, or else the first with values.
pub(super) fn all(html: &mut String, result: &Value, axes: &[&str]) {
    for kind in KINDS {
        let has = |column: &str| results::rows(result).any(|row| number(row, column).is_some());
        let has_floor = |column: &&&str| has(column) && floor_of(column).is_some_and(has);
        let column = kind.iter().find(has_floor).or_else(|| kind.iter().find(|column| has(column)));
        if let Some(column) = column {
            one(html, result, axes, column);
        }
    }
}

fn number(row: &Map<String, Value>, column: &str) -> Option<f64> {
    row.get(column).and_then(Value::as_f64).filter(|value| *value > 0.0)
}

/// Returns the column with the floor of a column.
fn floor_of(column: &str) -> Option<&'static str> {
    (column.ends_with("_ns") && column != "batch_ns").then_some("floor_ns")
}

/// Returns the unit of a column.
fn unit(column: &str) -> &'static str {
    match column {
        "rpc_per_s" => ", calls a second",
        "gbytes_per_s" => ", GB a second",
        "messages_per_s" => ", messages a second",
        "seconds" | "burn_s" => ", seconds",
        "ratio" => ", times the floor",
        _ if column.ends_with("_ns") => ", nanoseconds",
        _ if column.ends_with("_us") => ", microseconds",
        _ => "",
    }
}

/// Writes a column of a result: one figure, or one for each part of its rows, all with one scale.
fn one(html: &mut String, result: &Value, axes: &[&str], column: &str) {
    let class = classes(result, axes);
    let rows: Vec<_> = results::rows(result).filter(|row| number(row, column).is_some()).collect();
    let bar = |row: &&Map<String, Value>, alike: usize| {
        let floor = floor_of(column).and_then(|floor| number(row, floor));
        let (name, value) = (results::row_name_among(row, axes, alike), number(row, column)?);
        Some(Bar { name, value, floor, class: class(row) })
    };
    let values =
        || rows.iter().filter_map(|row| bar(row, 0)).flat_map(|bar| [Some(bar.value), bar.floor]).flatten();
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let scale =
        if most / least > FAR_APART { Scale::logarithmic(least, most) } else { Scale::Linear(most * 1.02) };
    let parts = parts(&rows, axes);
    for (index, (part, rows)) in parts.iter().enumerate() {
        let named = &axes[part.len()..];
        let title = Title { column, part: part.join(" "), named, scale };
        let bars: Vec<Bar<'_>> = rows.iter().filter_map(|row| bar(row, part.len())).collect();
        if parts.len() == 1 {
            figure(html, &title, &bars);
        } else {
            let open = if index == 0 { " open" } else { "" };
            let (unit, part) = (unit(column), escaped(&title.part));
            let _ = writeln!(html, "<details{open}><summary>{column}{unit}: {part}</summary>");
            figure(html, &title, &bars);
            html.push_str("</details>\n");
        }
    }
}

/// A row of a result.
type Row<'a> = &'a Map<String, Value>;

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

/// Content of a figure.
struct Title<'a> {
    column: &'a str,
    /// The part of the rows; empty for all rows.
    part: String,
    /// Columns that name a bar.
    named: &'a [&'a str],
    scale: Scale,
}

fn figure(html: &mut String, title: &Title<'_>, bars: &[Bar<'_>]) {
    let &Title { column, ref part, named, scale } = title;
    let (height, body) = (bars.len() * ROW, bars.len() * ROW + AXIS);
    let has_floor = bars.iter().any(|bar| bar.floor.is_some());
    let _ = write!(
        html,
        "<figure><figcaption><b>{column}</b>{}{}{}{}{}</figcaption>\n<svg width=\"100%\" height=\"{body}\" \
         role=\"img\" aria-label=\"{column} of each row {}\">\n",
        unit(column),
        if matches!(scale, Scale::Linear(_)) { "" } else { ", logarithmic" },
        if part.is_empty() { String::new() } else { format!(", of {}", escaped(part)) },
        if named.is_empty() { String::new() } else { format!("; by {}", named.join(", ")) },
        if has_floor { "; the stroke across a bar is the floor of the same run" } else { "" },
        escaped(part),
    );
    for tick in scale.ticks() {
        let at = scale.place(tick);
        let _ =
            write!(html, "<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{height}\"/>");
        let anchor = if at > 90.0 {
            "end"
        } else if at < 5.0 {
            "start"
        } else {
            "middle"
        };
        let label = results::number(tick);
        let y = height + 15;
        let _ = writeln!(
            html,
            "<text class=\"tick\" x=\"{at:.2}%\" y=\"{y}\" text-anchor=\"{anchor}\">{label}</text>"
        );
    }
    for (index, bar) in bars.iter().enumerate() {
        draw(html, bar, index * ROW, scale);
    }
    html.push_str("</svg></figure>\n");
}

fn draw(html: &mut String, bar: &Bar<'_>, top: usize, scale: Scale) {
    let (text, rect, wide) = (top + 14, top + 19, scale.place(bar.value));
    let (name, value) = (escaped(&bar.name), results::number(bar.value));
    let _ = write!(html, "<text x=\"0\" y=\"{text}\">{name}</text>");
    let _ = write!(html, "<text class=\"value\" x=\"100%\" y=\"{text}\" text-anchor=\"end\">{value}</text>");
    let class = bar.class;
    let _ = write!(
        html,
        "<rect class=\"{class}\" x=\"0\" y=\"{rect}\" width=\"{wide:.2}%\" height=\"10\" rx=\"2\"/>"
    );
    if let Some(floor) = bar.floor {
        let (at, end) = (scale.place(floor), rect + 13);
        let start = rect - 3;
        let _ = write!(
            html,
            "<line class=\"floor\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"{start}\" y2=\"{end}\"/>"
        );
    }
    html.push('\n');
}

/// Returns the colour class of rows: by peer, if peers are compared, and otherwise by the first selection column.
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
        None => {
            let name = row.get(column).map(results::word);
            let place = name.and_then(|name| names.iter().position(|known| *known == name));
            SERIES[place.unwrap_or(0) % SERIES.len()]
        }
    }
}

const SERIES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

#[derive(Clone, Copy, Debug)]
enum Scale {
    /// From zero to this.
    Linear(f64),
    /// From one power of ten to another.
    Logarithmic(i32, i32),
}

impl Scale {
    fn logarithmic(least: f64, most: f64) -> Self {
        let power = |value: f64| (-30..30).rfind(|power| 10_f64.powi(*power) <= value).unwrap_or(-30);
        Self::Logarithmic(power(least), power(most) + 1)
    }

    /// Returns the position of a value in percent of the width.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear(most) => 100.0 * value / most,
            Self::Logarithmic(first, last) => {
                100.0 * (value.log10() - f64::from(first)).max(0.0) / f64::from(last - first)
            }
        }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(most) => {
                let power = 10_f64.powf((most / 4.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .map(|step| step * power)
                    .find(|step| most / step <= 5.0);
                let step = step.unwrap_or(most);
                (0..=5).map(|tick| f64::from(tick) * step).filter(|tick| *tick <= most).collect()
            }
            Self::Logarithmic(first, last) => (first..=last).map(|power| 10_f64.powi(power)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_place_values_between_their_ends() {
        let scale = Scale::logarithmic(110.0, 53_000.0);
        assert!(matches!(scale, Scale::Logarithmic(2, 5)), "{scale:?}");
        assert!((scale.place(100.0)).abs() < 1e-9 && (scale.place(100_000.0) - 100.0).abs() < 1e-9);
        let scale = Scale::Linear(110.0);
        assert!((scale.place(55.0) - 50.0).abs() < 1e-9);
        let ticks = scale.ticks();
        assert!((3..=6).contains(&ticks.len()) && ticks[0] == 0.0, "{ticks:?}");
    }
}

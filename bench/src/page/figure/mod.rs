//! Figures of a result: those of a paper, as it draws them, declared as data in [`declared`]; bars of one column for all others.

mod bars;
mod declared;
mod generic;
mod lines;
mod scale;

use core::fmt::Write as _;

use serde_json::{Map, Value};

use super::escaped;
use super::value::Unit;
use crate::results;
use lines::Axis;

/// A row of a result.
type Row<'a> = &'a Map<String, Value>;

/// A figure as data: which rows it shows, and which of their columns. A declaration names what differs from [`Self::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// Name of the experiment.
    experiment: &'static str,
    /// The figure of the paper, and what it shows.
    title: &'static str,
    /// Values that the paper gives for it, with their place, or a sentence that it gives none.
    paper: &'static str,
    /// Only rows that have one of these values in a column.
    only: &'static [(&'static str, &'static [&'static str])],
    /// Columns whose values divide the rows into panels.
    panels: &'static [&'static str],
    /// Columns whose values name a series.
    series: &'static [&'static str],
    /// Shown values, each with its name; one value needs no name.
    values: &'static [(Measure, &'static str)],
    /// Unit of the values.
    unit: Unit,
    /// Whether the axis of the values is logarithmic.
    logarithmic: bool,
    /// Column with the floor of the same run, in the unit of the first value.
    floor: Option<Measure>,
    /// Values of the paper that hold for all rows of the panels in `marked`, or of all if it is empty; with their meaning.
    marks: &'static [(f64, &'static str)],
    marked: &'static str,
    form: Form,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Lines over a measure.
    Lines { x: Measure, axis: Axis, title: &'static str, points: &'static [Points] },
    /// A bar for each value, and one for the paper's value of the row, below a name of these columns.
    Bars { names: &'static [&'static str], published: &'static [Measure] },
    /// One bar, whose parts are the values as shares of `whole`; the last part, with the name `rest`, is the remainder.
    Shares { names: &'static [&'static str], whole: &'static [Measure], rest: &'static str },
}

/// Points of the paper: the name of their series, and where they are.
type Points = (&'static str, &'static [(f64, f64)]);

/// A number of a row: a column, which may be divided by another one, times a constant.
#[derive(Clone, Copy, Debug)]
struct Measure {
    column: &'static str,
    per: Option<&'static str>,
    times: f64,
}

impl Measure {
    const fn of(column: &'static str) -> Self {
        Self { column, per: None, times: 1.0 }
    }

    const fn per(self, column: &'static str) -> Self {
        Self { per: Some(column), ..self }
    }

    const fn times(self, times: f64) -> Self {
        Self { times, ..self }
    }

    /// Returns the number; `None` if a column is missing or empty.
    fn in_row(self, row: Row<'_>) -> Option<f64> {
        let number = |column: &str| row.get(column).and_then(Value::as_f64);
        let divisor = self.per.map_or(Some(1.0), number)?;
        Some(number(self.column)? / divisor * self.times).filter(|value| value.is_finite())
    }
}

impl Drawn {
    const DEFAULT: Self = Self {
        experiment: "",
        title: "",
        paper: "",
        only: &[],
        panels: &[],
        series: &[],
        values: &[],
        unit: Unit::Plain,
        logarithmic: false,
        floor: None,
        marks: &[],
        marked: "",
        form: Form::Bars { names: &[], published: &[] },
    };

    /// Returns whether values of the paper stand in the figure.
    fn has_published(&self) -> bool {
        let in_form = match self.form {
            Form::Lines { points, .. } => !points.is_empty(),
            Form::Bars { published, .. } => !published.is_empty(),
            Form::Shares { .. } => false,
        };
        in_form || !self.marks.is_empty()
    }

    /// Writes the figure; nothing if the result has no rows for it.
    fn write(&self, html: &mut String, result: &Value) {
        let word = |row: &Row<'_>, column: &str| row.get(column).map(results::word).unwrap_or_default();
        let is_shown = |row: &Row<'_>| {
            self.only.iter().all(|(column, values)| values.contains(&word(row, column).as_str()))
        };
        let rows: Vec<_> = results::rows(result).filter(is_shown).collect();
        let start = html.len();
        match self.form {
            Form::Lines { .. } => self.lines(&rows).write(html),
            Form::Bars { .. } | Form::Shares { .. } => self.bars(&rows).write(html),
        }
        if html.len() > start && !self.paper.is_empty() {
            let _ = writeln!(html, "<p class=\"small\">{}</p>", escaped(self.paper));
        }
    }

    fn lines(&self, rows: &[Row<'_>]) -> lines::Lines {
        let Form::Lines { x, axis, title, points: published } = self.form else { unreachable!("lines") };
        let mut legend = Legend::default();
        let mut panel = |(heading, rows): (String, Vec<Row<'_>>)| {
            let mut series: Vec<lines::Series> = Vec::new();
            for (name, rows) in groups(&rows, self.series) {
                for (value, part) in self.values {
                    let name = joined(&[&name, part]);
                    let mut points: Vec<_> =
                        rows.iter().filter_map(|row| Some((x.in_row(row)?, value.in_row(row)?))).collect();
                    points.sort_by(|one, other| one.0.total_cmp(&other.0));
                    points.retain(|(_, y)| !self.logarithmic || *y > 0.0);
                    if !points.is_empty() {
                        series.push(lines::Series { class: legend.class(&name), name, points });
                    }
                }
            }
            let floors: Vec<_> =
                rows.iter().filter_map(|row| Some((x.in_row(row)?, self.floor?.in_row(row)?))).collect();
            if let Some(points) = Some(lowest(floors)).filter(|points| !points.is_empty()) {
                series.push(lines::Series {
                    class: legend.fixed("floor", FLOOR),
                    name: FLOOR.to_owned(),
                    points,
                });
            }
            let published = if series.is_empty() { &[] } else { published };
            series.extend(published.iter().map(|(name, points)| lines::Series {
                name: (*name).to_owned(),
                class: legend.fixed("paper", name),
                points: points.to_vec(),
            }));
            lines::Panel { title: heading, series }
        };
        let panels =
            groups(rows, self.panels).into_iter().map(&mut panel).filter(|panel| !panel.series.is_empty());
        let panels = panels.collect();
        let y = Axis { title, unit: self.unit, logarithmic: self.logarithmic };
        let marks = legend.marks(self.marks);
        lines::Lines { title: self.title.to_owned(), x: axis, y, legend, marks, panels }
    }

    fn bars(&self, rows: &[Row<'_>]) -> bars::Bars {
        let mut legend = Legend::default();
        let panels = groups(rows, self.panels).into_iter().map(|(title, rows)| {
            let rows = rows.iter().filter_map(|row| self.row(row, &mut legend)).collect();
            let marks = if self.marked.is_empty() || self.marked == title { self.marks } else { &[] };
            bars::Panel { title, marks: legend.marks(marks), rows }
        });
        let panels = panels.filter(|panel| !panel.rows.is_empty()).collect();
        let (title, unit) = (self.title.to_owned(), self.unit);
        bars::Bars { title, unit, logarithmic: self.logarithmic, legend, panels }
    }

    /// Returns the bars of a row; `None` without a value.
    fn row(&self, row: Row<'_>, legend: &mut Legend) -> Option<bars::Row> {
        let (names, bars) = match self.form {
            Form::Bars { names, published } => (names, self.bars_of(row, published, legend)),
            Form::Shares { names, whole, rest } => (names, vec![self.shares_of(row, whole, rest, legend)?]),
            Form::Lines { .. } => unreachable!("bars"),
        };
        (!bars.is_empty()).then(|| bars::Row { name: named(row, names), bars })
    }

    fn bars_of(&self, row: Row<'_>, published: &[Measure], legend: &mut Legend) -> Vec<bars::Bar> {
        let series = named(row, self.series);
        let mut bars = Vec::new();
        for (index, (value, part)) in self.values.iter().enumerate() {
            let Some(value) = value.in_row(row) else { continue };
            let class = legend.class(&joined(&[&series, part]));
            let floor = self.floor.filter(|_| index == 0).and_then(|floor| floor.in_row(row));
            if floor.is_some() {
                legend.fixed("floor", FLOOR);
            }
            let name = |text: String| if part.is_empty() { text } else { format!("{part} {text}") };
            bars.push(bars::Bar { parts: vec![(class, value)], text: name(self.unit.show(value)), floor });
            if let Some(value) = published.get(index).and_then(|published| published.in_row(row)) {
                let text = format!("paper {}", self.unit.show(value));
                bars.push(bars::Bar {
                    parts: vec![(legend.fixed("paper", PAPER), value)],
                    text,
                    floor: None,
                });
            }
        }
        bars
    }

    fn shares_of(
        &self,
        row: Row<'_>,
        whole: &[Measure],
        rest: &'static str,
        legend: &mut Legend,
    ) -> Option<bars::Bar> {
        let whole = whole.iter().map(|part| part.in_row(row)).sum::<Option<f64>>()?;
        let values = self.values.iter().map(|(value, name)| Some((*name, value.in_row(row)? / whole)));
        let values = values.collect::<Option<Vec<_>>>()?;
        let sum: f64 = values.iter().map(|(_, share)| share).sum();
        let mut parts: Vec<_> = values.into_iter().map(|(name, share)| (legend.class(name), share)).collect();
        parts.push((legend.fixed("theirs", rest), 1.0 - sum));
        Some(bars::Bar { parts, text: self.unit.show(sum), floor: None })
    }
}

/// Names of series, in the order of their classes.
#[derive(Debug, Default)]
struct Legend {
    /// Class and name.
    entries: Vec<(&'static str, String)>,
}

impl Legend {
    /// Returns the class of a series.
    fn class(&mut self, name: &str) -> &'static str {
        if let Some((class, _)) = self.entries.iter().find(|(_, known)| known == name) {
            return class;
        }
        let count = self.entries.iter().filter(|(class, _)| SERIES.contains(class)).count();
        self.fixed(SERIES[count % SERIES.len()], name)
    }

    /// Adds a series with a class of its own.
    fn fixed(&mut self, class: &'static str, name: &str) -> &'static str {
        if !self.entries.iter().any(|(known, text)| *known == class && text == name) {
            self.entries.push((class, name.to_owned()));
        }
        class
    }

    /// Adds values of the paper. Returns them.
    fn marks(&mut self, marks: &[(f64, &str)]) -> Vec<f64> {
        for (_, text) in marks {
            self.fixed("mark", text);
        }
        marks.iter().map(|(value, _)| *value).collect()
    }
}

/// Begins a figure.
fn start(html: &mut String, title: &str, legend: &Legend) {
    let _ = writeln!(html, "<figure><figcaption>{}</figcaption>", escaped(title));
    let named = || legend.entries.iter().filter(|(_, name)| !name.is_empty());
    if named().count() > 1 || named().any(|(class, _)| !SERIES.contains(class)) {
        html.push_str("<ul class=\"legend\">");
        for (class, name) in named() {
            let _ = write!(html, "<li><i class=\"{class}\"></i>{}</li>", escaped(name));
        }
        html.push_str("</ul>\n");
    }
}

/// Returns the heading of a panel; nothing without a title.
fn heading(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<h4>{}</h4>", escaped(title)) }
}

/// Writes the figures of a result. `is_drawn` is whether the experiment itself has drawn its figures: then only those with values of a
/// paper are added.
pub(super) fn all(html: &mut String, result: &Value, axes: &[&str], is_drawn: bool) {
    let name = result["experiment"].as_str().unwrap_or_default();
    let start = html.len();
    for drawn in declared::ALL.iter().filter(|drawn| drawn.experiment == name) {
        if !is_drawn || drawn.has_published() {
            drawn.write(html, result);
        }
    }
    if html.len() == start && !is_drawn {
        generic::all(html, result, axes);
    }
}

/// Divides rows by the values of these columns, in the order of their first rows.
fn groups<'a>(rows: &[Row<'a>], columns: &[&str]) -> Vec<(String, Vec<Row<'a>>)> {
    let mut groups: Vec<(String, Vec<Row<'a>>)> = Vec::new();
    for row in rows {
        let name = named(row, columns);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

/// Returns the values of these columns as a name.
fn named(row: Row<'_>, columns: &[&str]) -> String {
    let word = |column: &&str| match (*column, row.get(*column)?) {
        ("size", Value::Number(size)) => size.as_f64().map(|size| Unit::Bytes.show(size)),
        (column, value) => Some(results::name(&column.replace('_', " "), value)),
    };
    let words: Vec<_> = columns.iter().filter_map(word).collect();
    joined(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn joined(words: &[&str]) -> String {
    words.iter().filter(|word| !word.is_empty() && **word != "-").copied().collect::<Vec<_>>().join(" ")
}

/// Returns the lowest value at each position, from left to right.
fn lowest(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    points.dedup_by_key(|(x, _)| x.to_bits());
    points
}

const SERIES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
const FLOOR: &str = "floor of the same run";
const PAPER: &str = "the paper";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LINES: Drawn = Drawn {
        title: "times",
        paper: "section 4 gives a bound",
        only: &[("provider", &["shm"])],
        panels: &["provider"],
        series: &["engine"],
        values: &[(Measure::of("ns").per("count").times(1e-3), "")],
        unit: Unit::US,
        marks: &[(10.0, "bound of the paper")],
        floor: Some(Measure::of("floor_us")),
        form: Form::Lines {
            x: Measure::of("size"),
            axis: Axis { title: "size", unit: Unit::Bytes, logarithmic: true },
            title: "time",
            points: &[("Table 9", &[(64.0, 3.0)])],
        },
        ..Drawn::DEFAULT
    };

    fn rows() -> Value {
        json!({"experiment": "none", "rows": [
            {"provider": "shm", "engine": "idle", "size": 1024, "ns": 8000, "count": 2, "floor_us": 1.0},
            {"provider": "shm", "engine": "idle", "size": 64, "ns": 4000, "count": 2, "floor_us": 0.5},
            {"provider": "tcp", "engine": "idle", "size": 64, "ns": 90_000, "count": 2, "floor_us": 0.5},
            {"provider": "shm", "engine": "none", "size": 64, "ns": null, "count": 2, "floor_us": 0.5},
        ]})
    }

    #[test]
    fn lines_have_their_rows_the_papers_values_and_the_floor() {
        let mut html = String::new();
        LINES.write(&mut html, &rows());
        for part in
            ["idle, 64 B: 2 us", "idle, 1 KiB: 4 us", "Table 9, 64 B: 3 us", "floor of the same run, 64 B"]
        {
            assert!(html.contains(part), "{part} is missing in:\n{html}");
        }
        assert!(html.contains("bound of the paper") && html.contains("section 4 gives a bound"));
        assert!(
            !html.contains("90 ms") && !html.contains("45 us") && !html.contains(">none<"),
            "rows that it does not show: {html}"
        );
        let first = html.find("64 B: 2 us").unwrap();
        assert!(first < html.find("1 KiB: 4 us").unwrap(), "from left to right");
    }

    #[test]
    fn bars_stand_next_to_those_of_the_paper() {
        const BARS: Drawn = Drawn {
            values: &[(Measure::of("ns"), "")],
            unit: Unit::NS,
            form: Form::Bars { names: &["engine", "size"], published: &[Measure::of("paper_us").times(1e3)] },
            ..Drawn::DEFAULT
        };
        let result = json!({"rows": [
            {"engine": "idle", "size": 64, "ns": 20, "paper_us": 0.038},
            {"engine": "none", "size": 64, "ns": 30, "paper_us": null},
        ]});
        let mut html = String::new();
        BARS.write(&mut html, &result);
        assert!(
            html.contains("idle 64 B") && html.contains("20 ns") && html.contains("paper 38 ns"),
            "{html}"
        );
        assert_eq!(html.matches("class=\"paper\" style").count(), 1, "{html}");
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        const SHARES: Drawn = Drawn {
            values: &[(Measure::of("a"), "allocate"), (Measure::of("b"), "release")],
            unit: Unit::Share,
            form: Form::Shares { names: &["size"], whole: &[Measure::of("all")], rest: "transfer" },
            ..Drawn::DEFAULT
        };
        let mut legend = Legend::default();
        let row = json!({"size": 64, "a": 1.0, "b": 2.0, "all": 10.0});
        let row = SHARES.row(row.as_object().unwrap(), &mut legend).unwrap();
        let parts: Vec<_> = row.bars[0].parts.iter().map(|(_, share)| (share * 10.0).round()).collect();
        assert_eq!((parts, row.bars[0].text.as_str()), (vec![1.0, 2.0, 7.0], "30 %"));
    }

    #[test]
    fn the_floor_of_a_position_is_the_lowest() {
        assert_eq!(lowest(vec![(2.0, 5.0), (1.0, 3.0), (2.0, 4.0)]), [(1.0, 3.0), (2.0, 4.0)]);
    }

    #[test]
    fn a_result_without_the_columns_of_its_figure_has_generic_bars() {
        let mut html = String::new();
        all(
            &mut html,
            &json!({"experiment": "comm-fig4", "rows": [{"provider": "shm", "p50_ns": 12}]}),
            &["provider"],
            false,
        );
        assert!(html.contains("Median time") && html.contains("12 ns"), "{html}");
    }
}

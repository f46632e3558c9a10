//! Plots: the content of figures, separate from their drawing. One SVG file per figure, suitable for print.
//!
//! A [`Figure`] has panels side by side, like the figures of the papers, and one legend for all of them: series with one name look
//! alike in every panel. Series differ in colour, in lightness, and by their markers or their order, so that they can be
//! distinguished in a grey copy.

mod bars;
mod draw;
mod lines;
mod style;

use core::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A figure, written to one file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Name of the file without its extension.
    pub(crate) file: &'static str,
    /// Title, with the corresponding figure of a paper.
    pub(crate) title: String,
    /// Panels from left to right; at least one.
    pub(crate) panels: Vec<Panel>,
}

/// A pair of axes with its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Panel {
    /// Values over a quantity.
    Lines(Lines),
    /// Values over names.
    Bars(Bars),
}

/// Values over a quantity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lines {
    /// Title above the panel.
    pub(crate) title: String,
    /// Horizontal quantity.
    pub(crate) x: Axis,
    /// Vertical quantity.
    pub(crate) y: Axis,
    /// Whether points are joined.
    pub(crate) marks: Marks,
    /// Series in the order of the legend.
    pub(crate) series: Vec<Series>,
}

/// Appearance of the points of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Joined by lines, each marked.
    Joined,
    /// Small separate marks, for hundreds of points.
    Scattered,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Quantity of the axis.
    pub(crate) quantity: String,
    /// Unit; empty for a count or a share.
    pub(crate) unit: &'static str,
    /// Division of the axis.
    pub(crate) scale: Scale,
    /// Value that a linear axis reaches at least; comparable panels reach the same value.
    pub(crate) reaches: u32,
}

/// Division of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from zero or from the least value, whichever is less.
    Linear,
    /// Evenly, around the values: for differences that would be invisible from zero.
    Zoomed,
    /// By powers of ten. Values that are not above zero are omitted.
    Logarithmic,
}

/// A name in the legend, and its points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// Name in the legend; a series without a name is not in the legend.
    pub(crate) name: String,
    /// Points in the order in which they are joined.
    pub(crate) points: Vec<Point>,
}

/// A point, with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Horizontal position.
    pub(crate) x: f64,
    /// Vertical position.
    pub(crate) y: Spread,
}

/// A value and its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Representative value.
    pub(crate) middle: f64,
    /// Lower end of the error bar; there is none if all three values are equal.
    pub(crate) least: f64,
    /// Upper end of the error bar.
    pub(crate) most: f64,
}

/// Values over names: groups of bars, a bar per series in each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bars {
    /// Title above the panel.
    pub(crate) title: String,
    /// Meaning of the groups.
    pub(crate) x: String,
    /// Vertical quantity; always linear and from zero, because bars are compared by their length.
    pub(crate) y: Axis,
    /// Names of the groups.
    pub(crate) groups: Vec<String>,
    /// Series in the order of the legend.
    pub(crate) series: Vec<BarSeries>,
}

/// A name in the legend, and its bars.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BarSeries {
    /// Name in the legend.
    pub(crate) name: String,
    /// One bar for each group; `None` without a measurement.
    pub(crate) bars: Vec<Option<Spread>>,
}

impl Axis {
    /// Returns an evenly divided axis.
    pub(crate) fn linear(quantity: &str, unit: &'static str) -> Self {
        Self { quantity: quantity.to_owned(), unit, scale: Scale::Linear, reaches: 0 }
    }

    /// Returns an evenly divided axis that does not begin at zero.
    pub(crate) fn zoomed(quantity: &str, unit: &'static str) -> Self {
        Self { quantity: quantity.to_owned(), unit, scale: Scale::Zoomed, reaches: 0 }
    }

    /// Makes the axis reach `value` at least.
    pub(crate) fn reaching(self, value: u32) -> Self {
        Self { reaches: value, ..self }
    }

    /// Returns an axis divided by powers of ten.
    pub(crate) fn logarithmic(quantity: &str, unit: &'static str) -> Self {
        Self { quantity: quantity.to_owned(), unit, scale: Scale::Logarithmic, reaches: 0 }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unit.is_empty() {
            f.write_str(&self.quantity)
        } else {
            write!(f, "{} ({})", self.quantity, self.unit)
        }
    }
}

impl Spread {
    /// Returns a value without an error bar.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { middle: value, least: value, most: value }
    }

    /// Returns median and extremes of `values`; `None` if there are none, or if one is not a number.
    pub(crate) fn of_all(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| value.is_nan()) { None } else { Self::of(values) }
    }

    /// Returns median and extremes of `values`; `None` if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let (upper, lower) = (sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2]);
        Some(Self { middle: f64::midpoint(lower, upper), least, most })
    }
}

impl Series {
    /// Returns a series of those points that exist.
    pub(crate) fn new(name: impl Into<String>, points: impl IntoIterator<Item = Option<Point>>) -> Self {
        Self { name: name.into(), points: points.into_iter().flatten().collect() }
    }
}

impl BarSeries {
    /// Returns a series with a bar for each group.
    pub(crate) fn new(name: impl Into<String>, bars: impl IntoIterator<Item = Option<Spread>>) -> Self {
        Self { name: name.into(), bars: bars.into_iter().collect() }
    }
}

impl Panel {
    /// Returns a panel of bars without empty series; `None` if all are empty.
    pub(crate) fn bars(
        title: &str,
        x: &str,
        y: Axis,
        groups: Vec<String>,
        series: impl IntoIterator<Item = BarSeries>,
    ) -> Option<Self> {
        let has_bars = |series: &BarSeries| series.bars.iter().any(Option::is_some);
        let series: Vec<_> = series.into_iter().filter(has_bars).collect();
        let (title, x) = (title.to_owned(), x.to_owned());
        (!series.is_empty()).then_some(Self::Bars(Bars { title, x, y, groups, series }))
    }

    /// Returns a panel of lines without empty series; `None` if all are empty.
    pub(crate) fn lines(
        title: &str,
        x: Axis,
        y: Axis,
        marks: Marks,
        series: impl IntoIterator<Item = Series>,
    ) -> Option<Self> {
        let series: Vec<_> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
        let title = title.to_owned();
        (!series.is_empty()).then_some(Self::Lines(Lines { title, x, y, marks, series }))
    }

    /// Returns the names of its series.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Lines(lines) => lines.series.iter().map(|series| series.name.as_str()).collect(),
            Self::Bars(bars) => bars.series.iter().map(|series| series.name.as_str()).collect(),
        }
    }
}

impl Figure {
    /// Returns a figure of the panels that have content; `None` if no panel has.
    pub(crate) fn of(
        file: &'static str,
        title: impl Into<String>,
        panels: impl IntoIterator<Item = Option<Panel>>,
    ) -> Option<Self> {
        let panels: Vec<_> = panels.into_iter().flatten().collect();
        (!panels.is_empty()).then(|| Self { file, title: title.into(), panels })
    }

    /// Returns the figure as SVG. Fails if it has no panel, or a panel without content.
    pub(crate) fn to_svg(&self) -> anyhow::Result<String> {
        draw::svg(self).with_context(|| format!("drawing {}", self.file))
    }

    /// Writes the figure into `folder`, which is created if necessary.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(self.file).with_extension("svg");
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::write(&path, self.to_svg()?).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        let point = |x: f64, y: f64| Point { x, y: Spread { middle: y, least: y * 0.8, most: y * 1.3 } };
        Lines {
            title: "left".into(),
            x: Axis::logarithmic("nodes", ""),
            y: Axis::linear("time", "s"),
            marks: Marks::Joined,
            series: vec![
                Series {
                    name: "LINUX".into(),
                    points: [(4.0, 10.0), (64.0, 20.0)].map(|(x, y)| point(x, y)).to_vec(),
                },
                Series { name: "PRED & co".into(), points: vec![point(4.0, 9.0), point(64.0, 12.0)] },
            ],
        }
    }

    fn bars() -> Bars {
        let spread = |v| Some(Spread::exact(v));
        Bars {
            title: "right".into(),
            x: "local tasks".into(),
            y: Axis::linear("time", "s"),
            groups: vec!["0".into(), "5".into()],
            series: vec![
                BarSeries { name: "LINUX".into(), bars: vec![spread(3.0), spread(7.0)] },
                BarSeries { name: "DYN".into(), bars: vec![None, spread(2.0)] },
            ],
        }
    }

    fn figure(panels: Vec<Panel>) -> Figure {
        Figure { file: "test", title: "content".into(), panels }
    }

    #[test]
    fn a_figure_has_titles_units_and_one_legend_entry_per_name() {
        let svg = figure(vec![Panel::Lines(lines()), Panel::Bars(bars())]).to_svg().unwrap();
        let once =
            ["content", ">left<", ">right<", "PRED &amp; co", ">DYN<", ">LINUX<", "local tasks", ">nodes<"];
        for text in once.iter().map(|text| text.trim_matches(['>', '<'])) {
            assert_eq!(svg.matches(text).count(), 1, "{text} in\n{svg}");
        }
        assert_eq!(svg.matches("time (s)").count(), 2, "each panel has its axis");
    }

    #[test]
    fn a_series_has_one_colour_in_all_panels() {
        let svg = figure(vec![Panel::Lines(lines()), Panel::Bars(bars())]).to_svg().unwrap();
        let dynamic = figure(vec![Panel::Bars(bars())]).to_svg().unwrap();
        let colour = |index| style::hex(index);
        assert!(
            svg.contains(&colour(2)) && !dynamic.contains(&colour(2)),
            "DYN is the third name, or the second"
        );
    }

    #[test]
    fn a_logarithmic_axis_omits_zeros() {
        let mut lines = lines();
        lines.y = Axis::logarithmic("time", "s");
        lines.series[0].points.push(Point { x: 100.0, y: Spread::exact(0.0) });
        assert!(figure(vec![Panel::Lines(lines)]).to_svg().is_ok());
    }

    #[test]
    fn axes_reach_their_value_and_nameless_series_are_not_in_the_legend() {
        let reaching = |value| {
            let mut lines = lines();
            lines.y = lines.y.reaching(value);
            lines.series[1].name.clear();
            lines.series[0].name = "alone".into();
            let mut bars = bars();
            bars.y = bars.y.reaching(value);
            [figure(vec![Panel::Lines(lines)]), figure(vec![Panel::Bars(bars)])].map(|f| f.to_svg().unwrap())
        };
        for (plain, tall) in reaching(0).iter().zip(&reaching(700)) {
            assert!(!plain.contains(">\n700\n<") && tall.contains("700"), "{tall}");
        }
        let [lines, _] = reaching(0);
        assert_eq!(
            lines.matches(&style::hex(0)).count(),
            lines.matches(&style::hex(1)).count() + 2,
            "{lines}"
        );
    }

    #[test]
    fn an_empty_figure_is_an_error() {
        let mut empty = lines();
        empty.series.clear();
        assert!(figure(vec![Panel::Lines(empty)]).to_svg().is_err());
        assert!(figure(Vec::new()).to_svg().is_err());
    }

    #[test]
    fn a_spread_is_median_and_extremes() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 8.0]), Some(Spread { middle: 3.0, least: 1.0, most: 8.0 }));
        assert_eq!(Spread::of(&[4.0, 2.0]).map(|spread| spread.middle), Some(3.0));
    }
}

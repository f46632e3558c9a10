//! Plots: what a figure shows, apart from how it is drawn. One SVG file per figure, fit for print.
//!
//! A [`Figure`] has panels side by side, as the figures of the papers have, and one legend for all of them: a series of
//! one name looks the same in every panel. Series differ in colour, in lightness, and by their markers or their order, so that
//! a copy in grey still tells them apart.

mod bars;
mod draw;
mod lines;
mod style;

use core::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// One picture, and so one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The file's name without its ending.
    pub file: &'static str,
    /// What it shows, and where in a paper its like is.
    pub title: String,
    /// From left to right; at least one.
    pub panels: Vec<Panel>,
}

/// A pair of axes and what lies between them.
#[derive(Clone, Debug, PartialEq)]
pub enum Panel {
    /// Values over a quantity.
    Lines(Lines),
    /// Values over names.
    Bars(Bars),
}

/// Values over a quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Above the panel.
    pub title: String,
    /// The quantity to the right.
    pub x: Axis,
    /// The quantity upwards.
    pub y: Axis,
    /// Whether points are joined.
    pub marks: Marks,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// How the points of a series are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Joined by lines, each marked.
    Joined,
    /// Each by itself, small: for hundreds of them.
    Scattered,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it measures.
    pub quantity: String,
    /// In what; empty for a count or a share.
    pub unit: &'static str,
    /// How it is divided.
    pub scale: Scale,
    /// A linear axis reaches this value at least: panels that are to be compared reach the same.
    pub reaches: u32,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero or from the least value, whichever is less.
    Linear,
    /// Evenly, around the values: for differences that would not be seen from zero. The axis says so by its numbers.
    Zoomed,
    /// By powers of ten. What is not above zero is left out.
    Logarithmic,
}

/// A name in the legend, and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend; without a name it is not in it.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<Point>,
}

/// A point, with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: Spread,
}

/// A value and what it varies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value that stands for all.
    pub middle: f64,
    /// Where the error bar begins; no error bar where all three are the same.
    pub least: f64,
    /// Where it ends.
    pub most: f64,
}

/// Values over names: groups of bars, a bar per series in each.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Above the panel.
    pub title: String,
    /// What the groups are.
    pub x: String,
    /// The quantity upwards; always linear and from zero, as bars are compared by their length.
    pub y: Axis,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// In the order of the legend.
    pub series: Vec<BarSeries>,
}

/// A name in the legend, and its bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// In the legend.
    pub name: String,
    /// One for each group, `None` where nothing was measured.
    pub bars: Vec<Option<Spread>>,
}

impl Axis {
    /// Evenly divided.
    #[must_use]
    pub fn linear(quantity: &str, unit: &'static str) -> Self {
        Self { quantity: quantity.to_owned(), unit, scale: Scale::Linear, reaches: 0 }
    }

    /// Evenly divided, and not from zero.
    #[must_use]
    pub fn zoomed(quantity: &str, unit: &'static str) -> Self {
        Self { quantity: quantity.to_owned(), unit, scale: Scale::Zoomed, reaches: 0 }
    }

    /// The same, but that it reaches this value at least.
    #[must_use]
    pub fn reaching(self, value: u32) -> Self {
        Self { reaches: value, ..self }
    }

    /// Divided by powers of ten.
    #[must_use]
    pub fn logarithmic(quantity: &str, unit: &'static str) -> Self {
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
    /// A value without an error bar.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { middle: value, least: value, most: value }
    }

    /// The median of `values`, and all of them between the ends; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let (upper, lower) = (sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2]);
        Some(Self { middle: f64::midpoint(lower, upper), least, most })
    }
}

impl Panel {
    /// The names of its series.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Lines(lines) => lines.series.iter().map(|series| series.name.as_str()).collect(),
            Self::Bars(bars) => bars.series.iter().map(|series| series.name.as_str()).collect(),
        }
    }
}

impl Figure {
    /// The picture.
    ///
    /// # Errors
    /// If it has no panel, or a panel nothing that could be drawn.
    pub fn to_svg(&self) -> anyhow::Result<String> {
        draw::svg(self).with_context(|| format!("drawing {}", self.file))
    }

    /// Writes the picture into `folder`, which is made if need be.
    ///
    /// # Errors
    /// As [`Self::to_svg`], and if the file cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(self.file).with_extension("svg");
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
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
        Figure { file: "test", title: "what it shows".into(), panels }
    }

    #[test]
    fn titles_units_and_one_legend_entry_per_name_are_there() {
        let svg = figure(vec![Panel::Lines(lines()), Panel::Bars(bars())]).to_svg().unwrap();
        let once = [
            "what it shows",
            ">left<",
            ">right<",
            "PRED &amp; co",
            ">DYN<",
            ">LINUX<",
            "local tasks",
            ">nodes<",
        ];
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
    fn values_that_a_logarithm_does_not_have_are_left_out() {
        let mut lines = lines();
        lines.y = Axis::logarithmic("time", "s");
        lines.series[0].points.push(Point { x: 100.0, y: Spread::exact(0.0) });
        assert!(figure(vec![Panel::Lines(lines)]).to_svg().is_ok());
    }

    #[test]
    fn axes_reach_what_they_are_told_to_and_nameless_series_are_not_in_the_legend() {
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
    fn nothing_to_draw_is_an_error_and_no_empty_file() {
        let mut empty = lines();
        empty.series.clear();
        assert!(figure(vec![Panel::Lines(empty)]).to_svg().is_err());
        assert!(figure(Vec::new()).to_svg().is_err());
    }

    #[test]
    fn the_spread_of_values_is_their_median_and_their_ends() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 8.0]), Some(Spread { middle: 3.0, least: 1.0, most: 8.0 }));
        assert_eq!(Spread::of(&[4.0, 2.0]).map(|spread| spread.middle), Some(3.0));
    }
}

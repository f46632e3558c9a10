//! Lines: values over a quantity, in panels with one scale. The drawing is stretched to the width of its panel; text is not.

use core::fmt::Write as _;

use super::scale::Scale;
use super::{Legend, heading, start};
use crate::page::escaped;
use crate::page::value::Unit;

/// A figure of lines.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) legend: Legend,
    /// Values of the paper that hold over the whole width.
    pub(super) marks: Vec<f64>,
    pub(super) panels: Vec<Panel>,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    pub(super) logarithmic: bool,
}

/// A pair of axes under one heading, which may be empty.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) series: Vec<Series>,
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) class: &'static str,
    /// Points from left to right.
    pub(super) points: Vec<(f64, f64)>,
}

impl Lines {
    /// Writes the figure; nothing if there is no point.
    pub(super) fn write(&self, html: &mut String) {
        let points = || self.panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
        if points().next().is_none() {
            return;
        }
        let x = Scale::across(points().map(|(x, _)| *x), self.x.logarithmic);
        let y = Scale::of(points().map(|(_, y)| *y).chain(self.marks.iter().copied()), self.y.logarithmic)
            .aired();
        let mut across: Vec<f64> = points().map(|(x, _)| *x).collect();
        across.sort_by(f64::total_cmp);
        across.dedup();
        start(html, &self.title, &self.legend);
        html.push_str("<div class=\"panels\">\n");
        for panel in &self.panels {
            self.panel(html, panel, [x, y], &across);
        }
        html.push_str("</div></figure>\n");
    }

    fn panel(&self, html: &mut String, panel: &Panel, [x, y]: [Scale; 2], across: &[f64]) {
        let title = escaped(&panel.title);
        let _ = write!(
            html,
            "<div class=\"panel\">{}<p class=\"y\">{}</p>",
            heading(&panel.title),
            axis_title(self.y)
        );
        html.push_str("<div class=\"plot\">");
        let _ = write!(
            html,
            "<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{} over {}: {title}\">",
            escaped(self.y.title),
            escaped(self.x.title)
        );
        for tick in y.ticks() {
            let at = 100.0 - y.place(tick);
            let _ = write!(html, "<path class=\"grid\" d=\"M0 {at:.2}H100\"/>");
        }
        for mark in &self.marks {
            let at = 100.0 - y.place(*mark);
            let _ = write!(html, "<path class=\"mark\" d=\"M0 {at:.2}H100\"/>");
        }
        for series in &panel.series {
            self.series(html, series, [x, y]);
        }
        html.push_str("</svg>");
        for tick in y.ticks() {
            let (at, text) = (y.place(tick), escaped(&self.y.unit.show(tick)));
            let _ = write!(html, "<span class=\"ytick\" style=\"bottom:{at:.2}%\">{text}</span>");
        }
        let mut last = f64::NEG_INFINITY;
        for value in across {
            let at = x.place(*value);
            if at - last >= APART {
                last = at;
                let text = escaped(&self.x.unit.show(*value));
                let _ = write!(html, "<span class=\"xtick\" style=\"left:{at:.2}%\">{text}</span>");
            }
        }
        let _ = writeln!(html, "</div><p class=\"x\">{}</p></div>", axis_title(self.x));
    }

    fn series(&self, html: &mut String, series: &Series, [x, y]: [Scale; 2]) {
        let Series { name, class, points } = series;
        let at: Vec<_> = points.iter().map(|(right, up)| (x.place(*right), 100.0 - y.place(*up))).collect();
        let path: Vec<_> = at.iter().map(|(x, y)| format!("{x:.2} {y:.2}")).collect();
        let _ = write!(html, "<path class=\"line {class}\" d=\"M{}\"/>", path.join("L"));
        for ((left, top), (right, up)) in at.iter().zip(points) {
            let (name, right, up) = (escaped(name), self.x.unit.show(*right), self.y.unit.show(*up));
            let (right, up) = (escaped(&right), escaped(&up));
            // A line without length has round ends: a dot that keeps its shape in the stretched drawing.
            let _ = write!(
                html,
                "<path class=\"dot {class}\" d=\"M{left:.2} {top:.2}h0.001\"><title>{name}, {right}: {up}</title></path>"
            );
        }
    }
}

fn axis_title(axis: Axis) -> String {
    let note = if axis.logarithmic { " (logarithmic)" } else { "" };
    format!("{}{note}", escaped(axis.title))
}

/// Least distance of two labels in per cent of the width: that of a label on a phone.
const APART: f64 = 14.0;

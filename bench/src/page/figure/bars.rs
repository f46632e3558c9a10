//! Bars: for each row its name, and below it the bars of its values. Text has a fixed size, and wraps on any screen.

use core::fmt::Write as _;

use super::scale::Scale;
use super::{Legend, start};
use crate::page::escaped;
use crate::page::value::Unit;

/// A figure of bars.
#[derive(Debug)]
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) logarithmic: bool,
    pub(super) legend: Legend,
    /// Values of the paper that hold for all rows.
    pub(super) marks: Vec<f64>,
    pub(super) panels: Vec<Panel>,
}

/// Bars under one heading, which may be empty.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
}

/// The bars of one row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug)]
pub(super) struct Bar {
    /// Parts from left to right: class and value.
    pub(super) parts: Vec<(&'static str, f64)>,
    pub(super) text: String,
    pub(super) floor: Option<f64>,
}

impl Bar {
    fn end(&self) -> f64 {
        self.parts.iter().map(|(_, value)| value).sum()
    }
}

impl Bars {
    /// Writes the figure; nothing if there is no bar.
    pub(super) fn write(&self, html: &mut String) {
        let bars = || self.panels.iter().flat_map(|panel| &panel.rows).flat_map(|row| &row.bars);
        let values =
            bars().flat_map(|bar| [Some(bar.end()), bar.floor]).flatten().chain(self.marks.iter().copied());
        if bars().next().is_none() {
            return;
        }
        let scale = Scale::of(values, self.logarithmic);
        let note = if scale.is_logarithmic() { ", logarithmic" } else { "" };
        start(html, &format!("{}{note}", self.title), &self.legend);
        for panel in &self.panels {
            if !panel.title.is_empty() {
                let _ = writeln!(html, "<h4>{}</h4>", escaped(&panel.title));
            }
            html.push_str("<div class=\"bars\">\n");
            for row in &panel.rows {
                self.row(html, row, scale);
            }
            html.push_str("<div class=\"axis\">");
            for tick in scale.ticks() {
                let _ = write!(
                    html,
                    "<span style=\"left:{:.2}%\">{}</span>",
                    scale.place(tick),
                    escaped(&self.unit.show(tick))
                );
            }
            html.push_str("</div></div>\n");
        }
        html.push_str("</figure>\n");
    }

    fn row(&self, html: &mut String, row: &Row, scale: Scale) {
        let _ = write!(html, "<div class=\"row\"><span class=\"name\">{}</span>", escaped(&row.name));
        for bar in &row.bars {
            let _ = write!(html, "<span class=\"value\">{}</span><span class=\"track\">", escaped(&bar.text));
            let mut before = 0.0;
            for (class, value) in &bar.parts {
                let (left, right) =
                    (if before > 0.0 { scale.place(before) } else { 0.0 }, scale.place(before + value));
                let _ = write!(
                    html,
                    "<i class=\"{class}\" style=\"left:{left:.2}%;width:{:.2}%\"></i>",
                    (right - left).max(0.0)
                );
                before += value;
            }
            let strokes = [(bar.floor, "floor")].into_iter().filter_map(|(at, class)| Some((at?, class)));
            for (at, class) in strokes.chain(self.marks.iter().map(|mark| (*mark, "mark"))) {
                let _ = write!(html, "<i class=\"{class}\" style=\"left:{:.2}%\"></i>", scale.place(at));
            }
            html.push_str("</span>");
        }
        html.push_str("</div>\n");
    }
}

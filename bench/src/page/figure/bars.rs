//! Bars: for each row its name, and below it the bars of its values. Text has a fixed size, and wraps on any screen.

use core::fmt::Write as _;

use super::scale::Scale;
use super::{Legend, heading, start};
use crate::page::escaped;
use crate::page::value::Unit;

/// A figure of bars.
#[derive(Debug)]
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) logarithmic: bool,
    pub(super) legend: Legend,
    pub(super) panels: Vec<Panel>,
}

/// Bars under one heading, which may be empty.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Values of the paper for all of its rows.
    pub(super) marks: Vec<f64>,
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
        let values = bars().flat_map(|bar| [Some(bar.end()), bar.floor]).flatten();
        let marks = self.panels.iter().flat_map(|panel| panel.marks.iter().copied());
        if bars().next().is_none() {
            return;
        }
        let scale = Scale::of(values.chain(marks), self.logarithmic);
        let note = if scale.is_logarithmic() { ", logarithmic" } else { "" };
        start(html, &format!("{}{note}", self.title), &self.legend);
        // The values of several bars stand next to them, the one of a single bar above it.
        let several = self.panels.iter().flat_map(|panel| &panel.rows).any(|row| row.bars.len() > 1);
        html.push_str("<div class=\"panels\">\n");
        for panel in &self.panels {
            let _ = write!(
                html,
                "<div class=\"panel bars{}\">{}",
                if several { " several" } else { "" },
                heading(&panel.title)
            );
            for row in &panel.rows {
                Self::row(html, row, &panel.marks, scale);
            }
            html.push_str("<div class=\"axis\">");
            for tick in scale.ticks() {
                let (at, text) = (scale.place(tick), escaped(&self.unit.show(tick)));
                let _ = write!(html, "<span style=\"left:{at:.2}%\">{text}</span>");
            }
            html.push_str("</div></div>\n");
        }
        html.push_str("</div></figure>\n");
    }

    fn row(html: &mut String, row: &Row, marks: &[f64], scale: Scale) {
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
            for (at, class) in strokes.chain(marks.iter().map(|mark| (*mark, "mark"))) {
                let _ = write!(html, "<i class=\"{class}\" style=\"left:{:.2}%\"></i>", scale.place(at));
            }
            html.push_str("</span>");
        }
        html.push_str("</div>\n");
    }
}

//! The layout of a figure: title above, panels side by side, legend below.

use anyhow::{Result, ensure};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color as _, WHITE};
use plotters_backend::DrawingBackend;
use plotters_svg::SVGBackend;

use super::{Figure, Panel, bars, lines, style};

/// Size of a panel in pixels.
const PANEL: (i32, i32) = (560, 380);
/// Margin at the border.
const MARGIN: i32 = 14;
/// Height of the title above all panels.
const HEAD: i32 = 34;
/// Height of a row of the legend.
const ROW: i32 = 22;
/// Widths of the sample of a legend entry, and of the space after its text.
const SAMPLE: i32 = 30;
const GAP: i32 = 24;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the figure.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    ensure!(!figure.panels.is_empty(), "no panel");
    let names = names(figure);
    let panels = i32::try_from(figure.panels.len())?;
    let width = panels * PANEL.0 + 2 * MARGIN;
    let rows = rows(&names, width - 2 * MARGIN);
    let legend = i32::try_from(rows.len())? * ROW + MARGIN;
    let height = HEAD + PANEL.1 + legend + MARGIN;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (u32::try_from(width)?, u32::try_from(height)?))
            .into_drawing_area();
        root.fill(&WHITE)?;
        let centred = style::text(style::TITLE, HPos::Center, VPos::Center);
        root.draw(&Text::new(figure.title.clone(), (width / 2, HEAD / 2 + 4), centred))?;
        let (_, rest) = root.split_vertically(HEAD);
        let (upper, lower) = rest.split_vertically(PANEL.1);
        let upper = upper.margin(0, 0, MARGIN, MARGIN);
        for (panel, area) in figure.panels.iter().zip(upper.split_evenly((1, figure.panels.len()))) {
            match panel {
                Panel::Lines(panel) => lines::draw(&area, panel, &names)?,
                Panel::Bars(panel) => bars::draw(&area, panel, &names)?,
            }
        }
        draw_legend(&lower, figure, &rows, width)?;
        root.present()?;
    }
    Ok(text)
}

/// Returns every name once, in the order of first appearance, which determines its colour.
fn names(figure: &Figure) -> Vec<&str> {
    let mut names = Vec::new();
    for name in figure.panels.iter().flat_map(Panel::names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the index of a series among all names.
pub(super) fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_default()
}

/// An entry of the legend: index, name, width.
type Entry<'a> = (usize, &'a str, i32);

/// Divides the legend into rows that fit.
fn rows<'a>(names: &[&'a str], width: i32) -> Vec<Vec<Entry<'a>>> {
    let mut rows: Vec<Vec<Entry<'a>>> = Vec::new();
    let mut left = 0;
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let needed = SAMPLE + style::width(name, style::TEXT) + GAP;
        if rows.is_empty() || left < needed {
            rows.push(Vec::new());
            left = width;
        }
        left -= needed;
        rows.last_mut().expect("a row was just begun").push((index, name, needed));
    }
    rows
}

fn draw_legend(area: &Area<'_>, figure: &Figure, rows: &[Vec<Entry<'_>>], width: i32) -> Result<()> {
    let is_bar = |name: &str| {
        figure.panels.iter().any(|panel| matches!(panel, Panel::Bars(_)) && panel.names().contains(&name))
    };
    for (row, y) in rows.iter().zip((MARGIN..).step_by(usize::try_from(ROW)?)) {
        let mut x = (width - row.iter().map(|(.., wide)| wide).sum::<i32>()) / 2;
        for (index, name, wide) in row {
            if is_bar(name) {
                draw_box(area, *index, (x, y))?;
            } else {
                area.draw(&PathElement::new(vec![(x, y), (x + SAMPLE - 8, y)], style::line(*index)))?;
                area.draw(&style::marker(*index, (x + SAMPLE / 2 - 4, y)))?;
            }
            let beside = style::text(style::TEXT, HPos::Left, VPos::Center);
            area.draw(&Text::new((*name).to_owned(), (x + SAMPLE, y), beside))?;
            x += wide;
        }
    }
    Ok(())
}

fn draw_box<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, index: usize, (x, y): (i32, i32)) -> Result<()>
where
    DB::ErrorType: 'static,
{
    let corners = [(x + 4, y - 6), (x + SAMPLE - 8, y + 6)];
    area.draw(&Rectangle::new(corners, style::colour(index).filled()))?;
    area.draw(&Rectangle::new(corners, style::thin()))?;
    Ok(())
}

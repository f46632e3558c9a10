//! A panel of bars in groups.

use anyhow::{Result, ensure};
use plotters::chart::ChartBuilder;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use super::draw::{Area, place};
use super::lines::{AIR, AROUND, BELOW, LEFT, number};
use super::{Bars, Spread, style};

/// Share of a group's width that its bars fill.
const FILLED: f64 = 0.84;

/// Draws the panel. Each group has width 1.
pub(super) fn draw(area: &Area<'_>, panel: &Bars, names: &[&str]) -> Result<()> {
    let spreads = panel.series.iter().flat_map(|series| series.bars.iter().flatten());
    let most = spreads.map(|s| s.most.max(s.middle)).fold(f64::NEG_INFINITY, f64::max);
    let most = most.max(f64::from(panel.y.reaches));
    ensure!(most > 0.0 && most.is_finite(), "nothing to show in `{}`", panel.title);
    let groups = f64::from(u32::try_from(panel.groups.len())?);
    let mut chart = ChartBuilder::on(area)
        .margin(AROUND)
        .margin_right(3 * AROUND)
        .caption(&panel.title, style::font(style::TEXT + 2))
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..groups, 0.0..most * (1.0 + AIR))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(style::GRID)
        .light_line_style(style::GRID.mix(0.0))
        .axis_style(style::INK)
        .label_style(style::font(style::TEXT))
        .axis_desc_style(style::font(style::TEXT + 1))
        .x_labels(0)
        .x_desc(panel.x.clone())
        .y_desc(panel.y.to_string())
        .y_labels(8)
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    let wide = FILLED / f64::from(u32::try_from(panel.series.len())?);
    for (nth, series) in (0_u32..).zip(&panel.series) {
        let index = place(names, &series.name);
        let left = (1.0 - FILLED) / 2.0 + wide * f64::from(nth);
        let bars = || {
            (0_u32..).zip(&series.bars).filter_map(|(group, bar)| Some((f64::from(group) + left, (*bar)?)))
        };
        let corners = |(x, bar): (f64, Spread)| [(x, 0.0), (x + wide, bar.middle)];
        chart.draw_series(bars().map(|bar| Rectangle::new(corners(bar), style::colour(index).filled())))?;
        chart.draw_series(bars().map(|bar| Rectangle::new(corners(bar), style::thin())))?;
        // Light below dark, so that they are visible on bars of any colour.
        for stroke in [style::halo(), style::thin()] {
            chart.draw_series(bars().filter(|(_, bar)| bar.least < bar.most).map(|(x, bar)| {
                let middle = x + wide / 2.0;
                PathElement::new(vec![(middle, bar.least.max(0.0)), (middle, bar.most)], stroke)
            }))?;
        }
    }
    for (group, name) in (0_u32..).zip(&panel.groups) {
        // The plot's coordinates end at its edge, so names below it are placed in pixels.
        let (x, y) = chart.backend_coord(&(f64::from(group) + 0.5, 0.0));
        let (left, top) = area.get_base_pixel();
        let below = style::text(style::TEXT, HPos::Center, VPos::Top);
        area.draw(&Text::new(name.clone(), (x - left, y - top + 6), below))?;
    }
    Ok(())
}

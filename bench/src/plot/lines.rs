//! A panel of points over a quantity, on linear or logarithmic axes.

use core::ops::Range;

use anyhow::{Result, ensure};
use plotters::chart::ChartBuilder;
use plotters::coord::combinators::IntoLogRange as _;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::Color as _;

use super::draw::{Area, place};
use super::{Axis, Lines, Marks, Point, Scale, style};

/// Sizes of the areas for the labels of the axes, in pixels.
pub(super) const LEFT: i32 = 64;
pub(super) const BELOW: i32 = 46;
/// Margin around the panel.
pub(super) const AROUND: i32 = 10;

/// Draws the panel.
pub(super) fn draw(area: &Area<'_>, panel: &Lines, names: &[&str]) -> Result<()> {
    let shown = |point: &&Point| {
        (panel.x.scale != Scale::Logarithmic || point.x > 0.0)
            && (panel.y.scale != Scale::Logarithmic || point.y.middle > 0.0)
    };
    let series: Vec<(usize, Vec<Point>)> = panel
        .series
        .iter()
        .map(|s| (place(names, &s.name), s.points.iter().filter(shown).copied().collect()))
        .collect();
    let points = || series.iter().flat_map(|(_, points)| points);
    ensure!(points().next().is_some(), "nothing to show in `{}`", panel.title);
    let reached = |axis: &Axis| (axis.reaches > 0).then_some(f64::from(axis.reaches));
    let x = bounds(points().map(|point| point.x).chain(reached(&panel.x)), panel.x.scale);
    let values = points().flat_map(|p| [p.y.least, p.y.middle, p.y.most]);
    let y = bounds(values.chain(reached(&panel.y)), panel.y.scale);
    let logarithmic = |axis: &Axis| axis.scale == Scale::Logarithmic;
    match (logarithmic(&panel.x), logarithmic(&panel.y)) {
        (false, false) => between(area, panel, &series, x, y.clone(), y),
        (true, false) => between(area, panel, &series, x.log_scale(), y.clone(), y),
        (false, true) => between(area, panel, &series, x, y.clone().log_scale(), y),
        (true, true) => between(area, panel, &series, x.log_scale(), y.clone().log_scale(), y),
    }
}

/// Draws between axes of any scale; `bounds` are those of `y` as numbers.
fn between<X, Y>(
    area: &Area<'_>,
    panel: &Lines,
    series: &[(usize, Vec<Point>)],
    x: X,
    y: Y,
    bounds: Range<f64>,
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(AROUND)
        .margin_right(3 * AROUND)
        .caption(&panel.title, style::font(style::TEXT + 2))
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(style::GRID)
        .light_line_style(style::GRID.mix(0.0))
        .axis_style(style::INK)
        .label_style(style::font(style::TEXT))
        .axis_desc_style(style::font(style::TEXT + 1))
        .x_desc(panel.x.to_string())
        .y_desc(panel.y.to_string())
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (index, points) in series {
        if panel.marks == Marks::Scattered {
            let small = style::colour(*index).filled();
            chart.draw_series(points.iter().map(|p| Circle::new((p.x, p.y.middle), 2, small)))?;
            continue;
        }
        chart.draw_series(LineSeries::new(points.iter().map(|p| (p.x, p.y.middle)), style::line(*index)))?;
        let spread = points.iter().filter(|p| p.y.least < p.y.most);
        chart.draw_series(spread.map(|p| {
            let ends = [p.y.least.max(bounds.start), p.y.most].map(|y| (p.x, y));
            PathElement::new(ends.to_vec(), style::colour(*index).stroke_width(1))
        }))?;
        chart.draw_series(points.iter().map(|p| style::marker(*index, (p.x, p.y.middle))))?;
    }
    Ok(())
}

/// Returns the range of an axis, with some air. A linear axis begins at zero, a zoomed one does not.
fn bounds(values: impl Iterator<Item = f64>, scale: Scale) -> Range<f64> {
    let (least, most) = values
        .filter(|value| value.is_finite() && (scale != Scale::Logarithmic || *value > 0.0))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| (least.min(v), most.max(v)));
    match scale {
        Scale::Linear => {
            let (least, most) = (least.min(0.0), most.max(least.min(0.0) + f64::MIN_POSITIVE));
            let air = (most - least) * AIR;
            (if least < 0.0 { least - air } else { 0.0 })..most + air
        }
        Scale::Zoomed => {
            let air = ((most - least) * AIR).max(f64::MIN_POSITIVE);
            least - air..most + air
        }
        // Powers of ten on both sides, so that a single value has an axis, too.
        Scale::Logarithmic => {
            10_f64.powf(least.log10().floor())..10_f64.powf((most * (1.0 + AIR)).log10().ceil())
        }
    }
}

/// Share of an axis that is free beyond the last value.
pub(super) const AIR: f64 = 0.06;

/// Formats a number at an axis: short, with thousands separated from five digits on.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        0.0 | 10.0.. => 1,
        0.01.. => 3,
        _ => 6,
    };
    let text = format!("{value:.digits$}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if size < 10_000.0 {
        return short.to_owned();
    }
    let whole = short.find('.').unwrap_or(short.len());
    let mut grouped = String::new();
    for (index, digit) in short.char_indices() {
        let after_digit = grouped.ends_with(|c: char| c.is_ascii_digit());
        if after_digit && index < whole && (whole - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_and_begin_at_zero_or_a_power_of_ten() {
        let range = bounds([3.0, 50.0].into_iter(), Scale::Linear);
        assert!(range.start == 0.0 && range.end > 50.0 && range.end < 60.0, "{range:?}");
        assert!(bounds([-2.0, 5.0].into_iter(), Scale::Linear).start < -2.0);
        assert_eq!(bounds([3.0, 50.0].into_iter(), Scale::Logarithmic), 1.0..100.0);
        let zoomed = bounds([0.95, 1.05].into_iter(), Scale::Zoomed);
        assert!(zoomed.start > 0.9 && zoomed.start < 0.95 && zoomed.end > 1.05, "{zoomed:?}");
        let flat = bounds([0.0, 0.0].into_iter(), Scale::Linear);
        assert!(flat.start < flat.end);
    }

    #[test]
    fn numbers_are_short() {
        let values = [0.0, 0.25, 1.5, 12.0, 1000.0, 10_000.0, 2_500_000.0, -3.0, 0.000_2];
        assert_eq!(
            values.map(number),
            ["0", "0.25", "1.5", "12", "1000", "10,000", "2,500,000", "-3", "0.0002"]
        );
    }
}

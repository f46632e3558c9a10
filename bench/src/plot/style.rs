//! Appearance: colours, markers, fonts.

use plotters::element::{Circle, Cross, DynElement, IntoDynElement as _, TriangleMarker};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color as _, FontDesc, FontFamily, FontStyle, IntoTextStyle as _, RGBColor, ShapeStyle, TextStyle, WHITE,
};
use plotters_backend::DrawingBackend;

/// Colours by index in the legend: the palette of Okabe and Ito ("Color Universal Design", 2008), which is suitable for any kind of
/// colour vision. Its black is a dark grey, so that error bars are visible. Neighbours also differ in lightness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(60, 60, 60),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(150, 150, 150),
];

/// Colour of grid lines.
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);
/// Colour of axes, error bars and text.
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);

/// Heights of text in pixels.
pub(super) const TITLE: i32 = 17;
pub(super) const TEXT: i32 = 13;

/// Half the size of a marker in pixels.
const MARKER: i32 = 4;

/// Returns the colour of a series.
pub(super) const fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Returns the colour as written in the file.
#[cfg(test)]
pub(super) fn hex(index: usize) -> String {
    let RGBColor(red, green, blue) = colour(index);
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Returns the line style of a series.
pub(super) fn line(index: usize) -> ShapeStyle {
    colour(index).stroke_width(2)
}

/// Returns the style of the line below a thin line that crosses a colour.
pub(super) fn halo() -> ShapeStyle {
    WHITE.stroke_width(3)
}

/// Returns the style of a thin line.
pub(super) fn thin() -> ShapeStyle {
    INK.stroke_width(1)
}

/// Returns the marker of a series at a position.
pub(super) fn marker<DB: DrawingBackend, Coord: Clone + 'static>(
    index: usize,
    at: Coord,
) -> DynElement<'static, DB, Coord> {
    let (filled, size) = (colour(index).filled(), MARKER);
    match index % 4 {
        0 => Circle::new(at, size, filled).into_dyn(),
        1 => Circle::new(at, size, line(index)).into_dyn(),
        2 => TriangleMarker::new(at, size + 2, filled).into_dyn(),
        _ => Cross::new(at, size, line(index)).into_dyn(),
    }
}

/// Returns the style of text with a height, placed relative to its point.
pub(super) fn text(height: i32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    font(height).color(&INK).pos(Pos::new(horizontal, vertical))
}

/// Returns the sans-serif font of the reader's system.
pub(super) fn font(height: i32) -> TextStyle<'static> {
    FontDesc::new(FontFamily::SansSerif, f64::from(height), FontStyle::Normal).into_text_style(&(1, 1))
}

/// Returns the approximate width of text in pixels: a sans-serif letter is a little over half as wide as high.
pub(super) fn width(text: &str, height: i32) -> i32 {
    let letters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 100);
    letters * height * 54 / 100
}

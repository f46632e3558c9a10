//! The bundled images of handwritten digits; `data/README.md` names their source and terms.

use std::io::Read as _;

use flate2::read::GzDecoder;

use super::{DataError, Points, csv};

/// Unpacks the digits: 64 pixels per row; the last column, the digit shown, becomes the label.
pub(super) fn load() -> Result<Points, DataError> {
    let mut text = String::new();
    GzDecoder::new(BUNDLE).read_to_string(&mut text).map_err(DataError::Bundle)?;
    let damaged = || DataError::Bundle(std::io::ErrorKind::InvalidData.into());
    let table = csv::parse(&text).map_err(|_| damaged())?;
    if table.dims != PIXELS + 1 {
        return Err(damaged());
    }
    let mut points = Points { values: Vec::new(), dims: PIXELS, labels: None };
    let mut labels = Vec::new();
    for row in table.values.chunks(table.dims) {
        points.values.extend_from_slice(&row[..PIXELS]);
        let digit = (0..=9_u8).find(|digit| f64::from(*digit) == row[PIXELS]);
        labels.push(digit.ok_or_else(damaged)?);
    }
    points.labels = Some(labels);
    Ok(points)
}

const BUNDLE: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// Pixels of an image of 8 by 8.
const PIXELS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_matches_its_readme() {
        let digits = load().unwrap();
        assert_eq!((digits.rows(), digits.dims), (1_797, 64));
        assert!(digits.values.iter().all(|pixel| (0.0..=16.0).contains(pixel)));
        let labels = digits.labels.unwrap();
        assert_eq!(labels[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}

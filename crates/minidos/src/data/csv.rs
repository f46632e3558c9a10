//! Parser for rows of numbers separated by commas. A first line of names is skipped.

use thiserror::Error;

use super::Points;

/// Error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A field is not a number.
    #[error("column {column} is not a number")]
    NotANumber {
        /// The column, from 1.
        column: usize,
    },
    /// A field is infinite or NaN.
    #[error("column {column} is not a finite number")]
    NotFinite {
        /// The column, from 1.
        column: usize,
    },
    /// The line has more or fewer columns than the first.
    #[error("{found} columns, but the first row has {expected}")]
    Columns {
        /// Columns of this line.
        found: usize,
        /// Columns of the first row.
        expected: usize,
    },
    /// There are more columns than the demo supports.
    #[error("{0} columns; at most {MAX_COLUMNS} are supported")]
    TooManyColumns(usize),
    /// The file has no row of numbers.
    #[error("the file has no row of numbers")]
    Empty,
}

/// Parses all lines; empty lines are skipped.
///
/// # Errors
/// The number of the first invalid line, from 1, and its fault.
pub(super) fn parse(text: &str) -> Result<Points, (usize, Fault)> {
    let mut points = Points { values: Vec::new(), dims: 0, labels: None };
    let mut last = 1;
    for (number, line) in (1..).zip(text.lines()) {
        last = number;
        let line = line.trim();
        if line.is_empty() || (points.dims == 0 && number == 1 && is_header(line)) {
            continue;
        }
        let before = points.values.len();
        for (column, field) in (1..).zip(line.split(',')) {
            let value: f64 = field.trim().parse().map_err(|_| (number, Fault::NotANumber { column }))?;
            if !value.is_finite() {
                return Err((number, Fault::NotFinite { column }));
            }
            points.values.push(value);
        }
        let found = points.values.len() - before;
        if points.dims == 0 {
            points.dims = found;
        }
        if found > MAX_COLUMNS {
            return Err((number, Fault::TooManyColumns(found)));
        }
        if found != points.dims {
            return Err((number, Fault::Columns { found, expected: points.dims }));
        }
    }
    if points.dims == 0 { Err((last, Fault::Empty)) } else { Ok(points) }
}

/// Returns whether `line` contains only names: none of its fields is a number.
fn is_header(line: &str) -> bool {
    line.split(',').all(|field| field.trim().parse::<f64>().is_err())
}

/// Maximum number of columns. Chosen by us; no source. A centre of this many numbers fills eight pages.
const MAX_COLUMNS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns() {
        let points = parse("1, 2.5\n\n-3e2,4\r\n").unwrap();
        assert_eq!((points.dims, points.rows()), (2, 2));
        assert_eq!(points.row(1), [-300.0, 4.0]);
    }

    #[test]
    fn a_line_of_names_is_skipped_only_at_the_top() {
        assert_eq!(parse("x,y\n1,2\n").unwrap().rows(), 1);
        assert_eq!(parse("1,2\nx,y\n"), Err((2, Fault::NotANumber { column: 1 })));
        assert_eq!(parse("1,y\n"), Err((1, Fault::NotANumber { column: 2 })));
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        assert_eq!(parse("1,2\n3,4\n5\n"), Err((3, Fault::Columns { found: 1, expected: 2 })));
        assert_eq!(parse("1,2\n\n3,4,5\n"), Err((3, Fault::Columns { found: 3, expected: 2 })));
        assert_eq!(parse("1,2\n1,\n"), Err((2, Fault::NotANumber { column: 2 })));
        assert_eq!(parse("1,inf\n"), Err((1, Fault::NotFinite { column: 2 })));
        assert_eq!(parse("NaN,1\n"), Err((1, Fault::NotFinite { column: 1 })));
        assert_eq!(parse(""), Err((1, Fault::Empty)));
        assert_eq!(parse("x,y\n\n\n"), Err((3, Fault::Empty)));
        let wide = vec!["1"; MAX_COLUMNS + 1].join(",");
        assert_eq!(parse(&wide), Err((1, Fault::TooManyColumns(MAX_COLUMNS + 1))));
    }
}

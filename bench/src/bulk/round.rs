//! The rounds of a participant, and the output of the programs in `bench/peers`, as lines:
//!
//! ```text
//! version WORD WORD...           version of the library
//! read BYTES NS                  the sum of BYTES in hot memory took NS, the fastest of several
//! cell SIZE OPEN COUNT NS        COUNT messages of SIZE bytes, with OPEN of them under way, took NS together
//! ```

use core::time::Duration;
use std::collections::BTreeMap;

use anyhow::{Context as _, bail};

use super::Cell;
use crate::traffic::speed::Speed;

/// Results of the rounds of a participant.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Version, as the participant reports it.
    pub(crate) version: Option<String>,
    /// Bytes per second of each cell.
    pub(crate) cells: BTreeMap<Cell, Speed>,
    /// Bytes per second of the receiver's sum alone.
    pub(crate) reading: Speed,
}

impl Rounds {
    /// Adds a round of a cell.
    pub(crate) fn cell(&mut self, cell: Cell, (count, time): (u64, Duration)) {
        self.cells.entry(cell).or_default().round(count * cell.bytes as u64, time);
    }

    /// Adds the output of a program's round. Fails unless it has all of `cells`.
    pub(crate) fn take(&mut self, text: &str, cells: &[Cell]) -> anyhow::Result<()> {
        let mut found = Vec::new();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            if kind == "version" {
                self.version = Some(rest.to_owned());
                continue;
            }
            let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
            let numbers = numbers.with_context(|| format!("expected numbers, got `{line}`"))?;
            match (kind, &numbers[..]) {
                ("read", [bytes, ns]) if *ns > 0 => self.reading.round(*bytes, Duration::from_nanos(*ns)),
                ("cell", [bytes, open, count, ns]) if *count > 0 && *ns > 0 => {
                    let cell = Cell { bytes: usize::try_from(*bytes)?, open: usize::try_from(*open)? };
                    self.cell(cell, (*count, Duration::from_nanos(*ns)));
                    found.push(cell);
                }
                _ => bail!("malformed line: `{line}`"),
            }
        }
        anyhow::ensure!(found == cells, "a round without all cells: {found:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: [Cell; 2] = [Cell { bytes: 64, open: 1 }, Cell { bytes: 64, open: 16 }];

    #[test]
    fn rounds_are_read_from_their_output() {
        let mut rounds = Rounds::default();
        let text = "version UCX 1.13\nread 2000 1000\ncell 64 1 10 1000\ncell 64 16 20 1000\n";
        rounds.take(text, &CELLS).unwrap();
        rounds.take(&text.replace("20 1000", "30 1000"), &CELLS).unwrap();
        assert_eq!(rounds.version.as_deref(), Some("UCX 1.13"));
        let speeds = CELLS.map(|cell| rounds.cells[&cell].per_second() / 1e9);
        assert!((speeds[0] - 0.64).abs() < 1e-9 && (speeds[1] - 1.6).abs() < 1e-9, "{speeds:?}");
        assert!((rounds.reading.per_second() - 2e9).abs() < 1.0);
        assert!((rounds.cells[&CELLS[1]].a_to_a() - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn incomplete_and_malformed_output_is_refused() {
        for text in [
            "",
            "cell 64 1 10 1000\n",
            "cell 64 1 10 1000\ncell 64 16 0 1000\n",
            "cell 64 1 10 1000\ncell 64 16 5 1000\nread 5\n",
            "cell 64 1 10 1000\ncell 64 16 5 1000\nsingle 5 5\n",
            "cell 64 1 10 1000\ncell 64 16 x 1000\n",
        ] {
            assert!(Rounds::default().take(text, &CELLS).is_err(), "{text}");
        }
    }
}

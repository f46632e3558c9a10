//! The CPU time of links that are made one after another.

use super::row::{Links as Row, Row as AnyRow, Tls};
use crate::experiment::Run;
use crate::params::Params;
use crate::sample::{a_to_a, approximate};
use crate::tls::certificates::Certificates;
use crate::tls::links::{Links, Spent};

/// Number of links that a row is about.
pub(super) const LINKS: u32 = 1_000;
/// Number of rows: links with TLS, and links without.
pub(super) const ROWS: usize = Tls::BOTH.len();

/// Returns the number of links in a round of a full or a quick run. A full run makes as many as a row is about.
pub(super) const fn per_round(params: &Params) -> u32 {
    if params.quick { 25 } else { 100 }
}

struct Cell {
    tls: Tls,
    links: Links,
    rounds: Vec<Spent>,
}

/// Makes links of both kinds in turns.
pub(super) fn measure(
    run: &mut Run<'_>,
    certificates: &Certificates,
    per_round: u32,
) -> anyhow::Result<Vec<AnyRow>> {
    let cpus = run.cpus;
    let cell = |tls: Tls| -> anyhow::Result<_> {
        let folder = (tls == Tls::With).then(|| certificates.folder());
        let mut links = Links::spawn(folder, cpus)?;
        // The first links make memory ready.
        links.make(WARM_UP)?;
        Ok(Cell { tls, links, rounds: Vec::new() })
    };
    let mut cells = Tls::BOTH.into_iter().map(cell).collect::<anyhow::Result<Vec<_>>>()?;
    let label = |cell: &Cell| format!("links {} TLS", cell.tls.name());
    run.in_turns(&mut cells, label, |cell, _| {
        cell.rounds.push(cell.links.make(per_round)?);
        Ok(())
    })?;
    Ok(cells.iter().map(|cell| AnyRow::Links(row(cell.tls, &cell.rounds, per_round))).collect())
}

/// Returns the row of rounds with `per_round` links each.
fn row(tls: Tls, rounds: &[Spent], per_round: u32) -> Row {
    let made = f64::from(per_round) * approximate(rounds.len() as u64);
    let scaled =
        |of: fn(&Spent) -> u64| approximate(rounds.iter().map(of).sum()) / 1e9 * f64::from(LINKS) / made;
    let both: Vec<_> = rounds.iter().map(|spent| approximate(spent.dialler_ns + spent.acceptor_ns)).collect();
    let cpu_s = [scaled(|spent| spent.dialler_ns), scaled(|spent| spent.acceptor_ns)];
    Row { tls, cpu_s, aa: a_to_a(&both) }
}

const WARM_UP: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_scaled_to_a_thousand_links() {
        let spent = |dialler_ns, acceptor_ns| Spent { dialler_ns, acceptor_ns };
        let row = row(Tls::With, &[spent(10_000_000, 20_000_000), spent(30_000_000, 40_000_000)], 25);
        assert_eq!(row.cpu_s.map(|seconds| (seconds * 1e3).round()), [800.0, 1_200.0]);
        assert!((row.aa - 3.0 / 7.0).abs() < 1e-9);
    }
}

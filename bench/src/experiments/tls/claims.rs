//! The bars, all chosen by us.

use super::row::{Calls, Row, Tls};
use crate::claim::Claim;
use crate::report::decimals;
use crate::sample::approximate;

/// Judges the bars whose rows were measured.
pub(super) fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |peer, tls, wait| calls(rows).filter(move |row| is(row, peer, tls, wait)).map(Calls::p50);
    let pronto = |tls, wait| of("pronto", tls, wait).next();
    let slower = |id, most, wait| {
        let ratio = pronto(Tls::With, wait)? / pronto(Tls::Without, wait)?;
        Some(Claim::at_most(id, "", most, ratio, 2))
    };
    let against_tonic = || {
        let tonic = of("tonic", Tls::With, "block").min_by(f64::total_cmp)?;
        let ours = calls(rows).find(|row| is(row, "pronto", Tls::With, "block"))?;
        let detail = format!(
            "the setting of tonic with the shorter calls counts: {} times a raw ping-pong without TLS",
            decimals(tonic / approximate(ours.floor.p50_ns), 2)
        );
        Some(Claim::at_least("E3", detail, LESS_THAN_TONIC, tonic / ours.p50(), 2))
    };
    [slower("E1", SPINNING, "spin"), slower("E2", BLOCKING, "block"), against_tonic(), set_up(rows)]
        .into_iter()
        .flatten()
        .collect()
}

fn calls(rows: &[Row]) -> impl Iterator<Item = &Calls> {
    rows.iter().filter_map(|row| match row {
        Row::Calls(row) => Some(row),
        Row::Links(_) => None,
    })
}

fn is(row: &Calls, peer: &str, tls: Tls, wait: &str) -> bool {
    (row.peer, row.tls, row.wait, row.size) == (peer, tls, wait, 32)
}

fn set_up(rows: &[Row]) -> Option<Claim> {
    let links = rows.iter().find_map(|row| match row {
        Row::Links(row) if row.tls == Tls::With => Some(row),
        _ => None,
    })?;
    let [dialler, acceptor] = links.cpu_s.map(|seconds| decimals(seconds, 2));
    let detail = format!("the dialler takes {dialler} s and the acceptor {acceptor} s");
    Some(Claim::at_most("E4", detail, LINKS_CPU_S, links.most(), 2))
}

/// Greatest multiple of a call without TLS, both sides spinning.
const SPINNING: f64 = 1.5;
/// Greatest multiple of a call without TLS, both sides blocking.
const BLOCKING: f64 = 1.15;
/// Least multiple of a call of Pronto that one of tonic takes.
const LESS_THAN_TONIC: f64 = 3.0;
/// Most CPU seconds of a side for a thousand links.
const LINKS_CPU_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::super::row::Links;
    use super::*;
    use crate::claim::Verdict;
    use crate::sample::Sample;

    fn row(peer: &'static str, tls: Tls, wait: &'static str, p50_ns: u64) -> Row {
        let call = Sample { p50_ns, ..Sample::default() };
        let setting = (peer == "tonic").then_some("best");
        Row::Calls(Calls { peer, setting, tls, wait, size: 32, call, floor: Sample::default() })
    }

    fn judged(rows: &[Row]) -> Vec<(&'static str, Verdict)> {
        claims(rows).iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    /// Returns rows with these calls over TLS, spinning, blocking and those of tonic, and with this CPU time of the acceptor.
    fn rows([spin, block, tonic]: [u64; 3], acceptor: f64) -> Vec<Row> {
        vec![
            row("pronto", Tls::Without, "spin", 100),
            row("pronto", Tls::With, "spin", spin),
            row("pronto", Tls::Without, "block", 1_000),
            row("pronto", Tls::With, "block", block),
            row("tonic", Tls::With, "block", 100_000),
            row("tonic", Tls::With, "block", tonic),
            Row::Links(Links { tls: Tls::Without, cpu_s: [9.0; 2], aa: 1.0 }),
            Row::Links(Links { tls: Tls::With, cpu_s: [0.1, acceptor], aa: 1.0 }),
        ]
    }

    #[test]
    fn each_bar_is_missed_by_its_own_rows() {
        let (yes, no) = (Verdict::Holds, Verdict::DoesNotHold);
        let verdicts = |e1, e2, e3, e4| [("E1", e1), ("E2", e2), ("E3", e3), ("E4", e4)];
        assert_eq!(judged(&rows([150, 1_150, 3_450], 2.0)), verdicts(yes, yes, yes, yes));
        assert_eq!(judged(&rows([151, 1_150, 3_450], 2.0)), verdicts(no, yes, yes, yes));
        assert_eq!(judged(&rows([150, 1_151, 3_453], 2.0)), verdicts(yes, no, yes, yes));
        assert_eq!(judged(&rows([150, 1_150, 3_449], 2.0)), verdicts(yes, yes, no, yes));
        assert_eq!(judged(&rows([150, 1_150, 3_450], 2.01)), verdicts(yes, yes, yes, no));
    }

    #[test]
    fn rows_that_were_not_measured_are_not_judged() {
        assert_eq!(judged(&[]), []);
        assert_eq!(judged(&rows([150, 1_150, 3_450], 2.0)[..2]), [("E1", Verdict::Holds)]);
        assert_eq!(judged(&rows([150, 1_150, 3_450], 2.0)[3..7]), [("E3", Verdict::Holds)]);
    }
}

//! Tests of the cells, and of the verdicts with made-up rows.

use super::*;

#[test]
fn every_cell_is_compared_with_sleeping_waits() {
    for quick in [true, false] {
        let cells = all(quick);
        assert!(cells.iter().all(|cell| cells.contains(&cell.asleep())));
    }
}

/// Returns the claims' verdicts where cells take what `seconds` says with each of three seeds.
fn verdicts(seconds: impl Fn(&Cell) -> f64) -> Vec<(&'static str, Verdict)> {
    let row = |cell: Cell| Row { cell, seconds: vec![seconds(&cell); 3] };
    let rows: Vec<_> = all(true).into_iter().map(row).collect();
    claims(&rows).iter().map(|claim| (claim.id, claim.verdict)).collect()
}

#[test]
fn every_claim_holds_where_the_statements_are_true() {
    let found = verdicts(|cell| match (cell.locals, cell.network, cell.policy, cell.wait) {
        (_, _, _, "block") => 1.0,
        ("0", "fast", _, "adaptive" | "spin") => 0.5,
        (_, "fast", "implicit" | "linux", "adaptive") => 0.6,
        (_, "ethernet", "implicit", _) => 1.1,
        (_, _, _, "spin") => 2.0,
        _ => 1.0,
    });
    assert_eq!(found, IDS.map(|id| (id, Verdict::Holds)));
}

#[test]
fn every_claim_fails_where_the_statements_are_false() {
    let found = verdicts(|cell| match (cell.locals, cell.policy, cell.wait) {
        (_, _, "block") => 1.0,
        (_, "implicit", _) if cell.network == "fast" => 1.2,
        (_, "implicit", _) => 0.8,
        (_, _, "spin") => 0.9,
        _ => 1.2,
    });
    assert_eq!(found, IDS.map(|id| (id, Verdict::DoesNotHold)));
}

#[test]
fn a_wait_that_sleeps_where_polling_gains_is_not_the_best() {
    let found = verdicts(|cell| match (cell.policy, cell.wait) {
        ("implicit", _) if cell.network == "fast" => 0.5,
        (_, "spin") => 2.0,
        _ => 1.0,
    });
    let of = |id| found.iter().find(|(found, _)| *found == id).map(|(_, verdict)| *verdict);
    assert_eq!((of("W1"), of("W3")), (Some(Verdict::InPart), Some(Verdict::Holds)));
    assert_eq!((of("S3a"), of("S3b")), (Some(Verdict::Holds), Some(Verdict::DoesNotHold)));
}

#[test]
fn no_rows_have_no_claims() {
    assert!(claims(&[]).is_empty());
}

//! The report's claims about the rows, and the claim that cannot be tested on this hardware.

use core::cmp::Ordering;

use pronto::WaitPolicy::{self, Block, Spin};
use serde_json::Value;

use crate::claim::{Claim, Verdict};
use crate::echo::Provider;
use crate::interval::{self, Interval};
use crate::report::decimals;
use crate::sample::median;

use super::ping::Buffers;
use super::row::{CASES, Case, FEW, MANY, Row, UNEXPLAINED, WORK};

/// Every claim of a whole run.
pub(crate) const IDS: [&str; 14] =
    ["Q4", "Q5", "Q6a", "Q6b", "Q7a", "Q7b", "Q8", "Q9a", "Q9b", "Q10", "Q13a", "Q13b", "Q14", "Q15"];

/// The rows over shared memory with one kind of memory.
#[derive(Clone, Copy, Debug)]
struct Of<'a> {
    rows: &'a [Row],
    buffers: Buffers,
}

impl<'a> Of<'a> {
    fn row(&self, wait: WaitPolicy, nice: i32, case: &Case) -> Option<&'a Row> {
        self.rows.iter().find(|row| {
            (row.provider, row.wait.0, row.nice) == (Provider::Shm, wait, nice)
                && (row.buffers, row.case.name) == (self.buffers, case.name)
        })
    }

    /// Returns the finite values of several cases.
    fn of(&self, cases: &[Case], value: impl Fn(&Self, &Case) -> Option<f64>) -> Vec<f64> {
        cases.iter().filter_map(|case| value(self, case)).filter(|value| value.is_finite()).collect()
    }
}

/// Evaluates the claims for which rows were measured, and those about computations of a nice value that was refused.
pub(crate) fn claims(rows: &[Row], refused: &[i32]) -> Vec<Claim> {
    let of = |buffers| Of { rows, buffers };
    let (kept, fresh) = (of(Buffers::Prefaulted), of(Buffers::Fresh));
    let mut all = vec![q4(kept)];
    let judged = [priorities(kept), polling(kept), memory(kept, fresh), conclusion(rows)];
    all.extend(judged.into_iter().flatten());
    if refused.contains(&-20) {
        all.extend(["Q5", "Q15"].map(|id| {
            let detail = "a nice value of -20 needs privileges: run overlap-tables as root";
            Claim::new(id, detail, Value::Null, Verdict::NotResolvable)
        }));
    }
    all.sort_by_key(|claim| IDS.iter().position(|id| *id == claim.id));
    all
}

/// Table 2.
fn q4(of: Of<'_>) -> Claim {
    let slowdowns = of.of(&CASES, |of, case| {
        let row = of.row(Block, 0, case)?;
        Some(row.ping() / row.ping_alone() - 1.0)
    });
    let most = slowdowns.into_iter().reduce(f64::max);
    let detail = "a CPU copies the bytes over shared memory and loopback TCP, where the report's network card moves them: each byte takes \
                  time from the computation on the same CPU. Q13 tests that no other time is lost";
    Claim::new("Q4", detail, most.map(|most| decimals(most, 3)), Verdict::NotTransferable)
}

/// Table 3.
fn priorities(of: Of<'_>) -> Vec<Claim> {
    let held = of.of(&CASES, |of, case| {
        let row = of.row(Block, -20, case)?;
        Some(row.ping_delay() / row.burn_alone())
    });
    let late = |nice| of.row(Block, nice, &MANY).map(|row| row.burn_delay() / row.burn_alone());
    let later = late(19).zip(late(0)).map(|(lowered, same)| lowered - same);
    let gained =
        of.of(&CASES, |of, case| Some(of.row(Block, 19, case)?.ping() / of.row(Block, 0, case)?.ping()));
    let best = of.of(&CASES, |of, case| {
        let at = |nice| of.row(Block, nice, case).map(Row::makespan);
        Some(at(-20)?.min(at(19)?) / at(0)?)
    });
    let taxed = |case| of.row(Block, 19, case).map(Row::burn_delay);
    let taxed = taxed(&MANY).zip(taxed(&FEW)).map(|(many, few)| many / few);
    [
        at_least("Q5", "least of all cases; near 1 means one after the other", SERIAL, least(held)),
        at_least("Q6a", "6400x1m, beyond the delay at nice 0", LATER, later),
        at_least(
            "Q6b",
            "least of all cases; the bar is the least of the report's table",
            reports_least(),
            least(gained),
        ),
        at_least("Q14", "at nice 19", 1.0, taxed),
        at_least("Q15", "best of nice -20 and 19, least of all cases", NO_GAIN, least(best)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Share of the computation's time from which a delay by all of it is meant. Chosen by us: the report's least is 0.91.
const SERIAL: f64 = 0.9;
/// Further delay that counts: twice as much as equal runs differ by. Chosen by us; no source.
const LATER: f64 = 0.02;
/// Share of the time at nice 0 below which another priority helps. Chosen by us; no source.
const NO_GAIN: f64 = 0.95;

/// Returns the least of the report's times of the ping-pong with a computation of the lowest priority, as multiples of those with equal
/// priorities, rounded down to hundredths.
fn reports_least() -> f64 {
    let at = |case: &Case, nice| case.published(Block, nice).map(|[ping, _]| ping);
    let ratios = CASES.iter().filter_map(|case| Some(at(case, 19)? / at(case, 0)?));
    (ratios.fold(f64::INFINITY, f64::min) * 100.0).floor() / 100.0
}

/// Tables 1 and 4.
fn polling(of: Of<'_>) -> Vec<Claim> {
    let long = [MANY, FEW];
    let ratios = |value: fn(&Row) -> f64| {
        of.of(&long, |of, case| Some(value(of.row(Spin, 0, case)?) / value(of.row(Block, 0, case)?)))
    };
    let alone = ratios(Row::ping_alone);
    let alone = if alone.is_empty() { None } else { Some(median(alone)) };
    let both = "less of 6400x1m and 100x64m";
    [
        at_least("Q7a", both, 1.0, least(ratios(Row::burn_delay))),
        at_least("Q7b", both, 1.0, least(ratios(Row::ping))),
        at_most("Q8", "median of 6400x1m and 100x64m", 1.0, alone),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Paging.
fn memory(kept: Of<'_>, fresh: Of<'_>) -> Vec<Claim> {
    let longer = |of: Of<'_>| {
        let at = |case| of.row(Block, 0, case).map(Row::ping_alone);
        at(&FEW).zip(at(&MANY)).map(|(few, many)| few / many)
    };
    let varies = |case: &Case| fresh.row(Block, 0, case).map(Row::ping_variation);
    let others: Vec<f64> = [CASES[0], MANY, FEW].iter().filter_map(varies).collect();
    let most = others.into_iter().reduce(f64::max);
    let paging = longer(kept).zip(longer(fresh)).map(|(kept, fresh)| kept / fresh);
    [
        at_least("Q9a", "with as many bytes", 1.0, longer(fresh)),
        at_most("Q9b", "the ratio with prefaulted memory, divided by that with fresh memory", 1.0, paging),
        at_least("Q10", "fresh memory", 1.0, varies(&CASES[1]).zip(most).map(|(own, most)| own / most)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The report's conclusion, as far as it can be tested here.
fn conclusion(rows: &[Row]) -> Vec<Claim> {
    let judged: Vec<&Row> = rows.iter().filter(|row| row.is_judged()).collect();
    let claim = |id, wanted: Ordering, bar: f64, of: fn(&Row) -> Interval| {
        let values: Vec<_> = judged.iter().map(|row| of(row)).collect();
        let sides: Vec<_> = values.iter().map(|value| value.side_of(bar)).collect();
        let farther = |a: Interval, b: Interval| {
            let is_a = (a.mean < b.mean) == (wanted == Ordering::Greater);
            if is_a { a } else { b }
        };
        let worst = values.into_iter().reduce(farther)?;
        let clear = sides.iter().filter(|side| **side == Some(wanted)).count();
        let open = sides.iter().filter(|side| side.is_none()).count();
        let units = judged.iter().map(|row| row.units.len()).max().unwrap_or_default();
        let verdict = interval::verdict(wanted, &sides);
        let mut detail = format!(
            "worst of {} rows, +-{:.4}; {clear} meet the bar and {open} are not clear of it with up to {units} units",
            judged.len(),
            worst.error,
        );
        if open > 0 {
            detail += ". Run overlap-tables without --quick, on CPUs that run nothing else";
        }
        Some(Claim::new(id, detail, decimals(worst.mean, 4), verdict).bar(bar))
    };
    let work = claim("Q13a", Ordering::Greater, WORK, Row::work);
    let unexplained = claim("Q13b", Ordering::Less, UNEXPLAINED, Row::unexplained);
    [work, unexplained].into_iter().flatten().collect()
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

fn at_least(id: &'static str, detail: &str, bar: f64, measured: Option<f64>) -> Option<Claim> {
    let measured = measured.filter(|measured| measured.is_finite())?;
    Some(Claim::at_least(id, detail, bar, measured, 4))
}

fn at_most(id: &'static str, detail: &str, bar: f64, measured: Option<f64>) -> Option<Claim> {
    let measured = measured.filter(|measured| measured.is_finite())?;
    Some(Claim::at_most(id, detail, bar, measured, 4))
}

#[cfg(test)]
mod tests {
    use core::slice;

    use super::super::row::BURN_S;
    use super::super::row::tests::{row, units};
    use super::*;

    fn verdict(claims: &[Claim], id: &str) -> Option<Verdict> {
        claims.iter().find(|claim| claim.id == id).map(|claim| claim.verdict)
    }

    #[track_caller]
    fn expect(rows: &[Row], ids: &[&str], expected: Verdict) {
        let claims = claims(rows, &[]);
        for id in ids {
            assert_eq!(verdict(&claims, id), Some(expected), "{id}: {claims:?}");
        }
    }

    /// Returns a row of a judged case, with its units.
    fn judged(case: Case, ping: [f64; 2], burn: f64, noise: f64) -> Row {
        let row = row(Block, 0, case, ping, burn);
        Row { units: units(&row, noise), ..row }
    }

    #[test]
    fn the_reports_own_tables_hold() {
        let mut rows = Vec::new();
        for case in CASES {
            for (wait, nice) in [(Block, 0), (Block, -20), (Block, 19), (Spin, 0)] {
                let [ping, burn] = case.published(wait, nice).expect("the tables have it");
                let alone = case.alone * if wait == Spin { 0.98 } else { 1.0 };
                rows.push(row(wait, nice, case, [alone / BURN_S, ping / BURN_S], burn / BURN_S));
            }
            let fresh = row(Block, 0, case, [case.alone / BURN_S, case.alone / BURN_S], 1.0);
            rows.push(Row { buffers: Buffers::Fresh, ..fresh });
        }
        expect(&rows, &["Q5", "Q6a", "Q6b", "Q7a", "Q7b", "Q8", "Q9a", "Q14", "Q15"], Verdict::Holds);
        expect(&rows, &["Q4"], Verdict::NotTransferable);
    }

    #[test]
    fn the_opposite_refutes_every_claim() {
        let fresh = |case, ping: f64, varied: u64| {
            let mut row = row(Block, 0, case, [ping, 0.3], 1.2);
            row.runs[0].ping_alone.wall_ns += varied;
            Row { buffers: Buffers::Fresh, ..row }
        };
        let rows = [
            judged(MANY, [0.2, 0.3], 1.2, 0.001),
            judged(FEW, [0.25, 0.3], 1.2, 0.001),
            row(Block, -20, MANY, [0.2, 0.3], 0.9),
            row(Block, 19, MANY, [0.2, 0.2], 1.1),
            row(Block, 19, FEW, [0.25, 0.2], 1.3),
            row(Spin, 0, MANY, [0.3, 0.2], 1.1),
            row(Spin, 0, FEW, [0.3, 0.2], 1.1),
            fresh(CASES[0], 0.1, 50_000_000),
            fresh(CASES[1], 0.1, 1_000),
            fresh(MANY, 0.3, 0),
            fresh(FEW, 0.2, 0),
        ];
        let ids = ["Q5", "Q6a", "Q6b", "Q7a", "Q7b", "Q8", "Q9a", "Q9b", "Q10", "Q14", "Q15"];
        expect(&rows, &ids, Verdict::DoesNotHold);
        expect(&rows, &["Q13a", "Q13b"], Verdict::Holds);
    }

    #[test]
    fn a_computation_that_loses_work_or_time_refutes_the_conclusion() {
        let change = |change: fn(&mut super::super::Unit)| {
            let mut row = judged(MANY, [0.2, 0.3], 1.2, 0.001);
            row.units.iter_mut().for_each(change);
            row
        };
        let less = change(|unit| unit.together[1].cpu_ns += 30_000_000);
        expect(slice::from_ref(&less), &["Q13a"], Verdict::DoesNotHold);
        expect(slice::from_ref(&less), &["Q13b"], Verdict::Holds);
        let lost = change(|unit| unit.together[0].other_ns -= 50_000_000);
        expect(slice::from_ref(&lost), &["Q13b"], Verdict::DoesNotHold);
        expect(&[judged(FEW, [0.2, 0.3], 1.2, 0.001), less, lost], &["Q13a", "Q13b"], Verdict::InPart);
    }

    #[test]
    fn noise_and_missing_privileges_leave_claims_open() {
        expect(&[judged(MANY, [0.2, 0.3], 1.2, 0.02)], &["Q13a", "Q13b"], Verdict::NotResolvable);
        let claims = claims(&[], &[-20]);
        let found: Vec<_> = claims.iter().map(|claim| (claim.id, claim.verdict)).collect();
        let open = Verdict::NotResolvable;
        assert_eq!(found, [("Q4", Verdict::NotTransferable), ("Q5", open), ("Q15", open)]);
    }
}

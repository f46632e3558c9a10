//! The report's claims about the rows, and the claims that cannot be tested on this hardware.

use pronto::WaitPolicy::{self, Block, Spin};

use crate::claim::Claim;
use crate::echo::Provider;
use crate::report::decimals;
use crate::sample::median;

use super::ping::Buffers;
use super::row::{CASES, Case, FEW, MANY, NextDoor, Row, UNEXPLAINED, WORK};

/// Note about the claims that depend on a network card which moves the bytes, and so cannot be tested here.
pub(crate) const NOT_TRANSFERABLE: &str = "not transferable: that the ping-pong slows down by less than 1 % during the computation and hardly \
     delays it (Q4), and that the computation gains nothing from a higher priority (second half of Q5). Both rest on a \
     network card that moves the bytes while the CPUs compute; over shared memory and loopback TCP a CPU copies them, so \
     each byte takes time from the computation on the same CPU. Q13 tests instead that no other time is lost: \
     work_per_cpu, unexplained.";

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

/// Evaluates the claims for which rows were measured.
pub(crate) fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |buffers| Of { rows, buffers };
    let (kept, fresh) = (of(Buffers::Prefaulted), of(Buffers::Fresh));
    let all = [priorities(kept), polling(kept), memory(kept, fresh), starts(rows), bars(rows)];
    all.into_iter().flatten().collect()
}

/// Table 3.
fn priorities(of: Of<'_>) -> Vec<Claim> {
    let held = of.of(&CASES, |of, case| {
        let row = of.row(Block, -20, case)?;
        Some(row.ping_delay() / row.burn_alone())
    });
    let late = |of: &Of<'_>, nice| of.row(Block, nice, &MANY).map(|row| row.burn_delay() / row.burn_alone());
    let later = late(&of, 19).zip(late(&of, 0)).map(|(lowered, same)| lowered - same);
    let gained = of
        .of(&CASES, |of, case| Some(of.row(Block, 19, case)?.ping() / of.row(Block, 0, case)?.ping()))
        .into_iter()
        .reduce(f64::min);
    let best = of.of(&CASES, |of, case| {
        let at = |nice| of.row(Block, nice, case).map(Row::makespan);
        Some(at(-20)?.min(at(19)?) / at(0)?)
    });
    let taxed = |case| of.row(Block, 19, case).map(Row::burn_delay);
    let taxed = taxed(&MANY).zip(taxed(&FEW)).map(|(many, few)| many / few);
    [
        judged(
            "Q5",
            "computation at nice -20: the ping-pong's delay as a share of the computation's time, least of all cases; near 1 means one \
             after the other",
            held.into_iter().reduce(f64::min),
            |measured| measured >= 0.9,
        ),
        judged(
            "Q6a",
            "computation at nice 19, 6400 x 1m: its delay as a share of its time, less that at nice 0",
            later,
            |measured| measured > 0.0,
        ),
        judged(
            "Q6b",
            "the ping-pong gains nothing by that: its time as a multiple of that with nice 0, least of all cases",
            gained,
            |measured| measured >= 0.95,
        ),
        judged(
            "Q14",
            "many messages tax the computation more than few long ones: its delay at nice 19, 6400 x 1m by 100 x 64m",
            taxed,
            |measured| measured > 1.0,
        ),
        judged(
            "Q15",
            "priorities do not help: time until both are done, best of -20 and 19 by nice 0, least of all cases",
            best.into_iter().reduce(f64::min),
            |measured| measured >= 0.95,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Tables 1 and 4.
fn polling(of: Of<'_>) -> Vec<Claim> {
    let long = [MANY, FEW];
    let both = |value: fn(&Row) -> f64| {
        let ratios =
            of.of(&long, |of, case| Some(value(of.row(Spin, 0, case)?) / value(of.row(Block, 0, case)?)));
        ratios.into_iter().reduce(f64::min)
    };
    let alone = of.of(&long, |of, case| {
        Some(of.row(Spin, 0, case)?.ping_alone() / of.row(Block, 0, case)?.ping_alone())
    });
    let alone = if alone.is_empty() { None } else { Some(median(alone)) };
    [
        judged(
            "Q7a",
            "polling delays the computation more than sleeping: its delay as a multiple of that with sleeping waits, less of 6400 x 1m and 100 x 64m",
            both(Row::burn_delay),
            |measured| measured > 1.0,
        ),
        judged(
            "Q7b",
            "polling during a computation hurts the ping-pong, too: its time as a multiple of that with sleeping waits, less of both",
            both(Row::ping),
            |measured| measured > 1.0,
        ),
        judged(
            "Q8",
            "alone, polling is a little faster: time as a multiple of that with sleeping waits (published: slightly below 1)",
            alone,
            |measured| measured < 1.0,
        ),
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
    let varies = |of: Of<'_>, case: &Case| of.row(Block, 0, case).map(Row::ping_variation);
    let others: Vec<f64> = [CASES[0], MANY, FEW].iter().filter_map(|case| varies(fresh, case)).collect();
    let most = others.into_iter().reduce(f64::max);
    [
        judged(
            "Q9a",
            "alone, fresh memory: 100 x 64m by 6400 x 1m, as many bytes",
            longer(fresh),
            |measured| measured > 1.0,
        ),
        judged(
            "Q9b",
            "paging is the reason: the ratio with prefaulted memory, divided by that with fresh memory (the report suspects it)",
            longer(kept).zip(longer(fresh)).map(|(kept, fresh)| kept / fresh),
            |measured| measured < 1.0,
        ),
        judged(
            "Q10",
            "1 x 64m varies more than the other cases, fresh memory: its spread by the largest of theirs",
            varies(fresh, &CASES[1]).zip(most).map(|(own, most)| own / most),
            |measured| measured > 1.0,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Start of the programs.
fn starts(rows: &[Row]) -> Vec<Claim> {
    let skew = rows.iter().filter(|row| row.nice == 0).map(Row::skew).reduce(f64::max);
    let text = "longest time between the first and the last of the four processes to run, nice 0, seconds";
    judged("Q11", text, skew, |measured| measured <= 0.5).into_iter().collect()
}

/// The report's conclusion, as far as it can be tested here: our bars.
fn bars(rows: &[Row]) -> Vec<Claim> {
    let asked: Vec<&Row> = rows.iter().filter(|row| row.wait.0 != Spin).collect();
    let resolvable: Vec<&Row> =
        asked.iter().copied().filter(|row| row.next_door() != NextDoor::NotResolvable).collect();
    let of = format!(
        "asleep or adaptive, {} of {} rows, the others are not resolvable",
        resolvable.len(),
        asked.len()
    );
    let work = resolvable.iter().map(|row| row.work()).reduce(f64::min);
    let left = resolvable.iter().map(|row| row.unexplained()).reduce(f64::max);
    [
        judged(
            "Q13a",
            &format!("computation on the same CPU: least work per second of CPU time, as a share of that alone ({of})"),
            work,
            |measured| measured >= WORK,
        ),
        judged(
            "Q13b",
            &format!("computation on the same CPU: largest share of its time that no communicating thread used ({of})"),
            left,
            |measured| measured <= UNEXPLAINED,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn judged(id: &'static str, text: &str, measured: Option<f64>, holds: impl Fn(f64) -> bool) -> Option<Claim> {
    let measured = measured.filter(|measured| measured.is_finite())?;
    Some(Claim::new(id, text, decimals(measured, 4), holds(measured)))
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn each_table_is_judged_by_its_rows() {
        let rows = [
            row(Block, 0, MANY, [0.2, 0.3], 1.2),
            row(Block, 0, FEW, [0.25, 0.3], 1.2),
            row(Block, -20, MANY, [0.2, 1.2], 1.0),
            row(Block, 19, MANY, [0.2, 0.2], 1.25),
            row(Block, 19, FEW, [0.25, 0.2], 1.3),
            row(Spin, 0, MANY, [0.19, 0.6], 1.5),
            row(Spin, 0, FEW, [0.24, 0.6], 1.5),
        ];
        let claims = claims(&rows);
        let verdict = |id| claims.iter().find(|claim| claim.id == id).map(|claim| claim.holds());
        for (id, holds) in [
            ("Q5", true),
            ("Q6a", true),
            ("Q6b", false),
            ("Q14", false),
            ("Q15", true),
            ("Q7a", true),
            ("Q7b", true),
            ("Q8", true),
            ("Q11", true),
            ("Q13a", true),
            ("Q13b", true),
        ] {
            assert_eq!(verdict(id), Some(holds), "{id}: {claims:?}");
        }
        assert_eq!(verdict("Q9a"), None, "no row had fresh memory");
    }

    #[test]
    fn unresolvable_rows_have_no_claims() {
        assert!(claims(&[]).is_empty());
        let mut noisy = row(Block, 0, MANY, [0.2, 0.3], 1.2);
        noisy.runs[0].burn_alone[0].wall_ns *= 2;
        noisy.runs[2].burn_alone[0].wall_ns *= 2;
        noisy.runs[4].burn_alone[0].wall_ns *= 2;
        let ids: Vec<_> = claims(&[noisy]).iter().map(|claim| claim.id).collect();
        assert_eq!(ids, ["Q11"]);
    }
}

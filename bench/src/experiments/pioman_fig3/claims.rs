//! Claims about the three behaviours of Fig. 3.

use serde_json::Value;

use super::row::{OVERLAP, Overlap, Row, TIMER_US};
use crate::claim::{Claim, Verdict};
use crate::rdma::VERBS;
use crate::report::decimals;

/// Evaluates the claims for which rows were measured.
pub(super) fn of(rows: &[Row]) -> Vec<Claim> {
    let of = |system: &'static str, engine: &'static str| -> Vec<Row> {
        rows.iter().filter(|row| row.system == system && row.engine == engine).copied().collect()
    };
    let on = |engine, provider: &'static str| -> Vec<Row> {
        of("pronto", engine).into_iter().filter(|row| row.provider == provider && is_long(row)).collect()
    };
    let mut claims = Vec::new();
    claims.extend(overlap("P33", &on("idle", "shm")));
    for (provider, id) in [("tcp", "P30.tcp"), (VERBS, "P30.verbs")] {
        claims.extend(alike(id, &on("idle", provider), &on("none", provider)));
    }
    // In the lab, a timer shares its CPU with an emulated device, and no MPI is next to it.
    let here = |row: &Row| row.provider != VERBS;
    let of = |system, engine| -> Vec<Row> { of(system, engine).into_iter().filter(here).collect() };
    claims.extend(timer(&of("pronto", "timer")));
    for (system, engine, id) in
        [("pronto", "none", "P8"), ("openmpi", "default", "P29a"), ("mpich", "default", "P29b")]
    {
        let rows: Vec<Row> = of(system, engine).into_iter().filter(is_long).collect();
        claims.extend(held(id, &rows));
    }
    claims
}

/// Returns whether messages of this length are sent by rendezvous in every system.
fn is_long(row: &Row) -> bool {
    row.size.bytes >= 64 << 10
}

/// Judges the overlap with progress on another CPU by the rows that count.
fn overlap(id: &'static str, rows: &[Row]) -> Option<Claim> {
    if rows.is_empty() {
        return None;
    }
    let (mut full, mut counted, mut least, mut others) = (0, 0, f64::NAN, Vec::new());
    for row in rows {
        let bytes = row.size.bytes;
        match row.judged() {
            Overlap::Void(why) => {
                others.push(format!("{bytes} B: void: {why}"));
                continue;
            }
            Overlap::Below(why) => others.push(format!("{bytes} B: {why}")),
            Overlap::Full => full += 1,
        }
        counted += 1;
        least = least.min(row.outcome.overlap());
    }
    let verdict = if is_too_few(counted, rows.len()) {
        Verdict::NotResolvable
    } else {
        Verdict::graded(full == counted, full > 0)
    };
    let mut detail = format!("full in {full} of {counted} sizes from 64 KiB on that count");
    if !others.is_empty() {
        detail += &format!(" ({})", others.join(", "));
    }
    if verdict == Verdict::NotResolvable {
        let options = if rows.iter().any(|row| row.provider == VERBS) { " --provider verbs" } else { "" };
        detail += &format!("; run `pronto-bench pioman-fig3{options}` on an idle machine");
    }
    Some(Claim::new(id, detail, decimals(least, 3), verdict).bar(decimals(OVERLAP, 2)))
}

/// Returns whether too few of `all` rows count for a verdict.
const fn is_too_few(counted: usize, all: usize) -> bool {
    COUNTED.1 * counted < COUNTED.0 * all
}

/// Judges whether a network shows both ends of the figure: full overlap with progress on another CPU, none without progress.
fn alike(id: &'static str, idle: &[Row], none: &[Row]) -> Option<Claim> {
    let mut claim = overlap(id, idle)?;
    let held = none.iter().filter(|row| row.is_held()).count();
    if none.is_empty() {
        return None;
    }
    claim.detail += &format!("; without an engine, senders of {held} of {} sizes wait", none.len());
    if claim.verdict == Verdict::Holds && held < none.len() {
        claim.verdict = Verdict::InPart;
    }
    Some(claim)
}

/// Judges the delay of sends with the timer.
fn timer(all: &[Row]) -> Option<Claim> {
    let rows: Vec<&Row> = all.iter().filter(|row| row.is_quiet()).collect();
    if !all.is_empty() && is_too_few(rows.len(), all.len()) {
        let detail = format!(
            "the control of {} of {} rows is unsteady; run `pronto-bench pioman-fig3` on an idle machine",
            all.len() - rows.len(),
            all.len()
        );
        return Some(Claim::new("P32", detail, Value::Null, Verdict::NotResolvable));
    }
    let over = |times: f64| {
        rows.iter().map(|row| row.outcome.longest_us - times * row.outcome.alone_us).reduce(f64::max)
    };
    let (delay, beyond) = (over(1.0)?, over(2.0)?);
    let late: f64 = rows.iter().filter_map(|row| row.late).sum::<f64>() / rows.len() as f64;
    let detail = format!(
        "beyond twice the transfer, as the timer's thread shares its CPU with the computation; {:.1} ms beyond once; the bar adds one \
         turn of the scheduler; {:.1} % of the sends are later",
        delay / 1e3,
        late * 1e2
    );
    let verdict = Verdict::graded(beyond <= TIMER_US, late <= LATE);
    Some(Claim::new("P32", detail, decimals(beyond / 1e3, 1), verdict).bar(decimals(TIMER_US / 1e3, 0)))
}

/// Judges in how many sizes the sender waits until the receiver has computed.
fn held(id: &'static str, rows: &[Row]) -> Option<Claim> {
    let held = rows.iter().filter(|row| row.is_held()).count();
    let measured = format!("{held} of {}", rows.len());
    let verdict = Verdict::graded(held == rows.len(), held > 0);
    let detail = "sizes from 64 KiB on, over both transports";
    (!rows.is_empty()).then(|| Claim::new(id, detail, Value::from(measured), verdict))
}

/// Part of the rows that must count for a verdict.
const COUNTED: (usize, usize) = (2, 3);
/// Largest share of late sends with which the delay is bounded in part.
const LATE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    fn verdicts(rows: &[Row]) -> Vec<(&'static str, Verdict)> {
        of(rows).iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn claims_need_their_rows() {
        assert!(of(&[]).is_empty());
        let good = row("pronto", "idle", 104.0, 2.0);
        assert!(verdicts(&[Row { provider: VERBS, ..good }]).is_empty(), "rows without an engine");
        let claim = of(&[good]).remove(0);
        assert_eq!((claim.id, claim.holds(), claim.measured), ("P33", true, decimals(0.98, 3)));
    }

    #[test]
    fn an_overlap_is_judged_by_the_rows_that_count() {
        let good = row("pronto", "idle", 104.0, 2.0);
        let below = row("pronto", "idle", 110.0, 2.0);
        let mut void = good;
        void.outcome.aa = 1.2;
        let of_rows = |rows: &[Row]| verdicts(rows)[0].1;
        assert_eq!(of_rows(&[good, good, void]), Verdict::Holds);
        assert_eq!(of_rows(&[good, below, void]), Verdict::InPart);
        assert_eq!(of_rows(&[below, below, void]), Verdict::DoesNotHold);
        assert_eq!(of_rows(&[good, void, void]), Verdict::NotResolvable);
        let claim = of(&[void, void]).remove(0);
        assert_eq!(claim.measured, Value::Null);
        assert!(claim.detail.contains("262144 B: void: A/A"), "{}", claim.detail);
    }

    #[test]
    fn networks_are_alike_if_both_ends_of_the_figure_appear() {
        for (provider, id) in [("tcp", "P30.tcp"), (VERBS, "P30.verbs")] {
            let on = |mut row: Row| {
                row.outcome.parked = Some(1);
                if row.outcome.send_us > 1_000.0 {
                    row.outcome.before_end = 0.0;
                }
                Row { provider, ..row }
            };
            let [idle, held] =
                [("idle", 104.0, 2.0), ("none", 50_000.0, 100.0)].map(|(e, s, w)| on(row("pronto", e, s, w)));
            let late = on(row("pronto", "idle", 50_000.0, 90.0));
            let quick = on(row("pronto", "none", 100.0, 1.0));
            let of_rows = |rows: &[Row]| verdicts(rows)[0];
            assert_eq!(of_rows(&[idle, held]), (id, Verdict::Holds));
            assert_eq!(of_rows(&[idle, quick]), (id, Verdict::InPart));
            assert_eq!(of_rows(&[idle, late, held]), (id, Verdict::InPart));
            assert_eq!(of_rows(&[late, held]), (id, Verdict::DoesNotHold));
            let mut void = idle;
            void.outcome.alone_us = 30_000.0;
            assert_eq!(of_rows(&[void, held]), (id, Verdict::NotResolvable));
        }
    }

    #[test]
    fn a_timer_bounds_all_sends_most_or_not() {
        let late = |longest_us, late| {
            let mut row = Row { late: Some(late), ..row("pronto", "timer", 5_000.0, 1.0) };
            row.outcome.longest_us = longest_us;
            row
        };
        let noisy = |mut row: Row| {
            row.outcome.control_aa = 1.4;
            row
        };
        let (good, bad) = (late(13_199.0, 0.0), late(50_000.0, 0.5));
        assert_eq!(verdicts(&[good, good, noisy(bad)]), [("P32", Verdict::Holds)]);
        assert_eq!(verdicts(&[late(36_000.0, 0.04)]), [("P32", Verdict::InPart)]);
        assert_eq!(verdicts(&[bad]), [("P32", Verdict::DoesNotHold)]);
        assert_eq!(verdicts(&[good, noisy(bad)]), [("P32", Verdict::NotResolvable)]);
    }

    #[test]
    fn senders_wait_in_all_sizes_some_or_none() {
        for (system, engine, id) in
            [("pronto", "none", "P8"), ("openmpi", "default", "P29a"), ("mpich", "default", "P29b")]
        {
            let [waits, sends] = [50_000.0, 200.0].map(|send_us| row(system, engine, send_us, 100.0));
            assert_eq!(verdicts(&[waits, waits]), [(id, Verdict::Holds)]);
            assert_eq!(verdicts(&[waits, sends]), [(id, Verdict::InPart)]);
            assert_eq!(verdicts(&[sends, sends]), [(id, Verdict::DoesNotHold)]);
        }
    }
}

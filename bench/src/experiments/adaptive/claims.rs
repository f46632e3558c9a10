//! Claims about adaptive waits, with and without a boost.

use pronto::{Boost, WaitPolicy};
use serde_json::Value;

use super::tiers::{may_be_real_time, name};
use super::{CROWD, Round, Row};
use crate::claim::{Claim, Verdict};

/// Evaluates the claims for these rows, given the polling limit of adaptive waits.
pub(super) fn of(rows: &[Row], bound_ns: u64) -> Vec<Claim> {
    without_boost(rows, bound_ns).into_iter().chain(with_boost(rows)).collect()
}

fn without_boost(rows: &[Row], bound_ns: u64) -> Vec<Claim> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.boost == Boost::None).collect();
    let rows = rows.as_slice();
    let of = |wait: WaitPolicy, like: &Row| {
        rows.iter().copied().find(|row| row.wait.0 == wait && row.place() == like.place())
    };
    let adaptive = |competing: usize| {
        let is_wanted = move |row: &&Row| row.wait.0 == WaitPolicy::Adaptive && row.competing == competing;
        rows.iter().copied().filter(is_wanted)
    };
    let to = |wait, pick: fn(&Round) -> f64| {
        move |row: &Row| of(wait, row).map(|other| row.median(pick) / other.median(pick))
    };
    let gap_ns = |row: &Row| row.gap_us * 1_000;
    let short = worst(
        &mut adaptive(0)
            .filter(|row| gap_ns(row) * 2 < bound_ns)
            .filter_map(to(WaitPolicy::Spin, |r| r.p50_ns)),
    );
    let long = worst(
        &mut adaptive(0)
            .filter(|row| gap_ns(row) > 2 * bound_ns)
            .filter_map(to(WaitPolicy::Block, |r| r.p50_ns)),
    );
    let cpu = worst(&mut adaptive(0).filter_map(|row| {
        let cpu = |wait| of(wait, row).map(|other| other.median(|round| round.cpu_ns));
        Some(row.median(|round| round.cpu_ns) / cpu(WaitPolicy::Spin)?.min(cpu(WaitPolicy::Block)?))
    }));
    let resolved = |row: &&Row| row.is_resolved();
    let crowded =
        worst(&mut adaptive(CROWD).filter(resolved).filter_map(to(WaitPolicy::Block, |round| round.p99_ns)));
    let crowd = format!("{CROWD} processes, gaps up to 1 ms");
    [
        ("P3", "p50 by that of spinning, gaps under half the polling limit".to_owned(), 1.2, short),
        ("P4", "p50 by that of sleeping, gaps over twice the polling limit".to_owned(), 1.2, long),
        ("P24", "per message, at the worst gap".to_owned(), 2.2, cpu),
        ("P7", crowd, 1.15, crowded),
    ]
    .into_iter()
    .filter_map(|(id, detail, most, measured)| Some(Claim::at_most(id, detail, most, measured?, 3)))
    .collect()
}

/// Evaluates the claims about boosts: each adaptive row with a boost is compared with the row without one at the same gap and competition.
fn with_boost(rows: &[Row]) -> Vec<Claim> {
    let unboosted = |wait: WaitPolicy, like: &Row| {
        rows.iter().find(|row| row.boost == Boost::None && row.wait.0 == wait && row.place() == like.place())
    };
    let boosted = |competing: usize| {
        rows.iter().filter(move |row| row.boost != Boost::None && row.competing == competing)
    };
    let mut claims = Vec::new();
    // The best tier, judged by its worst gap.
    let late = |tier: Boost| {
        let of_tier = boosted(CROWD).filter(|row| row.boost == tier && row.is_resolved());
        let ratios = of_tier.filter_map(|row| {
            let other = unboosted(WaitPolicy::Adaptive, row)?;
            Some(row.median(|round| round.p99_ns) / other.median(|round| round.p99_ns))
        });
        worst(&mut { ratios }).map(|ratio| (tier, ratio))
    };
    let tiers = [Boost::Slice, Boost::Fifo, Boost::Module];
    let best = tiers.into_iter().filter_map(late).min_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((tier, ratio)) = best {
        let detail = format!("{}, the best tier; by the p99 without, at the worst gap", name(tier));
        claims.push(Claim::at_most("P5a", detail, 1.0, ratio, 3));
    }
    let mut asleep = boosted(0).filter(|row| may_be_real_time(row.boost)).filter_map(|row| {
        let other = unboosted(WaitPolicy::Block, row)?;
        Some(row.median(|round| round.p50_ns) / other.median(|round| round.p50_ns))
    });
    if let Some(ratio) = worst(&mut asleep) {
        claims.push(Claim::at_most("P5b", "p50 by that of sleeping, at the worst gap", 1.2, ratio, 3));
    }
    claims
}

/// Returns the claims about boosts that a whole run does not judge, as it lacks a boost.
pub(super) fn not_permitted(found: &[Claim]) -> Vec<Claim> {
    let missing = BOOSTED.into_iter().filter(|id| found.iter().all(|claim| claim.id != *id));
    let detail = "this process may use no such boost: run `pronto-bench adaptive` as root";
    missing.map(|id| Claim::new(id, detail, Value::Null, Verdict::NotResolvable)).collect()
}

fn worst(ratios: &mut dyn Iterator<Item = f64>) -> Option<f64> {
    ratios.filter(|ratio| ratio.is_finite()).reduce(f64::max)
}

/// Claims about boosts.
const BOOSTED: [&str; 2] = ["P5a", "P5b"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Wait;
    use crate::report::decimals;

    fn row(
        wait: WaitPolicy,
        gap_us: u64,
        competing: usize,
        (p50_ns, p99_ns, cpu_ns): (f64, f64, f64),
    ) -> Row {
        Row { rounds: vec![Round { p50_ns, p99_ns, cpu_ns }], ..Row::new(Wait(wait), gap_us, competing) }
    }

    #[test]
    fn adaptive_is_compared_with_the_better_policy() {
        use WaitPolicy::{Adaptive, Block, Spin};
        let rows = [
            row(Spin, 1, 0, (1.0, 1.0, 10.0)),
            row(Block, 1, 0, (9.0, 9.0, 20.0)),
            row(Adaptive, 1, 0, (1.1, 1.0, 21.0)),
            row(Spin, 1_000, 0, (1.0, 1.0, 900.0)),
            row(Block, 1_000, 0, (9.0, 9.0, 20.0)),
            row(Adaptive, 1_000, 0, (11.0, 9.0, 50.0)),
            row(Block, 10, 4, (9.0, 9.0, 20.0)),
            row(Adaptive, 10, 4, (9.0, 9.9, 20.0)),
        ];
        let found: Vec<_> = of(&rows, 20_000).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(found, [("P3", true), ("P4", false), ("P24", false), ("P7", true)]);
        assert!(of(&[], 20_000).is_empty());
    }

    #[test]
    fn short_gaps_are_compared_with_spinning() {
        use WaitPolicy::{Adaptive, Block, Spin};
        let p50 = |wait, p50_ns| row(wait, 1, 0, (p50_ns, 9.0, 10.0));
        let found = of(&[p50(Spin, 1.0), p50(Block, 9.0), p50(Adaptive, 1.3)], 20_000);
        let found: Vec<_> = found.iter().map(|claim| (claim.id, claim.verdict)).collect();
        assert_eq!(found, [("P3", Verdict::DoesNotHold), ("P24", Verdict::Holds)]);
    }

    #[test]
    fn competition_is_judged_by_gaps_with_enough_calls_and_by_both_rounds_of_block() {
        use WaitPolicy::{Adaptive, Block};
        let p99 = |wait, gap_us, p99_ns| row(wait, gap_us, CROWD, (1.0, p99_ns, 1.0));
        let mut block = p99(Block, 100, 10.0);
        block.again = vec![Round { p50_ns: 1.0, p99_ns: 20.0, cpu_ns: 1.0 }];
        let rows = [block, p99(Adaptive, 100, 18.0), p99(Block, 10_000, 1.0), p99(Adaptive, 10_000, 9.0)];
        let claims = of(&rows, 20_000);
        assert_eq!(claims.iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>(), [("P7", false)]);
        assert_eq!(claims[0].measured, decimals(1.2, 3));
        assert_eq!(rows[0].fields().value("again_p99_us"), Some(&decimals(0.02, 2)));
    }

    #[test]
    fn a_boost_is_compared_with_waits_without_one() {
        use WaitPolicy::{Adaptive, Block};
        let like = |wait, competing, p50_ns, p99_ns| row(wait, 100, competing, (p50_ns, p99_ns, 1.0));
        let boosted =
            |boost, competing, p50_ns, p99_ns| Row { boost, ..like(Adaptive, competing, p50_ns, p99_ns) };
        let rows = [
            like(Block, 0, 10.0, 20.0),
            like(Adaptive, 0, 5.0, 20.0),
            like(Adaptive, CROWD, 10.0, 100.0),
            boosted(Boost::Slice, 0, 40.0, 20.0),
            boosted(Boost::Slice, CROWD, 10.0, 110.0),
            boosted(Boost::Fifo, 0, 11.0, 20.0),
            boosted(Boost::Fifo, CROWD, 10.0, 50.0),
        ];
        let found = |rows: &[Row]| -> Vec<_> {
            with_boost(rows)
                .into_iter()
                .map(|claim| (claim.id, claim.measured.clone(), claim.holds()))
                .collect()
        };
        let [late, asleep] = [("P5a", decimals(0.5, 3), true), ("P5b", decimals(1.1, 3), true)];
        assert_eq!(
            found(&rows),
            [late, asleep],
            "fifo is the best; a tier that may poll is not compared with a sleeping service"
        );
        assert!(with_boost(&rows)[0].detail.contains("fifo"));
        assert!(not_permitted(&with_boost(&rows)).is_empty());
        let slow = [like(Block, 0, 10.0, 20.0), boosted(Boost::Fifo, 0, 13.0, 20.0)];
        assert_eq!(found(&slow), [("P5b", decimals(1.3, 3), false)]);
        let unjudged: Vec<_> = not_permitted(&with_boost(&slow)).iter().map(|c| (c.id, c.verdict)).collect();
        assert_eq!(unjudged, [("P5a", Verdict::NotResolvable)]);
        assert_eq!(found(&rows[..5]), [("P5a", decimals(1.1, 3), false)]);
        assert_eq!(found(&rows[..3]), []);
        let ids: Vec<_> = without_boost(&rows, 20_000).iter().map(|claim| claim.id).collect();
        assert_eq!(ids, ["P4"], "rows with a boost do not count for claims about rows without one");
    }
}

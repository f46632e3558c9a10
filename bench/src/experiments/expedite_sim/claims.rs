//! Claims of the Expedite paper about these figures, and our results.

use pronto_sched_sim::paper::expedite::{Boost, Kernel};
use serde_json::json;

use super::trials::{Measured, Over};
use crate::claim::{Claim, Verdict};
use crate::report::decimals;

/// Every claim that a whole run has.
pub(super) const IDS: [&str; 14] = [
    "X16",
    "X23",
    "X24",
    "X25",
    "X26",
    "X27",
    "X28",
    "X29",
    "X29-intent",
    "X32",
    "X33",
    "X33b",
    "X33c",
    "X33d",
];

/// Share of late pings from which sleepers delay pings. Chosen by us; no source.
const SHOWN: f64 = 0.01;
/// The paper's longest delay, "up to 5 ms", read from the figure.
const CEILING_MS: f64 = 5.0;
/// Largest share of late pings that counts as none.
const NONE: f64 = 0.001;
/// Largest share of late pings that may be left of those without a boost.
const LEFT: f64 = 0.05;
/// "Slightly": delay by the nine as a share of that by everything else.
const SLIGHT: f64 = 0.2;
/// Late pings as a multiple of those without a boost that count as the same number.
const SAME: core::ops::Range<f64> = 0.9..1.1;
/// Share of boosts that must be lost for most to be lost.
const MOST: f64 = 0.5;
/// Delay of the ranks behind the loaded one from which they are delayed at all, ms, and the share of it that others may have.
const DELAYED_MS: f64 = 1.0;
const ELSEWHERE_SHARE: f64 = 0.1;
/// Distance from the published remainder within which it is met, and within which it is met in part, as factors.
const CLOSE: f64 = 1.25;
const WITHIN: f64 = 2.0;
/// Time with Expedite as a multiple of that without background that counts as almost equal.
const ALMOST: f64 = 1.15;

/// The trials that the claims are based on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results<'a>(pub(super) &'a [Measured]);

impl<'a> Results<'a> {
    /// Returns the first trial of a figure with a boost.
    pub(super) fn find(self, figure: &str, boost: Boost) -> Option<&'a Measured> {
        self.0.iter().find(|measured| measured.trial.figure == figure && measured.trial.boost() == boost)
    }

    /// Returns the longest round trip without background, in microseconds.
    fn alone(self) -> Option<f64> {
        self.find("alone", Boost::None).map(|alone| alone.over(0, |summary| summary.longest_us).most)
    }
}

/// Evaluates the claims for which there are trials.
pub(super) fn claims(results: Results<'_>) -> Vec<Claim> {
    let figures_1_to_5 = [
        compute_only(results),
        sleepers(results),
        boosted(results),
        nine(results),
        tenth(results),
        background(results),
        extra(results),
        intent(results),
        on_unblock(results),
    ];
    let mut claims: Vec<Claim> = figures_1_to_5.into_iter().flatten().collect();
    claims.extend(scatter(results).unwrap_or_default());
    claims
}

fn late(measured: &Measured) -> Over {
    measured.over(0, |summary| summary.late)
}

fn compute_only(results: Results<'_>) -> Option<Claim> {
    let late = late(results.find("1a", Boost::None)?);
    let today = results.0.iter().filter(|m| m.trial.figure == "today" && m.trial.boost() == Boost::None);
    let longest = |background: &str| {
        let on = |m: &&Measured| m.trial.kernel() == Kernel::Eevdf && m.trial.background == background;
        today.clone().find(on).map(|m| m.over(0, |summary| summary.longest_us).most)
    };
    let since = longest("compute-only").zip(longest("nothing")).map_or_else(String::new, |(with, alone)| {
        format!("on Linux 7.2 it delays some by up to {:.2} ms, see `today`", (with - alone) / 1e3)
    });
    Some(Claim::new("X23", since, decimals(late.most, 4), late.most == 0.0))
}

/// Judges the sleepers that begin anywhere: for those set apart, the ceiling follows from their phases.
fn sleepers(results: Results<'_>) -> Option<Claim> {
    let measured = results.find("1b-anywhere", Boost::None)?;
    let alone = results.alone()?;
    let longest = |m: &Measured| (m.over(0, |summary| summary.longest_us).most - alone) / 1e3;
    let (most, share) = (longest(measured), late(measured).mean);
    let apart = results.find("1b", Boost::None).map_or_else(String::new, |apart| {
        format!("; {:.1} ms if no two sleepers ever compute at the same time", longest(apart))
    });
    let detail = format!(
        "sleepers begin anywhere in their cycle; {:.0} % of the pings are late{apart}",
        share * 100.0
    );
    let delays = share >= SHOWN && most >= 1.0;
    let verdict = Verdict::graded(delays && (CEILING_MS - 1.0..=CEILING_MS * 1.01).contains(&most), delays);
    Some(Claim::new("X24", detail, decimals(most, 2), verdict))
}

fn boosted(results: Results<'_>) -> Option<Claim> {
    let without = late(results.find("1b", Boost::None)?).mean;
    let late = late(results.find("2b", Boost::Counter)?).mean;
    let compute = results.find("2a", Boost::Counter).map_or(0.0, |m| self::late(m).mean);
    let most = late.max(compute);
    let detail = format!(
        "{without:.3} without; the boost ends at dispatch, so a handler that is at work when a sleeper wakes can still lose"
    );
    Some(Claim::new("X25", detail, decimals(most, 5), without >= SHOWN && most < NONE).bar(NONE))
}

/// Returns the mean share of late pings of the first nine pairs.
fn nine_late(measured: &Measured) -> f64 {
    (0..9).map(|pair| measured.over(pair, |summary| summary.late).mean).sum::<f64>() / 9.0
}

fn nine(results: Results<'_>) -> Option<Claim> {
    let before = nine_late(results.find("3a", Boost::None)?);
    let after = nine_late(results.find("3b", Boost::Counter)?);
    let bar = LEFT * before;
    let detail = format!("{before:.3} before");
    Some(Claim::new("X26", detail, decimals(after, 5), before >= SHOWN && after < bar).bar(decimals(bar, 5)))
}

fn tenth(results: Results<'_>) -> Option<Claim> {
    let mean = |measured: &Measured| measured.over(9, |summary| summary.mean_us).mean;
    let before = mean(results.find("3a", Boost::None)?);
    let after = mean(results.find("3b", Boost::Counter)?);
    let by_sleepers = before - results.alone()?;
    let slight = (after - before) / by_sleepers;
    let detail = "its mean delay by the nine as a share of that by everything else";
    Some(Claim::new("X27", detail, decimals(slight, 4), slight < SLIGHT).bar(SLIGHT))
}

fn background(results: Results<'_>) -> Option<Claim> {
    let (before, after) = (results.find("3a", Boost::None)?, results.find("3b", Boost::Counter)?);
    let loss = |before: Over, after: Over| 1.0 - after.mean / before.mean;
    let most = loss(before.compute(), after.compute()).max(loss(before.sleepers(), after.sleepers()));
    let detail = "the larger of the losses of compute-only and sleep-mostly";
    Some(Claim::new("X28", detail, decimals(most, 5), most < 0.01))
}

/// Returns the late pings with a boost as a multiple of those without.
fn late_ratio(results: Results<'_>, boost: Boost) -> Option<f64> {
    let none = late(results.find("5", Boost::None)?).mean;
    Some(late(results.find("5", boost)?).mean / none)
}

fn extra(results: Results<'_>) -> Option<Claim> {
    let ratio = late_ratio(results, Boost::Counter)?;
    let kept = results.find("5", Boost::Counter)?.kept()?.mean;
    let why = if kept >= MOST {
        ": a process that computes for 3 % loses less than a tick per epoch, and four lost ticks in one epoch lose the boost"
    } else {
        ""
    };
    let detail = format!(
        "late pings as a multiple of those without; by the printed rule {:.0} % of the boosts are kept{why}",
        kept * 100.0
    );
    Some(Claim::new("X29", detail, decimals(ratio, 4), SAME.contains(&ratio)))
}

fn intent(results: Results<'_>) -> Option<Claim> {
    let kept = results.find("5", Boost::Sleepers)?.kept()?.mean;
    let ratio = late_ratio(results, Boost::Sleepers)?;
    let detail = format!("share of boosts kept; late pings are {ratio:.2} of those without a boost");
    Some(Claim::new("X29-intent", detail, decimals(kept, 4), kept < MOST).bar(MOST))
}

fn on_unblock(results: Results<'_>) -> Option<Claim> {
    let none = late(results.find("1b", Boost::None)?).mean;
    let ratio = late(results.find("own", Boost::OnUnblock)?).mean / none;
    Some(Claim::at_least("X16", "", SAME.start, ratio, 3))
}

/// Returns the mean over three ranks in milliseconds.
fn mean_ms(measured: &Measured, ranks: [usize; 3]) -> f64 {
    ranks.map(|rank| measured.over(rank, |summary| summary.mean_us).mean).iter().sum::<f64>() / 3e3
}

/// Ranks behind the disturbed one, and other ranks.
const BEHIND: [usize; 3] = [5, 6, 7];
const ELSEWHERE: [usize; 3] = [1, 2, 3];

/// Judges figure 7. The wait in (a) is no claim: the unpublished cost of `top` was chosen so that it is the paper's.
fn scatter(results: Results<'_>) -> Option<Vec<Claim>> {
    let unloaded = results.find("7-unloaded", Boost::None)?;
    let polling = results.find("7a", Boost::None)?;
    let handler = results.find("7b", Boost::None)?;
    let boosted = results.find("7c", Boost::Counter)?;
    let behind = |measured| mean_ms(measured, BEHIND);
    let waits = behind(polling);
    let delayed = waits - behind(unloaded);
    let elsewhere = mean_ms(polling, ELSEWHERE) - mean_ms(unloaded, ELSEWHERE);
    let detail = format!("delay of ranks 1 to 3 as a share of that of 5 to 7, {delayed:.2} ms");
    let share = elsewhere / delayed;
    let only = delayed >= DELAYED_MS && share <= ELSEWHERE_SHARE;

    let removed = waits - behind(handler);
    let left = (behind(handler) - behind(boosted)) * 1e3;
    let within = |factor: f64| (500.0 / factor..=500.0 * factor).contains(&left);
    let times = behind(boosted) / behind(unloaded);
    let of_wait = format!("of {waits:.2} ms, to which the cost of `top` was fitted");
    let rest = "grows with the square of the time slice of `top`, which the paper does not state; in step, four of \
                them leave more, see the row";
    let parts = [
        Claim::new("X33b", of_wait, decimals(removed, 2), removed > 5.0),
        Claim::new("X33c", rest, decimals(left, 0), Verdict::graded(within(CLOSE), within(WITHIN)))
            .bar(json!([500.0 / CLOSE, 500.0 * CLOSE])),
        Claim::at_most("X33d", "", ALMOST, times, 3),
    ];
    let count = parts.iter().filter(|part| part.holds()).count();
    let all = Verdict::graded(count == parts.len(), count > 0);
    let mut claims = vec![
        Claim::new("X32", detail, decimals(share, 3), only).bar(ELSEWHERE_SHARE),
        Claim::new("X33", "number of the three that hold", count, all),
    ];
    claims.extend(parts);
    Some(claims)
}

#[cfg(test)]
mod tests;

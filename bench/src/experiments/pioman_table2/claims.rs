//! Claims about the costs of detection, and of an engine for calls.

use pronto::progress::{BLOCKS_AFTER, Engine};
use serde_json::Value;

use super::{Call, Kind, MANY, Row, ns_of};
use crate::claim::{Claim, Verdict};
use crate::echo::Provider;
use crate::placement::ONE_CPU;
use crate::report::decimals;
use crate::sample::{a_to_a, approximate};

/// Evaluates the claims for which rows were measured.
pub(super) fn of(rows: &[Row]) -> Vec<Claim> {
    let of_calls = CALLS.into_iter().filter_map(|(id, provider)| calls(rows, id, provider));
    polls(rows).into_iter().chain(blocking(rows)).chain(of_calls).collect()
}

/// Returns the claims that need a second CPU, for a run with one.
pub(super) fn on_one_cpu() -> impl Iterator<Item = Claim> {
    CALLS.into_iter().map(|(id, _)| Claim::new(id, ONE_CPU, Value::Null, Verdict::NotResolvable))
}

fn polls(rows: &[Row]) -> Vec<Claim> {
    let ns = |kind| ns_of(rows, kind);
    let (first, most) = (Kind::Poll(Engine::Idle, 1), Kind::Poll(Engine::Idle, MANY));
    let in_loads = ns(first).zip(ns(Kind::Load)).map(|(poll, load)| poll / load);
    let more = ns(first).zip(ns(most)).map(|(one, many)| (many - one) / (approximate(MANY as u64) - 1.0));
    let all = [
        ("P34.poll", 38.0, ns(Kind::Poll(Engine::None, 1))),
        ("P34.loop", 38.0, ns(first)),
        ("P34.load", 4.0, in_loads),
        ("P34.more", 10.0, more),
    ];
    let measured = all.into_iter().filter_map(|(id, bar, measured)| Some((id, bar, measured?)));
    measured.map(|(id, bar, measured)| Claim::at_most(id, "", bar, measured, 3)).collect()
}

/// Judges what a call costs that may block, and what its spare is worth.
fn blocking(rows: &[Row]) -> Vec<Claim> {
    let us = |kind| ns_of(rows, kind).map(|ns| ns / 1e3);
    let mut claims = Vec::new();
    if let Some(empty) = us(Kind::Blocking) {
        claims.push(Claim::at_most("P34.blocking", "no spare is woken", INTERRUPT_US, empty, 2));
    }
    let spare = us(Kind::Blocked(Call::Announced));
    if let Some((spare, timer)) = spare.zip(us(Kind::Timer)) {
        let bar = SPARE * timer;
        let detail = format!(
            "a call counts as blocked after {} us; a bare timer of that length takes {timer:.0} us to wake a thread",
            BLOCKS_AFTER.as_micros()
        );
        let verdict = Verdict::graded(spare <= INTERRUPT_US, spare <= bar);
        claims.push(Claim::new("P34.spare", detail, decimals(spare, 1), verdict).bar(decimals(bar, 1)));
    }
    if let Some((spare, without)) = spare.zip(us(Kind::Blocked(Call::Bare))) {
        let times = without / spare;
        let detail = format!("{:.0} us without a spare, {spare:.0} us with one", without);
        let verdict = Verdict::graded(times >= SEVERAL_ORDERS, times >= ONE_ORDER);
        claims.push(Claim::new("P35", detail, decimals(times, 0), verdict).bar(decimals(SEVERAL_ORDERS, 0)));
    }
    claims
}

/// Judges calls with each engine that has a thread against calls without one.
fn calls(rows: &[Row], id: &'static str, provider: Provider) -> Option<Claim> {
    let of = |engine| {
        rows.iter().find(|row| row.kind == Kind::Call(provider, engine)).filter(|row| !row.ns.is_empty())
    };
    let without = of(Engine::None)?;
    let (idle, timer) = (of(Engine::Idle)?, of(Engine::Timer(pronto_node::config::TIMER))?);
    let [idle_times, timer_times] = [idle, timer].map(|row| row.ns() / without.ns());
    let times = idle_times.max(timer_times);
    let detail = format!("idle engine {idle_times:.3}, timer {timer_times:.3}");
    let noise =
        [without, idle, timer].map(|row| (a_to_a(&row.ns) - 1.0).abs()).into_iter().fold(0.0, f64::max);
    let is_measured = idle_times.is_finite() && timer_times.is_finite();
    if !is_measured || noise > STEADY && (times - CALL).abs() <= noise {
        let detail =
            format!("{detail}; A/A is {noise:.2} off: run `pronto-bench pioman-table2` on an idle machine");
        return Some(
            Claim::new(id, detail, decimals(times, 3), Verdict::NotResolvable).bar(decimals(CALL, 2)),
        );
    }
    Some(Claim::at_most(id, detail, CALL, times, 3))
}

/// The claims about calls.
const CALLS: [(&str, Provider); 2] = [("P31.shm", Provider::Shm), ("P31.tcp", Provider::Tcp)];
/// Cost of an empty blocking call in the paper, us. We take it as our own bar, too.
const INTERRUPT_US: f64 = 1.68;
/// Largest time of a spare, in wake-ups by a bare timer.
const SPARE: f64 = 1.5;
/// Least that several orders of magnitude mean, and one.
const SEVERAL_ORDERS: f64 = 100.0;
const ONE_ORDER: f64 = 10.0;
/// Largest time of a call with an engine, in calls without one.
const CALL: f64 = 1.05;
/// Largest distance of an A/A from 1 at which a difference of 5 % shows.
const STEADY: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::super::ENGINES;
    use super::*;

    fn row(kind: Kind, ns: f64) -> Row {
        Row { kind, ns: vec![ns, ns] }
    }

    fn verdicts(rows: &[Row]) -> Vec<(&'static str, Verdict)> {
        of(rows).iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn polls_are_judged_by_the_bars() {
        let idle = |sources| Kind::Poll(Engine::Idle, sources);
        let of_rows = |load, none, first, further| {
            let many = first + (approximate(MANY as u64) - 1.0) * further;
            verdicts(&[
                row(Kind::Load, load),
                row(Kind::Poll(Engine::None, 1), none),
                row(idle(1), first),
                row(idle(MANY), many),
            ])
        };
        let all = |verdict| ["P34.poll", "P34.loop", "P34.load", "P34.more"].map(|id| (id, verdict));
        assert_eq!(of_rows(1.0, 37.0, 3.9, 9.9), all(Verdict::Holds));
        assert_eq!(of_rows(1.0, 39.0, 39.0, 11.0), all(Verdict::DoesNotHold));
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_blocking_call_is_judged_with_and_without_a_spare() {
        let of_rows = |empty_us: f64, timer_us: f64, spare_us: f64, without_us: f64| {
            verdicts(&[
                row(Kind::Blocking, empty_us * 1e3),
                row(Kind::Timer, timer_us * 1e3),
                row(Kind::Blocked(Call::Announced), spare_us * 1e3),
                row(Kind::Blocked(Call::Bare), without_us * 1e3),
            ])
        };
        let all = |verdicts: [Verdict; 3]| {
            let [empty, spare, without] = verdicts;
            [("P34.blocking", empty), ("P34.spare", spare), ("P35", without)]
        };
        use Verdict::{DoesNotHold, Holds, InPart};
        assert_eq!(of_rows(1.6, 105.0, 1.5, 50_000.0), all([Holds, Holds, Holds]));
        assert_eq!(of_rows(1.7, 105.0, 150.0, 5_000.0), all([DoesNotHold, InPart, InPart]));
        // The spare does not come.
        assert_eq!(of_rows(1.7, 105.0, 50_000.0, 50_000.0), all([DoesNotHold; 3]));
    }

    #[test]
    fn a_call_is_judged_with_both_engines_and_not_by_noise() {
        let [none, timer, idle] = ENGINES.map(|engine| Kind::Call(Provider::Shm, engine));
        let of_rows = |none_ns, timer_ns, idle_ns| {
            verdicts(&[row(none, none_ns), row(timer, timer_ns), row(idle, idle_ns)])
        };
        assert_eq!(of_rows(200.0, 209.0, 190.0), [("P31.shm", Verdict::Holds)]);
        assert_eq!(of_rows(200.0, 200.0, 212.0), [("P31.shm", Verdict::DoesNotHold)]);
        assert_eq!(of_rows(200.0, 212.0, 200.0), [("P31.shm", Verdict::DoesNotHold)]);
        let noisy = |idle_ns| {
            let unsteady = Row { kind: none, ns: vec![180.0, 220.0] };
            verdicts(&[unsteady, row(timer, 200.0), row(idle, idle_ns)])
        };
        assert_eq!(noisy(212.0), [("P31.shm", Verdict::NotResolvable)]);
        assert_eq!(noisy(300.0), [("P31.shm", Verdict::DoesNotHold)]);
        assert_eq!(of_rows(0.0, 0.0, 0.0), [("P31.shm", Verdict::NotResolvable)]);
        let on_one_cpu: Vec<_> = on_one_cpu().map(|claim| (claim.id, claim.verdict)).collect();
        assert_eq!(on_one_cpu, CALLS.map(|(id, _)| (id, Verdict::NotResolvable)));
    }
}

//! `expedite-fig3` and `expedite-fig4`: ten pairs, of which none or nine are flagged; the loss of the tenth and of the background.

use core::time::Duration;
use std::thread;

use super::IN_THE_LAB;
use super::trial::{Traffic, Trial, loss, median};
use crate::claim::{Claim, Verdict};
use crate::expedite::{Cyclictest, Kind, Late, Load, Machine, Setting, Transport, Work, hackbench};
use crate::experiment::{Experiment, Run};
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

/// Figure 3: the gain of the flagged pairs.
pub(in crate::experiments) const PAIRS: Experiment = Experiment {
    name: "expedite-fig3",
    question: "Do nine flagged pairs of ten stop suffering?",
    takes: [3600, 120],
    figure: Some("Fig. 3"),
    about: "ten concurrent pairs, of which none or nine are flagged: gain of the nine",
    claims: &["X26"],
    run: |run| measure(run, Subject::Pairs),
    ..IN_THE_LAB
};

/// Figure 4: the loss of the others.
pub(in crate::experiments) const TENTH: Experiment = Experiment {
    name: "expedite-fig4",
    question: "What does the flag of nine pairs cost the tenth, and the background?",
    takes: [7200, 180],
    figure: Some("Fig. 4"),
    about: "ten concurrent pairs, of which none or nine are flagged: loss of the tenth and of the background",
    claims: &["X27", "X28", "X28-judge", "X5"],
    run: |run| measure(run, Subject::Victims),
    ..IN_THE_LAB
};

/// Subject of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pairs,
    Victims,
}

const ALL_PAIRS: usize = 10;
const FLAGGED: usize = 9;
/// Number of processes that mostly sleep, in addition to one that computes. The paper has two; four show late pings under EEVDF.
const SLEEPERS: usize = 4;
/// Interval of each pair, as in the paper (section 4.1).
const INTERVAL: Duration = Duration::from_millis(50);
/// Interval of the victim's wake-ups.
const VICTIM: Duration = Duration::from_millis(10);
/// Largest increase that is not noticed: a few hundred microseconds (section 1.2).
const NOT_NOTICED_US: f64 = 500.0;
/// Section 4.3: "less than one percent".
const LITTLE: f64 = 0.01;
/// Largest allowed difference between our count and the kernel's.
const AGREE: f64 = 0.005;
/// Share of late pings without a boost that is enough to show its effect.
const ENOUGH: f64 = 0.02;
/// Share of them that may be late with a boost for the pairs to stop suffering, and to suffer less.
const STOPS: f64 = 0.1;
const LESS: f64 = 0.5;

/// Measurements of the victims of a trial.
#[derive(Debug, Default)]
struct Seen {
    late: Late,
    hackbench: Vec<f64>,
}

fn measure(run: &mut Run<'_>, subject: Subject) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let machine = Machine::prepare()?;
    let works = [0, FLAGGED].map(|flagged| Work {
        pairs: ALL_PAIRS,
        flagged,
        ..Work::one(Transport::BareTcp, Setting::Module)
    });
    let trials = Trial::start_all(works, &mut report)?;
    let traffic = Traffic { count: if run.params.quick { 8 } else { 200 }, interval: INTERVAL };
    let mut loads = Load::start_all(Kind::Compute, 1, 0)?;
    loads.extend(Load::start_all(Kind::Sleep, SLEEPERS, 0)?);
    let mut trials: Vec<_> = trials.into_iter().map(|trial| (trial, Seen::default())).collect();
    run.begin(trials.len());
    let label = |(trial, _): &(Trial, Seen)| format!("{} flagged", trial.work.flagged);
    run.in_turns(&mut trials, label, |(trial, seen), _| match subject {
        Subject::Pairs => trial.round(&machine, &mut loads, traffic),
        Subject::Victims => victims_round(trial, seen, &machine, &mut loads, traffic),
    })?;
    let [none, nine] = trials.as_slice() else { anyhow::bail!("expected two trials, got {}", trials.len()) };
    match subject {
        Subject::Victims => {
            report.rows = vec![victims(none), victims(nine)];
            report.claims = losses(&Losses::of([none, nine]));
        }
        Subject::Pairs => {
            let (none, nine) = (&none.0, &nine.0);
            report.rows = [(none, "all", 0..10), (nine, "flagged", 0..FLAGGED), (nine, "tenth", FLAGGED..10)]
                .map(|(trial, who, those)| {
                    let row = Fields::default().with("flagged", trial.work.flagged).with("who", who);
                    trial.counted(trial.columns(row, |index| those.contains(&index)))
                })
                .into();
            report.claims =
                vec![nine_are_helped([none, nine].map(|trial| trial.late(|index| index < FLAGGED)))];
        }
    }
    report.params = Fields::default()
        .with("bytes", crate::expedite::BYTES)
        .with("interval_ms", 50)
        .with("messages_per_pair", traffic.count * run.rounds)
        .with("rounds", run.rounds)
        .with("sleepers", SLEEPERS)
        .with("transport", "tcp");
    Ok(report)
}

fn victims_round(
    trial: &mut Trial,
    seen: &mut Seen,
    machine: &Machine,
    loads: &mut [Load],
    traffic: Traffic,
) -> anyhow::Result<()> {
    let wakes = traffic.count * u32::try_from(INTERVAL.as_millis() / VICTIM.as_millis())?;
    let victim = Cyclictest::start(VICTIM, wakes)?;
    trial.round(machine, loads, traffic)?;
    seen.late.add(&victim.end()?);
    // With the same traffic, which is not counted, because the messages of hackbench would disturb the background.
    let second = thread::scope(|scope| {
        let judge = scope.spawn(hackbench);
        trial.send(machine, traffic)?;
        judge.join().expect("a judge does not panic")
    })?;
    seen.hackbench.push(second);
    Ok(())
}

/// Returns the row of the victims of a trial.
fn victims((trial, seen): &(Trial, Seen)) -> Fields {
    let row = Fields::default().with("flagged", trial.work.flagged).with("who", "tenth");
    let row = trial.counted(trial.columns(row, |index| index >= FLAGGED));
    row.with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(median(trial.shares()), 4))
        .with("overslept_us", trial.overslept_us().map(|us| decimals(us, 1)))
        .with("cyclictest_p50_us", seen.late.at(0.5))
        .with("cyclictest_p90_us", seen.late.at(0.9))
        .with("hackbench_s", decimals(median(seen.hackbench.iter().copied()), 4))
}

/// Judges the shares of late pings of nine pairs without a boost and with it.
fn nine_are_helped([before, after]: [f64; 2]) -> Claim {
    let bar = before * STOPS;
    let (verdict, why) = if before < ENOUGH {
        (Verdict::NotResolvable, ", which is too few; `pronto-bench expedite-sim` judges it")
    } else {
        (Verdict::graded(after <= bar, after <= before * LESS), "")
    };
    let detail = format!("{before:.4} without{why}");
    Claim::new("X26", detail, decimals(after, 4), verdict).bar(decimals(bar, 4))
}

/// Losses of the unflagged by nine flagged pairs.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// Increase of the median of the tenth pair's pings, microseconds.
    tenth_us: f64,
    /// Share of its work that the background loses.
    work: f64,
    /// Share of its CPU time that the background loses by the kernel's accounting.
    accounted: f64,
    /// Increase of the median wake-up delay of cyclictest, microseconds.
    victim_us: f64,
}

impl Losses {
    fn of([none, nine]: [&(Trial, Seen); 2]) -> Self {
        let tenth = |trial: &Trial| approximate(trial.pings(|index| index >= FLAGGED).quantile_ns(0.5)) / 1e3;
        let [before, after] = [none, nine].map(|(_, seen)| approximate(seen.late.at(0.5)));
        Self {
            tenth_us: tenth(&nine.0) - tenth(&none.0),
            work: loss(&nine.0.rates(), &none.0.rates()),
            accounted: loss(&nine.0.shares(), &none.0.shares()),
            victim_us: after - before,
        }
    }
}

fn losses(losses: &Losses) -> Vec<Claim> {
    let Losses { tenth_us, work, accounted, victim_us } = *losses;
    let differs = accounted - work;
    let of_pair = "increase of the median time that its pings wait, us";
    let of_kernel = "difference from /proc/PID/schedstat";
    let of_victim = "increase of the median wake-up delay of cyclictest, us";
    vec![
        Claim::new("X27", of_pair, decimals(tenth_us, 1), tenth_us < NOT_NOTICED_US).bar(NOT_NOTICED_US),
        Claim::new("X28", "median of the rounds, traffic equal", decimals(work, 4), work < LITTLE),
        Claim::new("X28-judge", of_kernel, decimals(differs, 4), differs.abs() <= AGREE).bar(AGREE),
        Claim::new("X5", of_victim, decimals(victim_us, 0), victim_us < NOT_NOTICED_US).bar(NOT_NOTICED_US),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_pairs_must_stop_suffering_if_they_did() {
        let judged = |late| nine_are_helped(late).verdict;
        assert_eq!(judged([0.05, 0.004]), Verdict::Holds);
        assert_eq!(judged([0.05, 0.02]), Verdict::InPart);
        assert_eq!(judged([0.05, 0.04]), Verdict::DoesNotHold);
        assert_eq!(judged([0.01, 0.0]), Verdict::NotResolvable);
    }

    #[test]
    fn each_loss_can_be_too_large() {
        let small = Losses { tenth_us: 10.0, work: 0.005, accounted: 0.006, victim_us: 3.0 };
        let failed = |loss: Losses| {
            let claims = losses(&loss).into_iter().filter(|claim| !claim.holds());
            claims.map(|claim| claim.id).collect::<Vec<_>>()
        };
        assert!(failed(small).is_empty());
        assert_eq!(failed(Losses { tenth_us: 800.0, ..small }), ["X27"]);
        assert_eq!(failed(Losses { work: 0.02, accounted: 0.02, ..small }), ["X28"]);
        assert_eq!(failed(Losses { accounted: 0.02, ..small }), ["X28-judge"]);
        assert_eq!(failed(Losses { victim_us: 600.0, ..small }), ["X5"]);
    }
}

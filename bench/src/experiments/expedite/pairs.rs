//! `expedite-fig3` and `expedite-fig4`: ten pairs, of which none or nine are flagged; the loss of the tenth and of the background.

use core::time::Duration;
use std::thread;

use super::IN_THE_LAB;
use super::trial::{Traffic, Trial, loss, median};
use crate::claim::Claim;
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
            report.claims = losses([none, nine]);
        }
        Subject::Pairs => {
            let (none, nine) = (&none.0, &nine.0);
            report.rows = [(none, "all", 0..10), (nine, "flagged", 0..FLAGGED), (nine, "tenth", FLAGGED..10)]
                .map(|(trial, who, those)| {
                    let row = Fields::default().with("flagged", trial.work.flagged).with("who", who);
                    trial.counted(trial.columns(row, |index| those.contains(&index)))
                })
                .into();
            report.claims = vec![nine_are_helped(none, nine)];
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

fn nine_are_helped(none: &Trial, nine: &Trial) -> Claim {
    let before = none.late(|index| index < FLAGGED);
    let after = nine.late(|index| index < FLAGGED);
    let text = format!(
        "nine pairs flagged at the same time stop suffering: share of late pings, at most a tenth of that without ({before:.4})"
    );
    Claim::new("X26", text, decimals(after, 4), before > 0.0 && after <= before / 10.0)
}

fn losses([none, nine]: [&(Trial, Seen); 2]) -> Vec<Claim> {
    let tenth = |trial: &Trial| approximate(trial.pings(|index| index >= FLAGGED).quantile_ns(0.5)) / 1e3;
    let more = tenth(&nine.0) - tenth(&none.0);
    let lost = loss(&nine.0.rates(), &none.0.rates());
    let differs = loss(&nine.0.shares(), &none.0.shares()) - lost;
    let [before, after] = [none, nine].map(|(_, seen)| approximate(seen.late.at(0.5)));
    let of_pair =
        "the tenth pair, not flagged, suffers slightly: increase of its pings' waiting time, us, median";
    let of_work =
        "the background loses less than one per cent of its work (median of the rounds, traffic equal)";
    let of_kernel = "the kernel's accounting (/proc/PID/schedstat) agrees within half a per cent";
    let of_victim = "a thread that wakes now and then, like `top`, is not affected: increase of cyclictest's wake-up delay, us, median";
    vec![
        Claim::new("X27", of_pair, decimals(more, 1), more < NOT_NOTICED_US).bar(NOT_NOTICED_US),
        Claim::new("X28", of_work, decimals(lost, 4), lost < LITTLE),
        Claim::new("X28-judge", of_kernel, decimals(differs, 4), differs.abs() <= AGREE).bar(AGREE),
        Claim::new("X5", of_victim, decimals(after - before, 0), after - before < NOT_NOTICED_US)
            .bar(NOT_NOTICED_US),
    ]
}

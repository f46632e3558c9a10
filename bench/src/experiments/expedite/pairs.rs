//! `expedite-fig3` and `expedite-fig4`: ten pairs, of which none or nine are flagged; the loss of the tenth and of the background.

use core::time::Duration;
use std::thread;

use serde_json::json;

use super::trial::{Traffic, Trial, loss, median};
use super::{ROUNDS, lab};
use crate::expedite::{Cyclictest, Kind, Late, Load, Machine, Setting, Transport, Work, hackbench};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};

/// Figure 3, or figure 4.
#[derive(Debug)]
pub(in crate::experiments) struct TenPairs {
    name: &'static str,
    figure: &'static str,
    about: &'static str,
    /// Whether the victims are looked at: figure 4.
    victims: bool,
}

/// The experiment about the gain of the pairs.
pub(in crate::experiments) static PAIRS: TenPairs = TenPairs {
    name: "expedite-fig3",
    figure: "Fig. 3",
    about: "ten concurrent pairs, of which none or nine are flagged: gain of the nine",
    victims: false,
};

/// The experiment about the loss of the others.
pub(in crate::experiments) static TENTH: TenPairs = TenPairs {
    name: "expedite-fig4",
    figure: "Fig. 4",
    about: "ten concurrent pairs, of which none or nine are flagged: loss of the tenth and of the background",
    victims: true,
};

const PAIRS_THERE_ARE: usize = 10;
const FLAGGED: usize = 9;
/// Beside one that computes. The paper has two; these many show late pings under EEVDF.
const SLEEPERS: usize = 4;
/// Of each pair: the paper's (section 4.1).
const INTERVAL: Duration = Duration::from_millis(50);
/// Of the victim's wake-ups.
const VICTIM: Duration = Duration::from_millis(10);
/// A few hundred microseconds (section 1.2).
const NOT_NOTICED_US: f64 = 500.0;
/// Section 4.3: "less than one percent".
const LITTLE: f64 = 0.01;
/// Largest allowed difference between our count and the kernel's.
const AGREE: f64 = 0.005;

/// What was seen beside a trial.
#[derive(Debug, Default)]
struct Seen {
    late: Late,
    hackbench: Vec<f64>,
}

impl Experiment for TenPairs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        Some(self.figure)
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn axes(&self) -> &'static [Axis] {
        &[]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(lab(params.quick)))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let machine = Machine::prepare()?;
        let works = [0, FLAGGED].map(|flagged| Work {
            pairs: PAIRS_THERE_ARE,
            flagged,
            ..Work::one(Transport::BareTcp, Setting::Module)
        });
        let mut trials = Trial::start_all(works, &mut report)?;
        let traffic = Traffic { count: if params.quick { 8 } else { 200 }, interval: INTERVAL };
        let mut loads = vec![Load::start(Kind::Compute, 0)?];
        for _ in 0..SLEEPERS {
            loads.push(Load::start(Kind::Sleep, 0)?);
        }
        progress.begin(u64::from(ROUNDS) * trials.len() as u64);
        let mut seen = [Seen::default(), Seen::default()];
        for _ in 0..ROUNDS {
            for (trial, seen) in trials.iter_mut().zip(&mut seen) {
                progress.step(&format!("{} flagged", trial.work.flagged));
                self.round(trial, seen, &machine, &mut loads, traffic)?;
            }
        }
        let [none, nine] = trials.as_slice() else {
            anyhow::bail!("expected two trials, got {}", trials.len())
        };
        if self.victims {
            report.rows = vec![victims(none, &seen[0]), victims(nine, &seen[1])];
            report.claims = losses([none, nine], &seen);
        } else {
            report.rows = [(none, "all", 0..10), (nine, "flagged", 0..FLAGGED), (nine, "tenth", FLAGGED..10)]
                .map(|(trial, who, those)| {
                    let row = Fields::default().with("flagged", trial.work.flagged).with("who", who);
                    trial.counted(trial.columns(row, |index| those.contains(&index)))
                })
                .into();
            report.claims = vec![nine_are_helped(none, nine)];
        }
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 50)
            .with("messages_per_pair", traffic.count * ROUNDS)
            .with("rounds", ROUNDS)
            .with("sleepers", SLEEPERS)
            .with("transport", "tcp");
        Ok(report)
    }
}

impl TenPairs {
    fn round(
        &self,
        trial: &mut Trial,
        seen: &mut Seen,
        machine: &Machine,
        loads: &mut [Load],
        traffic: Traffic,
    ) -> anyhow::Result<()> {
        if !self.victims {
            return trial.round(machine, loads, traffic);
        }
        let wakes = traffic.count * u32::try_from(INTERVAL.as_millis() / VICTIM.as_millis())?;
        let victim = Cyclictest::start(VICTIM, wakes)?;
        trial.round(machine, loads, traffic)?;
        seen.late.add(&victim.end()?);
        // Beside the same traffic, which is not counted: the messages of hackbench would be in the background's way.
        let second = thread::scope(|scope| {
            let judge = scope.spawn(hackbench);
            trial.send(machine, traffic)?;
            judge.join().expect("a judge does not panic")
        })?;
        seen.hackbench.push(second);
        Ok(())
    }
}

/// What the victims had beside a trial.
fn victims(trial: &Trial, seen: &Seen) -> Fields {
    let row = Fields::default().with("flagged", trial.work.flagged).with("who", "tenth");
    let row = trial.counted(trial.columns(row, |index| index >= FLAGGED));
    row.with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(median(trial.shares()), 4))
        .with("overslept_us", trial.overslept_us().map_or(json!(null), |us| decimals(us, 1)))
        .with("cyclictest_p50_us", seen.late.at(0.5))
        .with("cyclictest_p90_us", seen.late.at(0.9))
        .with("hackbench_s", decimals(median(seen.hackbench.iter().copied()), 4))
}

fn nine_are_helped(none: &Trial, nine: &Trial) -> Claim {
    let before = none.late(|index| index < FLAGGED);
    let after = nine.late(|index| index < FLAGGED);
    Claim {
        id: "X26",
        text: format!(
            "nine pairs flagged at the same time stop suffering: share of late pings, at most a tenth of that without ({before:.4})"
        ),
        published: json!(0),
        measured: decimals(after, 4),
        holds: before > 0.0 && after <= before / 10.0,
    }
}

fn losses([none, nine]: [&Trial; 2], seen: &[Seen; 2]) -> Vec<Claim> {
    let tenth = |trial: &Trial| {
        let pings = trial.pings(|index| index >= FLAGGED);
        crate::sample::approximate(pings.quantile_ns(0.5)) / 1e3
    };
    let (before, after) = (tenth(none), tenth(nine));
    let lost = loss(&nine.rates(), &none.rates());
    let lost_by_kernel = loss(&nine.shares(), &none.shares());
    let [victim_before, victim_after] =
        [0, 1].map(|trial| crate::sample::approximate(seen[trial].late.at(0.5)));
    vec![
        Claim {
            id: "X27",
            text: "the tenth pair, not flagged, suffers slightly: increase of its pings' waiting time, us, median".into(),
            published: json!("slightly"),
            measured: decimals(after - before, 1),
            holds: after - before < NOT_NOTICED_US,
        },
        Claim {
            id: "X28",
            text: "the background loses less than one per cent of its work (median of the rounds, traffic equal)".into(),
            published: json!(LITTLE),
            measured: decimals(lost, 4),
            holds: lost < LITTLE,
        },
        Claim {
            id: "X28-judge",
            text: "the kernel's accounting (/proc/PID/schedstat) agrees within half a per cent".into(),
            published: json!(AGREE),
            measured: decimals(lost_by_kernel - lost, 4),
            holds: (lost_by_kernel - lost).abs() <= AGREE,
        },
        Claim {
            id: "X5",
            text: "a thread that wakes now and then, like `top`, is not affected: increase of cyclictest's wake-up delay, us, median".into(),
            published: json!("a few hundred us"),
            measured: decimals(victim_after - victim_before, 0),
            holds: victim_after - victim_before < NOT_NOTICED_US,
        },
    ]
}

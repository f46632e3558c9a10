//! `expedite-fig1` and `expedite-fig2`: one pair with computing and mostly sleeping processes in the background, without Expedite
//! and with it.

use core::time::Duration;

use serde_json::json;

use super::trial::{Traffic, Trial, of};
use super::{ROUNDS, SETTING, lab};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};

/// Figure 1, or figure 2.
#[derive(Debug)]
pub(in crate::experiments) struct Pairs {
    name: &'static str,
    figure: &'static str,
    settings: &'static [Setting],
}

/// With the existing kernel.
pub(in crate::experiments) static PINGS_WITHOUT: Pairs =
    Pairs { name: "expedite-fig1", figure: "Fig. 1", settings: &[Setting::Off, Setting::Fifo] };

/// With Expedite, and with what else there is.
pub(in crate::experiments) static PINGS_BOOSTED: Pairs =
    Pairs { name: "expedite-fig2", figure: "Fig. 2", settings: &Setting::ALL };

/// Numbers of processes that mostly sleep, in addition to one that computes. The paper has two; more are added until pings are late.
pub(super) const SLEEPERS: [usize; 5] = [0, 2, 4, 8, 16];

/// Share of late pings without Expedite that is enough to show its effect.
pub(super) const ENOUGH: f64 = 0.05;

/// Four of two hundred: differences between settings that say nothing.
const CHANCE: f64 = 0.02;

/// Largest allowed excess over always-FIFO. Chosen by us; no source.
pub(super) const RARE: f64 = 0.0003;

/// Of the paper (section 4.1), and ours: time in the lab is dear.
const PAPERS_INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_millis(5);

/// The module's slice: the longest boost on average.
const SLICE_US: f64 = 200.0;

impl Experiment for Pairs {
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
        if self.settings.contains(&Setting::Module) {
            "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, for every available boost"
        } else {
            "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, on an unmodified kernel"
        }
    }

    fn axes(&self) -> &'static [Axis] {
        &[SETTING]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(lab(params.quick)))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let machine = Machine::prepare()?;
        let settings = self.settings.iter().filter(|setting| params.keeps("setting", setting.name()));
        let works = settings.map(|setting| Work::one(Transport::BareTcp, *setting));
        let mut trials = Trial::start_all(works, &mut report)?;
        let traffic = Traffic { count: if params.quick { 40 } else { 400 }, interval: INTERVAL };
        progress.begin(SLEEPERS.len() as u64 * u64::from(ROUNDS) * trials.len() as u64);
        let mut loads = vec![Load::start(Kind::Compute, 0)?];
        let mut late = 0.0;
        for sleepers in SLEEPERS {
            while loads.len() <= sleepers {
                loads.push(Load::start(Kind::Sleep, 0)?);
            }
            trials.iter_mut().for_each(Trial::begin);
            for _ in 0..ROUNDS {
                for trial in &mut trials {
                    progress.step(&format!("{} with {sleepers} sleepers", trial.work.setting.name()));
                    trial.round(&machine, &mut loads, traffic)?;
                }
            }
            report.rows.extend(trials.iter().map(|trial| row(trial, sleepers)));
            late = of(&trials, Setting::Off).map_or(0.0, |off| off.late(|_| true));
            if sleepers == 0 {
                report.claims.extend(compute_only(&trials));
            } else if late >= ENOUGH {
                break;
            }
        }
        if late < ENOUGH {
            report.note(format!("with {} sleepers, too, fewer than 5 % of the pings were late", SLEEPERS[4]));
        }
        report.claims.extend(self.claims(&trials));
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 5)
            .with("messages", traffic.count * ROUNDS)
            .with("rounds", ROUNDS)
            .with("transport", "tcp");
        Ok(report)
    }
}

impl Pairs {
    /// What the last rows say: those beside as many sleepers as it took.
    fn claims(&self, trials: &[Trial]) -> Vec<Claim> {
        let mut claims = Vec::new();
        if let Some(off) = of(trials, Setting::Off) {
            claims.push(sleepers_delay(off));
        }
        if self.settings.contains(&Setting::Module) {
            claims.extend(none_are_late(trials));
            claims.extend(who_reads_is_boosted(trials));
            claims.extend(until_dispatched(trials));
        } else {
            claims.push(Claim {
                id: "X22",
                text: "500 B every 50 ms, a process that computes Fibonacci's series, and some that compute for 5 ms and sleep for 45; here the pings come ten times as often, to shorten the run in the lab".into(),
                published: json!(PAPERS_INTERVAL.as_millis().to_string()),
                measured: json!(INTERVAL.as_millis().to_string()),
                holds: INTERVAL == PAPERS_INTERVAL,
            });
        }
        claims
    }
}

fn row(trial: &Trial, sleepers: usize) -> Fields {
    let row = Fields::default().with("sleepers", sleepers).with("setting", trial.work.setting.name());
    trial.counted(trial.columns(row, |_| true))
}

fn compute_only(trials: &[Trial]) -> Option<Claim> {
    let late = of(trials, Setting::Off)?.late(|_| true);
    // No thread delays a real-time thread: late pings there are caused by the clock.
    let quantum = of(trials, Setting::Fifo)?.late(|_| true);
    let late = (late - quantum).max(0.0);
    let why = if late > CHANCE {
        "; under EEVDF a compute-only process may finish its slice, and lazy preemption waits for the tick"
    } else {
        ""
    };
    Some(Claim {
        id: "X23",
        text: format!(
            "a compute-only process delays no ping by a millisecond{why}: share of late pings beyond that of always-FIFO ({quantum:.3}), which the quantum of virtual time causes"
        ),
        published: json!(0),
        measured: decimals(late, 4),
        holds: late <= CHANCE,
    })
}

fn sleepers_delay(off: &Trial) -> Claim {
    let late = off.late(|_| true);
    Claim {
        id: "X24",
        text: "processes that mostly sleep delay some pings by milliseconds".into(),
        published: json!("some, up to 5 ms"),
        measured: json!(format!(
            "{:.1} %, up to {:.1} ms",
            100.0 * late,
            crate::sample::approximate(off.pings(|_| true).max_ns()) / 1e6
        )),
        holds: late > 0.0,
    }
}

fn none_are_late(trials: &[Trial]) -> Option<Claim> {
    let late = of(trials, Setting::Module)?.late(|_| true);
    let fifo = of(trials, Setting::Fifo)?.late(|_| true);
    Some(Claim {
        id: "X25",
        text: format!(
            "with Expedite none are late: at most always-FIFO's share ({:.4}) plus 3 in 10,000",
            fifo
        ),
        published: json!(0),
        measured: decimals(late, 4),
        holds: late <= fifo + RARE,
    })
}

fn who_reads_is_boosted(trials: &[Trial]) -> Option<Claim> {
    let granted = of(trials, Setting::Module)?.granted();
    Some(Claim {
        id: "X7",
        text: "a thread that reads from a flagged socket is boosted, even if another thread flagged it: share of the pings with a boost".into(),
        published: json!(1),
        measured: decimals(granted, 3),
        holds: granted >= 0.95,
    })
}

fn until_dispatched(trials: &[Trial]) -> Option<Claim> {
    let module = of(trials, Setting::Module)?;
    let boosts = crate::sample::approximate(module.counters.boosts().max(1));
    let mean = crate::sample::approximate(module.counters.boosted_ns()) / boosts / 1e3;
    Some(Claim {
        id: "X9",
        text: "a boost lasts until the thread is dispatched, ours for 200 us more: boosted run time per boost, us".into(),
        published: json!("until dispatched"),
        measured: decimals(mean, 1),
        holds: mean <= SLICE_US,
    })
}

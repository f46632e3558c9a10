//! `expedite-late`: the share of pings that are a millisecond late, from enough pings to see rare ones; on one CPU, where virtual time
//! has no quantum.
//!
//! Two CPUs take turns under virtual time, and a turn can last for a millisecond or two: that looks like a late ping
//! (docs/measuring.md). Here the sender shares the handler's CPU. It is real-time above every handler, so it is never
//! late itself, and it sleeps immediately for the reply.

use core::time::Duration;

use serde_json::json;

use super::pings::{ENOUGH, RARE, SLEEPERS};
use super::trial::{Traffic, Trial, median};
use super::{ROUNDS, SETTING, lab};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};

/// The experiment.
#[derive(Debug)]
pub(in crate::experiments) struct Late;

/// Channels that handlers wait on: bare, so that nothing but the kernel is between sender and handler.
const TRANSPORTS: [Bars; 2] = [
    Bars {
        transport: Transport::Unix,
        least_to_off: 15.0,
        claims: ["unix-one-fifo", "unix-one-off", "unix-one-p99", "unix-rare"],
    },
    Bars {
        transport: Transport::BareTcp,
        least_to_off: 10.0,
        claims: ["tcp-one-fifo", "tcp-one-off", "tcp-one-p99", "X25-rare"],
    },
];

/// Processes that compute, in the rows `hogs`.
const HOGS: usize = 6;

/// Our own bounds: the most that p90 and p99 with the module may be of always-FIFO's.
const MOST_TO_FIFO: f64 = 1.6;
const MOST_TAIL: f64 = 1.3;

const INTERVAL: Duration = Duration::from_millis(5);

/// Pings without a boost that say whether there are sleepers enough.
const PROBE: Traffic = Traffic { count: 200, interval: INTERVAL };

/// Messages of each round with computing processes, and with sleepers.
const FULL: (u32, u32) = (400, 2_000);
const QUICK: (u32, u32) = (40, 40);

/// Bars of a transport.
struct Bars {
    transport: Transport,
    /// How many times better than without a boost p90 must be.
    least_to_off: f64,
    claims: [&'static str; 4],
}

impl Experiment for Late {
    fn name(&self) -> &'static str {
        "expedite-late"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Fig. 2")
    }

    fn about(&self) -> &'static str {
        "handlers on one CPU, where virtual time has no quantum: p90 and p99 while processes compute, late pings of 10,000 with sleep-mostly processes"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "transport",
                help: "Only handlers that wait on this",
                values: &["unix", "tcp-bare"],
            },
            SETTING,
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(Lab { cpus: 1, ..lab(params.quick) }))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let machine = Machine::with_one_processor()?;
        let works = TRANSPORTS
            .iter()
            .filter(|bars| params.keeps("transport", bars.transport.name()))
            .flat_map(|bars| Setting::ALL.map(|setting| Work::one(bars.transport, setting)))
            .filter(|work| params.keeps("setting", work.setting.name()));
        let mut trials = Trial::start_all(works, &mut report)?;
        let (beside_hogs, with_sleepers) = if params.quick { QUICK } else { FULL };
        let mut bench = Bench { machine, trials: &mut trials, progress };

        let hogs = (0..HOGS).map(|_| Load::start(Kind::Compute, 0));
        let mut loads = hogs.collect::<anyhow::Result<Vec<_>>>()?;
        report.rows = bench.rows("hogs", &mut loads, beside_hogs)?;
        report.claims.extend(bench.claims(beside_hogs_claims));

        loads.truncate(1);
        let sleepers = bench.sleepers(&mut loads, &mut report)?;
        report.rows.extend(bench.rows("sleepers", &mut loads, with_sleepers)?);
        report.claims.extend(bench.claims(|bars, trials| vec![rare(bars, trials, sleepers)]));
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 5)
            .with("messages", with_sleepers * ROUNDS)
            .with("messages_beside_hogs", beside_hogs * ROUNDS)
            .with("rounds", ROUNDS)
            .with("hogs", HOGS)
            .with("sleepers", sleepers);
        Ok(report)
    }
}

/// What is measured with, whatever the background.
struct Bench<'a> {
    machine: Machine,
    trials: &'a mut [Trial],
    progress: &'a mut Progress,
}

impl Bench<'_> {
    /// Measures all trials in turns with this background.
    fn rows(&mut self, background: &str, loads: &mut [Load], count: u32) -> anyhow::Result<Vec<Fields>> {
        let traffic = Traffic { count, interval: INTERVAL };
        self.progress.begin(u64::from(ROUNDS) * self.trials.len() as u64);
        self.trials.iter_mut().for_each(Trial::begin);
        for _ in 0..ROUNDS {
            for trial in &mut *self.trials {
                let (transport, setting) = (trial.work.transport.name(), trial.work.setting.name());
                self.progress.step(&format!("{transport} {setting} with {background}"));
                trial.round(&self.machine, loads, traffic)?;
            }
        }
        Ok(self.trials.iter().map(|trial| row(trial, background)).collect())
    }

    /// Starts processes that mostly sleep until enough pings are late without a boost. Returns how many.
    fn sleepers(&mut self, loads: &mut Vec<Load>, report: &mut Report) -> anyhow::Result<usize> {
        let mut probe = Trial::start_all([Work::one(Transport::BareTcp, Setting::Off)], report)?;
        self.progress.begin(SLEEPERS.len() as u64);
        for sleepers in SLEEPERS {
            self.progress.step(&format!("searching for late pings with {sleepers} sleepers"));
            while loads.len() <= sleepers {
                loads.push(Load::start(Kind::Sleep, 0)?);
            }
            for trial in &mut probe {
                trial.begin();
                trial.round(&self.machine, loads, PROBE)?;
                if trial.late(|_| true) >= ENOUGH {
                    return Ok(sleepers);
                }
            }
        }
        Ok(loads.len() - 1)
    }

    /// The claims about each transport: about its trials without a boost, flagged and always FIFO.
    fn claims(&self, claims: impl Fn(&Bars, [&Trial; 3]) -> Vec<Claim>) -> Vec<Claim> {
        let of = |bars: &Bars| {
            let those = || self.trials.iter().filter(|trial| trial.work.transport == bars.transport);
            let with = |setting| those().find(|trial| trial.work.setting == setting);
            Some(claims(bars, [with(Setting::Off)?, with(Setting::Module)?, with(Setting::Fifo)?]))
        };
        TRANSPORTS.iter().filter_map(of).flatten().collect()
    }
}

fn row(trial: &Trial, background: &str) -> Fields {
    let row = Fields::default()
        .with("transport", trial.work.transport.name())
        .with("background", background)
        .with("setting", trial.work.setting.name());
    trial.counted(trial.columns(row, |_| true).with("late_pings", trial.late_count()))
}

fn beside_hogs_claims(bars: &Bars, [off, module, fifo]: [&Trial; 3]) -> Vec<Claim> {
    let ratio = |upper: &Trial, lower: &Trial| {
        let (upper, lower) = (upper.p90_by_round(), lower.p90_by_round());
        median(upper.iter().zip(&lower).map(|(upper, lower)| upper / lower))
    };
    let claim = |id, what: String, bound, measured, digits, holds| Claim {
        id,
        text: format!("{}, {HOGS} computing processes: flagged, {what}", bars.transport.name()),
        published: json!(bound),
        measured: decimals(measured, digits),
        holds,
    };
    let [to_fifo, to_off, tail] = [ratio(module, fifo), ratio(off, module), module.p99() / fifo.p99()];
    let least = bars.least_to_off;
    vec![
        claim(
            bars.claims[0],
            format!("p90 is at most {MOST_TO_FIFO} of always-FIFO's (median of {ROUNDS} rounds)"),
            MOST_TO_FIFO,
            to_fifo,
            2,
            to_fifo <= MOST_TO_FIFO,
        ),
        claim(
            bars.claims[1],
            format!("p90 is at least {least} times better than without (median of {ROUNDS} rounds)"),
            least,
            to_off,
            1,
            to_off >= least,
        ),
        claim(
            bars.claims[2],
            format!(
                "p99 is at most {MOST_TAIL} of always-FIFO's: {:.0} us and {:.0} us, {:.0} us without",
                module.p99(),
                fifo.p99(),
                off.p99()
            ),
            MOST_TAIL,
            tail,
            2,
            tail <= MOST_TAIL,
        ),
    ]
}

fn rare(bars: &Bars, [off, module, fifo]: [&Trial; 3], sleepers: usize) -> Claim {
    let [off, late, fifo] = [off, module, fifo].map(|trial| trial.late(|_| true));
    let why = if off < ENOUGH { "; fewer than 5 % are late without, so this says little" } else { "" };
    Claim {
        id: bars.claims[3],
        text: format!(
            "{}: with Expedite none of {} pings are late with {sleepers} sleepers ({:.1} % are late without it): at most always-FIFO's share ({fifo:.4}) plus 3 in 10,000{why}",
            bars.transport.name(),
            module.pings(|_| true).count(),
            100.0 * off
        ),
        published: json!(0),
        measured: decimals(late, 4),
        holds: off >= ENOUGH && late <= fifo + RARE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_for_one_processor() {
        let lab = Late.lab(&Params::new()).unwrap().unwrap();
        assert_eq!((lab.cpus, lab.virtual_time, lab.module), (1, true, Some("kernel/expedite")));
    }
}

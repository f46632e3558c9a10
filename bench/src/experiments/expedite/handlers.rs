//! `expedite-handler`: our own sleeping handler over each transport, with computing processes in the background.

use core::time::Duration;

use serde_json::json;

use super::trial::{Traffic, Trial, median};
use super::{ROUNDS, SETTING, lab};
use crate::expedite::{Kind, Load, Machine, Preempt, Setting, Transport, Work};
use crate::experiment::Experiment;
use crate::floor;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::{Cpu, CpuPair};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, approximate};

/// The experiment.
#[derive(Debug)]
pub(in crate::experiments) struct Handlers;

const TRANSPORTS: [Transport; 3] = [Transport::Shm, Transport::Unix, Transport::Tcp];

/// Processes that compute, by the value of the column.
const HOGS: [(&str, usize); 3] = [("2", 2), ("6", 6), ("20", 20)];

/// In a quick run.
const QUICK_HOGS: usize = 6;

const INTERVAL: Duration = Duration::from_millis(5);
/// For each of the two ways to wake a thread.
const FLOOR: Duration = Duration::from_millis(20);

/// Our own bounds: the most that the module may take beside always-FIFO, and the least
/// that it must be better than nothing.
const MOST_TO_FIFO: f64 = 1.6;
const LEAST_TO_OFF: [(Transport, f64, [&str; 2]); 3] = [
    (Transport::Shm, 10.0, ["shm-fifo", "shm-off"]),
    (Transport::Unix, 15.0, ["unix-fifo", "unix-off"]),
    (Transport::Tcp, 10.0, ["tcp-fifo", "tcp-off"]),
];

impl Experiment for Handlers {
    fn name(&self) -> &'static str {
        "expedite-handler"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "time that a message waits for a sleeping handler while other processes compute, by boost of the handler"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "transport",
                help: "Only handlers that wait on this",
                values: &["shm", "unix", "tcp"],
            },
            SETTING,
            Axis { column: "preempt", help: "Only under these preemption models", values: &["lazy", "full"] },
            Axis {
                column: "hogs",
                help: "Only these numbers of computing processes",
                values: &["2", "6", "20"],
            },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        anyhow::ensure!(
            !cells(params).is_empty(),
            "--quick measures only lazy preemption with {QUICK_HOGS} hogs: omit --quick for the others"
        );
        Ok(Some(lab(params.quick)))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        report.note("skipped: verbs: a node waits for RDMA in nested epoll instances, which the module does not look into");
        let [futex, eventfd] = wake_ups()?;
        let machine = Machine::prepare()?;
        let works = TRANSPORTS
            .into_iter()
            .filter(|transport| params.keeps("transport", transport.name()))
            .flat_map(|transport| Setting::ALL.map(|setting| Work::one(transport, setting)))
            .filter(|work| params.keeps("setting", work.setting.name()));
        let mut trials = Trial::start_all(works, &mut report)?;
        let traffic = Traffic { count: if params.quick { 40 } else { 400 }, interval: INTERVAL };
        let cells = cells(params);
        progress.begin(cells.len() as u64 * u64::from(ROUNDS) * trials.len() as u64);
        let mut loads = Vec::new();
        for (preempt, hogs) in cells {
            machine.preempt(preempt)?;
            loads.truncate(hogs);
            while loads.len() < hogs {
                loads.push(Load::start(Kind::Compute, 0)?);
            }
            trials.iter_mut().for_each(Trial::begin);
            for _ in 0..ROUNDS {
                for trial in &mut trials {
                    let (transport, setting) = (trial.work.transport.name(), trial.work.setting.name());
                    progress.step(&format!("{transport} {setting} {} {hogs} hogs", preempt.name()));
                    trial.round(&machine, &mut loads, traffic)?;
                }
            }
            report.rows.extend(trials.iter().map(|trial| row(trial, preempt, hogs)));
            if (preempt, hogs) == (Preempt::Lazy, QUICK_HOGS) {
                report.claims.extend(bars(&trials));
            }
        }
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 5)
            .with("messages", traffic.count * ROUNDS)
            .with("rounds", ROUNDS)
            .with("futex_rtt_us", decimals(futex, 1))
            .with("eventfd_rtt_us", decimals(eventfd, 1));
        Ok(report)
    }
}

/// What there is to measure, six hogs under lazy preemption first.
fn cells(params: &Params) -> Vec<(Preempt, usize)> {
    let all = Preempt::ALL.iter().flat_map(|preempt| HOGS.map(|hogs| (*preempt, hogs)));
    let mut cells: Vec<_> = all
        .filter(|(preempt, (name, hogs))| {
            let quick = (*preempt, *hogs) == (Preempt::Lazy, QUICK_HOGS);
            (quick || !params.quick) && params.keeps("preempt", preempt.name()) && params.keeps("hogs", name)
        })
        .map(|(preempt, (_, hogs))| (preempt, hogs))
        .collect();
    cells.sort_by_key(|cell| *cell != (Preempt::Lazy, QUICK_HOGS));
    cells
}

/// What it takes to wake each other in turns, by a futex and by an eventfd, microseconds: what a thread that asks for a boost pays
/// for sleeping on a descriptor.
fn wake_ups() -> anyhow::Result<[f64; 2]> {
    let cpus = CpuPair { caller: Cpu(1), server: Cpu(0) };
    let mut both = [Recorder::new(), Recorder::new()];
    let [futex, eventfd] = &mut both;
    floor::futex(cpus, FLOOR, futex)?;
    floor::eventfd(cpus, FLOOR, eventfd)?;
    Ok(both.map(|recorder| approximate(recorder.sample().p50_ns) / 1e3))
}

fn row(trial: &Trial, preempt: Preempt, hogs: usize) -> Fields {
    let row = Fields::default()
        .with("transport", trial.work.transport.name())
        .with("setting", trial.work.setting.name())
        .with("preempt", preempt.name())
        .with("hogs", hogs);
    trial.counted(trial.columns(row, |_| true))
}

/// The bounds that we set ourselves.
fn bars(trials: &[Trial]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (transport, least, [to_fifo, to_off]) in LEAST_TO_OFF {
        let of = |setting| {
            let mut those = trials.iter().filter(|trial| trial.work.transport == transport);
            those.find(|trial| trial.work.setting == setting)
        };
        let Some(flagged) = of(Setting::Module) else { continue };
        let module = flagged.p90_by_round();
        let ratio = |upper: &[f64], lower: &[f64]| {
            median(upper.iter().zip(lower).map(|(upper, lower)| upper / lower))
        };
        if let Some(fifo) = of(Setting::Fifo) {
            let measured = ratio(&module, &fifo.p90_by_round());
            claims.push(Claim {
                id: to_fifo,
                text: format!(
                    "{}: flagged, p90 is at most {MOST_TO_FIFO} of always-FIFO's (median of {ROUNDS} rounds)",
                    transport.name()
                ),
                published: json!(MOST_TO_FIFO),
                measured: decimals(measured, 2),
                holds: measured <= MOST_TO_FIFO,
            });
        }
        if let Some(off) = of(Setting::Off) {
            let measured = ratio(&off.p90_by_round(), &module);
            claims.push(Claim {
                id: to_off,
                text: format!("{}: flagged, p90 is at least {least} times better than without (median of {ROUNDS} rounds)", transport.name()),
                published: json!(least),
                measured: decimals(measured, 1),
                holds: measured >= least,
            });
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_six_hogs_under_lazy_preemption() {
        let mut params = Params::new();
        assert_eq!(cells(&params).len(), 6);
        assert_eq!(cells(&params)[0], (Preempt::Lazy, 6));
        params.quick = true;
        assert_eq!(cells(&params), [(Preempt::Lazy, 6)]);
        params.choose("hogs", vec!["20".into()]);
        assert!(cells(&params).is_empty());
    }

    #[test]
    fn it_asks_for_the_lab_with_the_module() {
        let lab = Handlers.lab(&Params::new()).unwrap().unwrap();
        assert_eq!((lab.cpus, lab.virtual_time, lab.module), (2, true, Some("kernel/expedite")));
    }
}

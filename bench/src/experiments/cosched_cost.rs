//! `cosched-cost`: the cost of coscheduling by a daemon, and how late its decisions are.

use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::diag::{Diag, Key};
use pronto_coschedule::group::Members;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_expedite::schedule;
use pronto_sched_policy::policy::share::Share;
use serde_json::Value;

use crate::claim::Claim;
use crate::clock;
use crate::experiment::{Experiment, Rounds, Run};
use crate::params::{Axis, Choice as _, choices};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};

/// One thread reads the queues of idle connections of this process. The decision is about a process of its own.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-cost",
    question: "What does coscheduling by a daemon cost, and how late are its decisions?",
    takes: [30, 8],
    paper: Some("coscheduling"),
    figure: Some("2"),
    about: "CPU time to read the queues of 1,000 sockets, of all or of a group; time from data in a queue to the weight of its process",
    axes: &[Axis::new("measure", "Only these", Measure::NAMES)],
    rounds: [Rounds::new(10, 200), Rounds::new(4, 50)],
    claims: &["S13", "S13-ours"],
    run,
    ..Experiment::DEFAULT
};

choices! {
    /// The measured quantity.
    enum Measure {
        /// Time to read queues.
        Queues = "queues",
        /// Time until a decision.
        Decision = "decision",
    }
}

/// Sockets of the machine: both ends of as many connections as half of them.
const SOCKETS: usize = 1_000;
/// Sockets of the groups whose queues are read.
const GROUPS: [usize; 3] = [10, 100, SOCKETS];

/// Periods of the samples: of all sockets, and of those of a group.
const ALL_PERIOD: Duration = Duration::from_millis(100);
const GROUP_PERIOD: Duration = Duration::from_millis(10);

/// Largest share of a CPU that is not too much, percent. Chosen by us; no source.
const ENOUGH: f64 = 1.0;

/// Smallest number of sockets of a group that can be read every 10 ms for [`ENOUGH`]: those of a rank of a job of 33. Chosen by us; no source.
const SOCKETS_WITHIN: f64 = 32.0;

/// A way to read queues, with the time that it takes.
struct Row {
    /// Sockets of the group; `None` for all sockets of the machine.
    group: Option<usize>,
    times: Recorder,
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let trials = TRIALS[usize::from(run.params.quick)];
    let measures = Measure::kept(run.params, "measure");
    let mut report = Report::default();
    if measures.contains(&Measure::Queues) {
        let rows = queues(run)?;
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
    }
    if measures.contains(&Measure::Decision) {
        match decisions(trials)? {
            Some(times) => report.rows.push(decision_fields(&times)),
            None => report.note("skipped: decisions: this user may not lower nice values"),
        }
    }
    report.params = run.fields().with("sockets", SOCKETS).with("policy", "pred").with("decisions", trials);
    report.note(
        "times are CPU time of the reading thread; those of decisions are real time, with a period of 10 ms",
    );
    Ok(report)
}

/// Measures the time to read the queues of all sockets, and of groups.
fn queues(run: &mut Run<'_>) -> anyhow::Result<Vec<Row>> {
    let _connections = connections()?;
    let mut diag = Diag::open()?;
    let own = own_sockets(&mut diag)?;
    let groups = core::iter::once(None).chain(GROUPS.map(Some));
    let mut rows: Vec<_> = groups.map(|group| Row { group, times: Recorder::new() }).collect();
    run.begin(rows.len());
    run.in_turns(
        &mut rows,
        |row| row.group.map_or_else(|| "all".to_owned(), |group| format!("group of {group}")),
        |row, budget| {
            let begun = clock::now();
            row.times.as_round(|times| {
                while begun.elapsed() < budget {
                    let before = clock::thread_ns();
                    read(&mut diag, &own, row.group)?;
                    let took = Duration::from_nanos(clock::thread_ns() - before);
                    times.record_batch(1, took);
                    times.record_single(took);
                }
                Ok(())
            })
        },
    )?;
    Ok(rows)
}

/// Reads the queues of all sockets, or of the first `group` ones.
fn read(diag: &mut Diag, own: &[Key], group: Option<usize>) -> anyhow::Result<()> {
    let mut seen = 0;
    match group {
        None => diag.all(|_| seen += 1)?,
        Some(group) => diag.some(&own[..group], |_| seen += 1)?,
    }
    anyhow::ensure!(seen >= group.unwrap_or(SOCKETS), "only {seen} sockets were seen");
    Ok(())
}

/// Makes idle connections of this process.
fn connections() -> anyhow::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port for connections")?;
    let address = listener.local_addr()?;
    let connect = |_| Ok((TcpStream::connect(address)?, listener.accept()?.0));
    (0..SOCKETS / 2)
        .map(connect)
        .collect::<std::io::Result<_>>()
        .context("making connections (RLIMIT_NOFILE?)")
}

/// Returns the connected TCP sockets of this process.
fn own_sockets(diag: &mut Diag) -> anyhow::Result<Vec<Key>> {
    let files = pronto_expedite::process::open_files(std::process::id())?;
    let mut own = Vec::new();
    diag.all(|socket| {
        let is_connected = socket.connection.is_some_and(|connection| connection.remote.port() != 0);
        if is_connected && files.iter().any(|file| file.number == socket.inode) {
            own.push(socket.key);
        }
    })?;
    anyhow::ensure!(own.len() >= SOCKETS, "{} sockets were found", own.len());
    Ok(own)
}

impl Row {
    const fn period(&self) -> Duration {
        if self.group.is_none() { ALL_PERIOD } else { GROUP_PERIOD }
    }

    /// Returns the share of a CPU, percent.
    fn share(&self) -> f64 {
        self.times.sample().mean_ns * 100.0 / self.period().as_secs_f64() / 1e9
    }

    fn fields(&self) -> Fields {
        let sample = self.times.sample();
        Fields::default()
            .with("measure", Measure::Queues.name())
            .with("of", if self.group.is_none() { "all" } else { "group" })
            .with("sockets", self.group.unwrap_or(SOCKETS))
            .with("p50_us", us(sample.p50_ns))
            .with("p99_us", us(sample.p99_ns))
            .with("period_ms", self.period().as_secs_f64() * 1e3)
            .with("cpu_percent", decimals(self.share(), 3))
            .with_aa(&sample)
    }
}

/// The paper's statement holds if reading all sockets takes more than is enough; ours, if reading a hundred takes less.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let share = |group| rows.iter().find(|row| row.group == group).map_or(0.0, Row::share);
    let (all, hundred) = (share(None), share(Some(GROUPS[1])));
    // Each socket takes about the same.
    let within = approximate(GROUPS[1] as u64) * ENOUGH / hundred;
    let detail = "percent of a CPU, user-space daemon; it holds if this is above the bar";
    vec![
        Claim::new("S13", detail, decimals(all, 3), all > ENOUGH).bar(ENOUGH),
        Claim::at_least("S13-ours", "sockets, from the time of a group of 100", SOCKETS_WITHIN, within, 0),
    ]
}

/// Decisions of a full and of a quick run.
const TRIALS: [u32; 2] = [200, 40];

/// A process that never reads its connection.
struct Reader {
    child: Child,
    /// The end that is written to.
    ours: TcpStream,
    /// A duplicate of the process's own socket, by which its queue is emptied.
    theirs: TcpStream,
    state: PathBuf,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.state);
    }
}

impl Reader {
    fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let theirs = listener.accept()?.0;
        let child =
            Command::new("cat").stdin(Stdio::piped()).stdout(OwnedFd::from(theirs.try_clone()?)).spawn()?;
        let state = std::env::temp_dir()
            .join(format!("pronto-bench-coschedule-{}", ours.as_raw_fd() + child.id().cast_signed()));
        Ok(Self { child, ours, theirs, state })
    }

    fn nice(&self) -> i32 {
        schedule::nice(self.child.id().cast_signed()).unwrap_or(0)
    }
}

/// Bytes of a message: enough for a nice value.
const MESSAGE: usize = 32 << 10;

/// Measures the time from data in a queue to the nice value of its process. `None` if this user may not lower nice values.
fn decisions(trials: u32) -> anyhow::Result<Option<Recorder>> {
    let mut reader = Reader::start().context("a process to coschedule")?;
    let settings = Settings {
        policy: Policy::Predictive,
        period: GROUP_PERIOD,
        past: Past::Fixed(Share::NONE),
        most: Settings::MOST,
        actuator: Choice::Only(ActuatorKind::Nice),
        groups: vec![Group { name: "reader".into(), members: Members::Family(reader.child.id()) }],
        state: reader.state.clone(),
    };
    let Ok((mut coscheduler, _)) = Coscheduler::begin(settings) else { return Ok(None) };
    let mut times = Recorder::new();
    let mut message = vec![0; MESSAGE];
    for trial in 0..trials {
        // The queue is filled at another part of the period each time.
        let phase = GROUP_PERIOD * (trial % 10) / 10;
        clock::pause(GROUP_PERIOD - phase);
        reader.ours.write_all(&message)?;
        let filled = clock::now();
        clock::pause(phase);
        let deadline = 100;
        let mut ticks = 0;
        while reader.nice() == 0 {
            if ticks > 0 {
                clock::pause(GROUP_PERIOD);
            }
            coscheduler.tick();
            ticks += 1;
            anyhow::ensure!(ticks < deadline, "data in a queue do not change the weight");
        }
        times.record_single(filled.elapsed());
        reader.theirs.read_exact(&mut message)?;
        while reader.nice() != 0 {
            coscheduler.tick();
        }
    }
    Ok(Some(times))
}

fn decision_fields(times: &Recorder) -> Fields {
    Fields::default()
        .with("measure", Measure::Decision.name())
        .with("of", Value::Null)
        .with("sockets", 1)
        .with("p50_us", us(times.quantile_ns(0.5)))
        .with("p99_us", us(times.quantile_ns(0.99)))
        .with("period_ms", GROUP_PERIOD.as_secs_f64() * 1e3)
        .with("cpu_percent", Value::Null)
        .with("aa", Value::Null)
}

/// Returns nanoseconds as microseconds.
fn us(ns: u64) -> Value {
    decimals(approximate(ns) / 1e3, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(group: Option<usize>, micros: u64) -> Row {
        let mut times = Recorder::new();
        times.record_batch(1, Duration::from_micros(micros));
        times.record_single(Duration::from_micros(micros));
        Row { group, times }
    }

    #[test]
    fn the_statements_can_fail() {
        let verdicts = |all, hundred| {
            let rows = [row(None, all), row(Some(100), hundred)];
            claims(&rows).iter().map(Claim::holds).collect::<Vec<_>>()
        };
        // 1 % is 1,000 us of 100 ms; 32 sockets at 3 us are 96 us of 10 ms.
        assert_eq!(verdicts(500, 300), [false, true]);
        assert_eq!(verdicts(2_000, 500), [true, false]);
    }

    #[test]
    fn decisions_follow_the_queue() {
        let Some(times) = decisions(10).unwrap() else {
            return pronto_skip::because("this user may not lower nice values");
        };
        assert!(times.max_ns() > 0);
    }
}

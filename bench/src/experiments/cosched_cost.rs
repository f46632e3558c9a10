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
use pronto_coschedule::sensor::{Choice as Means, SenseError, Sensor};
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::socket::Socket;
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
    about: "CPU time to read the queues of 1,000 sockets, of all or of a group, by sock_diag and by BPF; time from data in a queue to the weight of its process",
    axes: &[Axis::new("measure", "Only these", Measure::NAMES)],
    rounds: [Rounds::new(10, 200), Rounds::new(4, 50)],
    claims: &["S13", "S13-ours", "S13-bpf"],
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

/// A way to read queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// sock_diag, all sockets of the machine.
    All,
    /// sock_diag, `n` sockets of a group.
    Group(usize),
    /// BPF, all sockets of this process.
    Bpf,
}

/// A way to read queues, with the time that it takes.
struct Row {
    way: Way,
    times: Recorder,
}

/// The means of all ways.
struct Sensors {
    diag: Diag,
    own: Vec<Key>,
    /// `None` if this machine does not allow it.
    bpf: Option<Sensor>,
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let trials = TRIALS[usize::from(run.params.quick)];
    let measures = Measure::kept(run.params, "measure");
    let mut report = Report::default();
    if measures.contains(&Measure::Queues) {
        let (rows, refused) = queues(run)?;
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        if let Some(refused) = refused {
            report.note(format!("skipped: queues by BPF: {refused}"));
        }
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

/// Measures the time to read queues in each way. Returns the reason if BPF is not possible here, too.
fn queues(run: &mut Run<'_>) -> anyhow::Result<(Vec<Row>, Option<SenseError>)> {
    let connections = connections()?;
    let mut diag = Diag::open()?;
    let own = own_sockets(&mut diag)?;
    let (bpf, refused) = match Sensor::new(&Means::Bpf(Means::PROGRAM.into())) {
        Ok(sensor) => (Some(sensor), None),
        Err(refused) => (None, Some(refused)),
    };
    let mut sensors = Sensors { diag, own, bpf };
    let mut ways = vec![Way::All];
    ways.extend(GROUPS.map(Way::Group));
    if let Some(sensor) = &mut sensors.bpf {
        let failed = sensor.scan(&[std::process::id()].into());
        anyhow::ensure!(failed.is_empty(), "BPF: {failed:?}");
        check(sensor, &connections)?;
        ways.push(Way::Bpf);
    }
    let mut rows: Vec<_> = ways.into_iter().map(|way| Row { way, times: Recorder::new() }).collect();
    run.begin(rows.len());
    run.in_turns(
        &mut rows,
        |row| format!("{:?}", row.way).to_lowercase(),
        |row, budget| {
            let begun = clock::now();
            row.times.as_round(|times| {
                while begun.elapsed() < budget {
                    let before = clock::thread_ns();
                    sensors.read(row.way)?;
                    let took = Duration::from_nanos(clock::thread_ns() - before);
                    times.record_batch(1, took);
                    times.record_single(took);
                }
                Ok(())
            })
        },
    )?;
    Ok((rows, refused))
}

/// Checks that a sample finds data in one of the connections, and none after it was read: samples of idle ones could be those of a sensor
/// that sees nothing.
fn check(sensor: &mut Sensor, connections: &[(TcpStream, TcpStream)]) -> anyhow::Result<()> {
    let (ours, theirs) = connections.last().context("a connection")?;
    let (mut written, mut read) = (ours, theirs);
    let (address, remote) = (theirs.local_addr()?, theirs.peer_addr()?);
    let mut received = || {
        sensor.sample()?;
        let sockets = sensor.sockets(std::process::id());
        let ends = |socket: &Socket| {
            socket.connection.is_some_and(|seen| (seen.local, seen.remote) == (address, remote))
        };
        let found = sockets.into_iter().find(ends).context("BPF reports no such connection")?;
        anyhow::Ok(found.occupancy.received.bytes)
    };
    written.write_all(&[0; 100])?;
    // Data may take a moment, even over the loopback device.
    let begun = clock::now();
    while received()? < 100 {
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(10), "BPF sees no data");
    }
    read.read_exact(&mut [0; 100])?;
    anyhow::ensure!(received()? == 0, "BPF sees data that were read");
    Ok(())
}

impl Sensors {
    /// Reads queues in one way.
    fn read(&mut self, way: Way) -> anyhow::Result<()> {
        let mut seen = 0;
        match (way, &mut self.bpf) {
            (Way::Bpf, Some(sensor)) => {
                sensor.sample()?;
                seen = sensor.len();
            }
            (Way::Group(group), _) => self.diag.some(&self.own[..group], |_, _| seen += 1)?,
            (Way::All | Way::Bpf, _) => self.diag.all(|_, _| seen += 1)?,
        }
        anyhow::ensure!(seen >= way.sockets(), "only {seen} sockets were seen");
        Ok(())
    }
}

impl Way {
    const fn sockets(self) -> usize {
        match self {
            Self::Group(group) => group,
            Self::All | Self::Bpf => SOCKETS,
        }
    }

    const fn period(self) -> Duration {
        match self {
            Self::All => ALL_PERIOD,
            Self::Group(_) | Self::Bpf => GROUP_PERIOD,
        }
    }
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
    diag.all(|key, socket| {
        let is_connected = socket.connection.is_some_and(|connection| connection.remote.port() != 0);
        if is_connected && files.iter().any(|file| file.number == socket.inode) {
            own.push(key);
        }
    })?;
    anyhow::ensure!(own.len() >= SOCKETS, "{} sockets were found", own.len());
    Ok(own)
}

impl Row {
    /// Returns the share of a CPU, percent.
    fn share(&self) -> f64 {
        self.times.sample().mean_ns * 100.0 / self.way.period().as_secs_f64() / 1e9
    }

    /// Returns the sockets that [`ENOUGH`] of a CPU reads in each period, if each takes the same.
    fn sockets_within(&self) -> f64 {
        approximate(self.way.sockets() as u64) * ENOUGH / self.share()
    }

    fn fields(&self) -> Fields {
        let sample = self.times.sample();
        Fields::default()
            .with("measure", Measure::Queues.name())
            .with("by", if self.way == Way::Bpf { "bpf" } else { "sock_diag" })
            .with("of", if self.way == Way::All { "all" } else { "group" })
            .with("sockets", self.way.sockets())
            .with("p50_us", us(sample.p50_ns))
            .with("p99_us", us(sample.p99_ns))
            .with("period_ms", self.way.period().as_secs_f64() * 1e3)
            .with("cpu_percent", decimals(self.share(), 3))
            .with_aa(&sample)
    }
}

/// The paper's statement holds if reading all sockets takes more than is enough; ours, if enough sockets of a group can be read.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |way| rows.iter().find(|row| row.way == way);
    let all = of(Way::All).map_or(0.0, Row::share);
    let hundred = of(Way::Group(GROUPS[1])).map_or(0.0, Row::sockets_within);
    let detail = "percent of a CPU, user-space daemon; it holds if this is above the bar";
    let mut claims = vec![
        Claim::new("S13", detail, decimals(all, 3), all > ENOUGH).bar(ENOUGH),
        Claim::at_least("S13-ours", "sockets, from the time of a group of 100", SOCKETS_WITHIN, hundred, 0),
    ];
    claims.extend(of(Way::Bpf).map(|row| {
        let within = row.sockets_within();
        Claim::at_least("S13-bpf", "sockets, from the time of 1,000", approximate(SOCKETS as u64), within, 0)
    }));
    claims
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
        sensor: Default::default(),
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
        .with("by", "sock_diag")
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

    fn row(way: Way, micros: u64) -> Row {
        let mut times = Recorder::new();
        times.record_batch(1, Duration::from_micros(micros));
        times.record_single(Duration::from_micros(micros));
        Row { way, times }
    }

    #[test]
    fn the_statements_can_fail() {
        let verdicts = |all, hundred, bpf| {
            let rows = [row(Way::All, all), row(Way::Group(100), hundred), row(Way::Bpf, bpf)];
            claims(&rows).iter().map(Claim::holds).collect::<Vec<_>>()
        };
        // 1 % is 1,000 us of 100 ms, and 100 us of 10 ms; 32 sockets at 3 us are 96 us.
        assert_eq!(verdicts(500, 300, 99), [false, true, true]);
        assert_eq!(verdicts(2_000, 500, 120), [true, false, false]);
        assert_eq!(claims(&[row(Way::All, 500), row(Way::Group(100), 300)]).len(), 2, "without BPF");
    }

    #[test]
    fn decisions_follow_the_queue() {
        let Some(times) = decisions(10).unwrap() else {
            return pronto_skip::because("this user may not lower nice values");
        };
        assert!(times.max_ns() > 0);
    }
}

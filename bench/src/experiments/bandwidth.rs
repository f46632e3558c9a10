//! `bandwidth`: throughput of large payloads copied, by reference and decoded, next to a bare copy and read of the same memory.

use core::time::Duration;

use pronto_core::session::Doorbells;

use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::floor::{self, Footprint};
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, Placement, alone};
use crate::progress::Progress;
use crate::rdma::over::{self, Over, PROVIDER_HELP, PROVIDERS};
use crate::report::{Claim, Fields, Report, decimals};
use crate::traffic::blobs::{Blobs, Mode};
use crate::traffic::cost::Cost;
use crate::traffic::drive::Open;
use crate::traffic::speed::Speed;

/// The experiment. The receiver is a separate process that adds up every payload and sends the sum back. Rounds of the floor
/// and of each mode take turns.
#[derive(Debug)]
pub(crate) struct Bandwidth;

impl Experiment for Bandwidth {
    fn name(&self) -> &'static str {
        "bandwidth"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "throughput of large payloads copied, by reference and decoded, every byte read, next to memcpy + sum"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: PROVIDER_HELP, values: &PROVIDERS },
            Axis { column: "size", help: "Only these payload lengths, bytes", values: &SIZE_NAMES },
            Axis {
                column: "mode",
                help: "Only these ways",
                values: &["copied", "two-copies", "decoded", "reference"],
            },
            Axis {
                column: "window",
                help: "Only one at a time, or only pipelined",
                values: &["one", "pipelined"],
            },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        over::lab(params)
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let sizes: Vec<Size> = SIZES.into_iter().filter(|size| params.keeps("size", size.name)).collect();
        let modes: Vec<Mode> =
            Mode::ALL.into_iter().filter(|mode| params.keeps("mode", mode.name())).collect();
        let windows: Vec<Window> =
            Window::ALL.into_iter().filter(|window| params.keeps("window", window.name())).collect();
        let nodes = over::nodes(params)?;
        let every = over::all(params, nodes.as_ref());
        progress.begin(u64::from(rounds) * (every.len() * sizes.len() * windows.len()) as u64);
        let mut rows = Vec::new();
        for over in every {
            let bench = Bench { over, cpus, budget, modes: &modes };
            rows.extend(alone(cpus.caller, || bench.run(rounds, &sizes, &windows, progress))?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("receiver", "process of its own, pinned; stopped during rounds of the floor")
            .with("wait", "spin")
            .with("under_way_mib", UNDER_WAY >> 20)
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    bytes: usize,
    name: &'static str,
}

/// Number of payloads under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    One,
    Pipelined,
}

impl Window {
    const ALL: [Self; 2] = [Self::One, Self::Pipelined];

    const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Pipelined => "pipelined",
        }
    }

    fn open(self, size: Size) -> Open {
        Open(match self {
            Self::One => 1,
            Self::Pipelined => (UNDER_WAY / size.bytes).clamp(2, MOST_OPEN),
        })
    }
}

/// One transport.
struct Bench<'a> {
    over: Over<'a>,
    cpus: CpuPair,
    budget: Duration,
    modes: &'a [Mode],
}

/// One row: its rounds, and those of the floor.
#[derive(Clone, Debug)]
struct Row {
    provider: &'static str,
    size: Size,
    mode: Mode,
    window: Window,
    speed: Speed,
    floor: Speed,
    blobs: u64,
    cost: Cost,
}

impl Bench<'_> {
    fn run(
        &self,
        rounds: u32,
        sizes: &[Size],
        windows: &[Window],
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Row>> {
        let wait = Wait(pronto::WaitPolicy::Spin);
        let receiver = self.over.spawn(wait, self.cpus.server, Doorbells::Shared)?;
        let (_node, peer) = receiver.meet(wait)?;
        let mut rows = Vec::new();
        for (size, window) in sizes.iter().flat_map(|size| windows.iter().map(move |window| (*size, *window)))
        {
            let open = window.open(size);
            let blobs = Blobs::new(size.bytes, open)?;
            let mut floor = Speed::default();
            let (speed, cost) = (Speed::default(), Cost::default());
            let first = rows.len();
            rows.extend(self.modes.iter().map(|mode| {
                let (provider, mode, speed, floor) = (self.over.name(), *mode, speed.clone(), floor.clone());
                Row { provider, size, mode, window, speed, floor, blobs: 0, cost }
            }));
            for _ in 0..rounds {
                progress.step(&format!("{} {} B {}", self.over.name(), size.name, window.name()));
                let stopped = receiver.child.stop()?;
                let (bytes, time) = self.floor(size, open)?;
                floor.round(bytes, time);
                drop(stopped);
                for row in &mut rows[first..] {
                    let before = Cost::of_this_process()?;
                    let started = clock::now();
                    let sent = blobs.send(&peer, row.mode, open, self.budget)?;
                    row.speed.round(sent * size.bytes as u64, started.elapsed());
                    row.cost = row.cost.and(Cost::of_this_process()?.since(before));
                    row.blobs += sent;
                }
            }
            rows[first..].iter_mut().for_each(|row| row.floor = floor.clone());
        }
        Ok(rows)
    }

    /// Measures the bare transport of such a payload over the same amount of memory. A chunk of send memory is reused when its last
    /// buffer is free, so a stream covers twice the bytes under way. Long payloads sent one at a time walk through one chunk; short
    /// ones lie in the same cache lines of a thread arena. The floor of RDMA is a loopback socket of the same node.
    fn floor(&self, size: Size, open: Open) -> anyhow::Result<(u64, Duration)> {
        match self.over {
            Over::Here(Provider::Shm) => {
                let buffers = match open.0 {
                    1 if size.bytes > SHORT => CHUNK / size.bytes,
                    1 => 1,
                    open => 2 * open,
                };
                let footprint = Footprint { buffers, under_way: open.0 };
                floor::copy_and_sum(self.cpus, size.bytes, footprint, self.budget)
            }
            Over::Here(Provider::Tcp) | Over::Nodes(_) => {
                floor::tcp_stream(self.cpus, size.bytes, self.budget)
            }
        }
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        self.speed.per_second() / self.floor.per_second()
    }

    fn fields(&self) -> Fields {
        let (cpu_ns, _) = self.cost.each(self.blobs);
        Fields::default()
            .with("provider", self.provider)
            .with("size", self.size.bytes)
            .with("mode", self.mode.name())
            .with("window", self.window.name())
            .with("under_way", self.window.open(self.size).0)
            .with("gbytes_per_s", decimals(self.speed.per_second() / 1e9, 4))
            .with("aa", decimals(self.speed.a_to_a(), 2))
            .with("sender_cpu_ns", decimals(cpu_ns, 0))
            .with("floor", if self.provider == Provider::Shm.name() { "memcpy+sum" } else { "tcp-stream" })
            .with("floor_gbytes_per_s", decimals(self.floor.per_second() / 1e9, 4))
            .with("ratio", decimals(self.ratio(), 2))
    }
}

/// Evaluates the claims for which rows were measured.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let mib = |mode: Mode, window: Window| {
        rows.iter().find(|row| {
            (row.provider, row.mode, row.window, row.size.bytes)
                == (Provider::Shm.name(), mode, window, 1 << 20)
        })
    };
    let copied = mib(Mode::Copied, Window::Pipelined).map(|row| Claim {
        id: "B1",
        text:
            "shm, 1 MiB, pipelined, from private memory, read in place: throughput as a share of memcpy + sum"
                .into(),
        published: decimals(COPIED, 2),
        measured: decimals(row.ratio(), 2),
        holds: row.ratio() >= COPIED,
    });
    let [two, reference] = [Mode::TwoCopies, Mode::Reference].map(|mode| mib(mode, Window::One));
    let reference = two.zip(reference).map(|(two, reference)| {
        let times = reference.speed.per_second() / two.speed.per_second();
        Claim {
            id: "B2",
            text:
                "shm, 1 MiB, one at a time: by reference, read in place, as a multiple of the two-copy path"
                    .into(),
            published: decimals(REFERENCE, 1),
            measured: decimals(times, 2),
            holds: times >= REFERENCE,
        }
    });
    [copied, reference].into_iter().flatten().collect()
}

const SIZES: [Size; 3] = [
    Size { bytes: 4096, name: "4096" },
    Size { bytes: 64 << 10, name: "65536" },
    Size { bytes: 1 << 20, name: "1048576" },
];
const SIZE_NAMES: [&str; SIZES.len()] = [SIZES[0].name, SIZES[1].name, SIZES[2].name];

/// Bytes under way when pipelined: four of the longest payloads, one chunk of send memory.
const UNDER_WAY: usize = 4 << 20;
/// Maximum number of payloads under way: a session has slots for some more.
const MOST_OPEN: usize = 32;

/// The bars of the shared-memory path.
const COPIED: f64 = 0.9;
const REFERENCE: f64 = 3.0;

/// Length of a chunk of send memory, bytes, and the longest payload that lies in a thread arena.
const CHUNK: usize = 4 << 20;
const SHORT: usize = 32 << 10;

/// 48 rows take 45 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(75);

/// 48 rows take 8 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: Mode, window: Window, rate: u64) -> Row {
        let (mut speed, mut floor) = (Speed::default(), Speed::default());
        speed.round(rate, Duration::from_secs(1));
        floor.round(40_000_000_000, Duration::from_secs(1));
        let (provider, size) = (Provider::Shm.name(), SIZES[2]);
        Row { provider, size, mode, window, speed, floor, blobs: 1, cost: Cost::default() }
    }

    #[test]
    fn claims_are_ratios_within_the_run() {
        assert!(claims(&[]).is_empty());
        let rows = [
            row(Mode::Copied, Window::Pipelined, 37_000_000_000),
            row(Mode::TwoCopies, Window::One, 23_000_000_000),
            row(Mode::Reference, Window::One, 60_000_000_000),
        ];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("B1", true), ("B2", false)]);
        assert_eq!(rows[0].fields().value("ratio"), Some(&serde_json::json!(0.93)));
    }

    #[test]
    fn what_is_under_way_fits_one_chunk() {
        let open = SIZES.map(|size| Window::Pipelined.open(size).0);
        assert_eq!(open, [32, 32, 4]);
        assert_eq!(Window::One.open(SIZES[0]).0, 1);
    }
}

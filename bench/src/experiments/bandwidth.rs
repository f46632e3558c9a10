//! `bandwidth`: throughput of large payloads copied, by reference and decoded, next to a bare copy and read of the same memory.

use core::time::Duration;

use pronto::{Limits, Placement};
use pronto_core::session::Doorbells;

use crate::claim::Claim;
use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::floor::{self, Footprint};
use crate::params::{Axis, Choice as _, choices, names};
use crate::placement::{CpuPair, alone};
use crate::rdma::over::{self, Over, PROVIDER_HELP, PROVIDERS};
use crate::report::{Fields, Report, decimals};
use crate::traffic::blobs::{Blobs, Mode};
use crate::traffic::cost::Cost;
use crate::traffic::drive::Open;
use crate::traffic::speed::Speed;

/// The receiver is a separate process that adds up every payload and sends the sum back. Rounds of the floor and of each mode take
/// turns.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "bandwidth",
    question: "How fast do large payloads move, every byte read?",
    takes: [50, 10],
    about: "throughput of large payloads copied, by reference and decoded, every byte read, next to memcpy + sum",
    axes: &[
        Axis::new("provider", PROVIDER_HELP, &PROVIDERS),
        Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES),
        Axis::new("mode", "Only these methods", Mode::NAMES),
        Axis::new("window", "Only one at a time, or only pipelined", Window::NAMES),
        Axis::new(
            "placement",
            "Only with this choice of send memory; circular is for copied payloads",
            Placed::NAMES,
        ),
    ],
    cpus: Cpus::Two,
    // 60 rows take 55 s, or 10 s in a quick run.
    rounds: [Rounds::new(10, 75), Rounds::new(4, 30)],
    lab: over::lab,
    claims: &["B1", "B2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let sizes = params.kept("size", SIZES, |size| size.name);
    let windows = Window::kept(params, "window");
    let placements = Placed::kept(params, "placement");
    let modes: Vec<_> = Mode::kept(params, "mode")
        .into_iter()
        .flat_map(|mode| placements.iter().map(move |placed| (mode, *placed)))
        .filter(|(mode, placed)| *placed == Placed::HotFirst || *mode == Mode::Copied)
        .collect();
    let nodes = over::nodes(params)?;
    let every = over::all(params, nodes.as_ref());
    run.begin(every.len() * sizes.len() * windows.len());
    let mut rows = Vec::new();
    for over in every {
        let bench = Bench { over, cpus: run.cpus, modes: &modes };
        rows.extend(alone(run.cpus.caller, || bench.run(run, &sizes, &windows))?);
    }
    Ok(Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; stopped during rounds of the floor")
            .with("wait", "spin")
            .with("under_way_mib", UNDER_WAY >> 20),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    bytes: usize,
    name: &'static str,
}

choices! {
    /// Number of payloads under way.
    enum Window {
        One = "one",
        Pipelined = "pipelined",
    }
}

choices! {
    /// Choice of a chunk of send memory for the next payload.
    enum Placed {
        /// The library's: the lowest chunk with room.
        HotFirst = "hot-first",
        /// The paper's: the next chunk in circular order.
        Circular = "circular",
    }
}

impl Placed {
    fn limits(self) -> Limits {
        let placement = match self {
            Self::HotFirst => Placement::HotFirst,
            Self::Circular => Placement::Circular,
        };
        Limits { placement, ..Limits::default() }
    }
}

impl Window {
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
    modes: &'a [(Mode, Placed)],
}

/// One row: its rounds, and those of the floor.
#[derive(Clone, Debug)]
struct Row {
    provider: &'static str,
    size: Size,
    mode: Mode,
    placed: Placed,
    window: Window,
    speed: Speed,
    floor: Speed,
    blobs: u64,
    cost: Cost,
}

impl Bench<'_> {
    fn run(&self, run: &mut Run<'_>, sizes: &[Size], windows: &[Window]) -> anyhow::Result<Vec<Row>> {
        let wait = Wait(pronto::WaitPolicy::Spin);
        let receiver = self.over.spawn(wait, run.cpus.server, Doorbells::Shared)?;
        // One sender for each placement.
        let meet = |(sender, placed): (u16, &Placed)| receiver.meet_with(sender, wait, placed.limits());
        let senders = (0..).zip(Placed::ALL).map(meet).collect::<anyhow::Result<Vec<_>>>()?;
        let mut rows = Vec::new();
        let cells = sizes.iter().flat_map(|size| windows.iter().map(move |window| (*size, *window)));
        for (size, window) in cells {
            let open = window.open(size);
            let blobs = Blobs::new(size.bytes, open)?;
            let mut floor = Speed::default();
            let row = |how: &(Mode, Placed)| Row::new(self.over.name(), size, *how, window);
            let mut of_cell: Vec<Row> = self.modes.iter().map(row).collect();
            for _ in 0..run.rounds {
                run.progress.step(&format!("{} {} B {}", self.over.name(), size.name, window.name()));
                let stopped = receiver.child.stop()?;
                let (bytes, time) = self.floor(size, open, run.budget)?;
                floor.round(bytes, time);
                drop(stopped);
                for row in &mut of_cell {
                    let before = Cost::of_this_process()?;
                    let started = clock::now();
                    let (_node, peer) = &senders[row.placed as usize];
                    let sent = blobs.send(peer, row.mode, open, run.budget)?;
                    row.speed.round(sent * size.bytes as u64, started.elapsed());
                    row.cost = row.cost.and(Cost::of_this_process()?.since(before));
                    row.blobs += sent;
                }
            }
            rows.extend(of_cell.into_iter().map(|row| Row { floor: floor.clone(), ..row }));
        }
        Ok(rows)
    }

    /// Measures the bare transport of such a payload over the same amount of memory. A chunk of send memory is reused when its last
    /// buffer is free, so a stream covers twice the bytes under way. Long payloads sent one at a time walk through one chunk; short
    /// ones lie in the same cache lines of a thread arena. The floor of RDMA is a loopback socket of the same node.
    fn floor(&self, size: Size, open: Open, budget: Duration) -> anyhow::Result<(u64, Duration)> {
        match self.over {
            Over::Here(Provider::Shm) => {
                let buffers = match open.0 {
                    1 if size.bytes > SHORT => CHUNK / size.bytes,
                    1 => 1,
                    open => 2 * open,
                };
                let footprint = Footprint { buffers, under_way: open.0 };
                floor::copy_and_sum(self.cpus, size.bytes, footprint, budget)
            }
            Over::Here(Provider::Tcp) | Over::Nodes(_) => floor::tcp_stream(self.cpus, size.bytes, budget),
        }
    }
}

impl Row {
    fn new(provider: &'static str, size: Size, (mode, placed): (Mode, Placed), window: Window) -> Self {
        let (speed, floor, cost) = (Speed::default(), Speed::default(), Cost::default());
        Self { provider, size, mode, placed, window, speed, floor, blobs: 0, cost }
    }

    fn ratio(&self) -> f64 {
        self.speed.per_second() / self.floor.per_second()
    }

    fn fields(&self) -> Fields {
        let (cpu_ns, _) = self.cost.each(self.blobs);
        Fields::default()
            .with("provider", self.provider)
            .with("size", self.size.bytes)
            .with("mode", self.mode.name())
            .with("placement", self.placed.name())
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
            (row.provider, row.mode, row.placed, row.window, row.size.bytes)
                == (Provider::Shm.name(), mode, Placed::HotFirst, window, 1 << 20)
        })
    };
    let copied = mib(Mode::Copied, Window::Pipelined)
        .map(|row| Claim::at_least("B1", "pipelined, read in place", COPIED, row.ratio(), 2));
    let [two, reference] = [Mode::TwoCopies, Mode::Reference].map(|mode| mib(mode, Window::One));
    let reference = two.zip(reference).map(|(two, reference)| {
        let times = reference.speed.per_second() / two.speed.per_second();
        Claim::at_least("B2", "shared memory, one at a time, read in place", REFERENCE, times, 2)
    });
    [copied, reference].into_iter().flatten().collect()
}

const SIZES: [Size; 3] = [
    Size { bytes: 4096, name: "4096" },
    Size { bytes: 64 << 10, name: "65536" },
    Size { bytes: 1 << 20, name: "1048576" },
];
const SIZE_NAMES: [&str; SIZES.len()] = names!(SIZES);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: Mode, window: Window, rate: u64) -> Row {
        let mut row =
            Row { blobs: 1, ..Row::new(Provider::Shm.name(), SIZES[2], (mode, Placed::HotFirst), window) };
        row.speed.round(rate, Duration::from_secs(1));
        row.floor.round(40_000_000_000, Duration::from_secs(1));
        row
    }

    #[test]
    fn claims_are_ratios_within_the_run() {
        assert!(claims(&[]).is_empty());
        let rows = [
            row(Mode::Copied, Window::Pipelined, 37_000_000_000),
            row(Mode::TwoCopies, Window::One, 23_000_000_000),
            row(Mode::Reference, Window::One, 60_000_000_000),
        ];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("B1", true), ("B2", false)]);
        let slower = [row(Mode::Copied, Window::Pipelined, 35_000_000_000)];
        assert!(!claims(&slower)[0].holds());
        let [circular] = slower.map(|row| Row { placed: Placed::Circular, ..row });
        assert!(claims(&[circular]).is_empty(), "the claim is about the library's own choice");
        assert_eq!(rows[0].fields().value("ratio"), Some(&serde_json::json!(0.93)));
    }

    #[test]
    fn payloads_under_way_fit_one_chunk() {
        let open = SIZES.map(|size| Window::Pipelined.open(size).0);
        assert_eq!(open, [32, 32, 4]);
        assert_eq!(Window::One.open(SIZES[0]).0, 1);
    }
}

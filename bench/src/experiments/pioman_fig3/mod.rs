//! `pioman-fig3`: the duration of a send while its receiver computes, with each engine, over Pronto and two MPIs.

mod claims;
mod row;

use core::time::Duration;
use std::collections::BTreeSet;

use anyhow::Context as _;
use pronto::progress::Engine;

use crate::echo::Provider;
use crate::experiment::{Cpus, Experiment, Run};
use crate::floor;
use crate::lab::Lab;
use crate::params::{Axis, Choice as _, names};
use crate::placement::{CpuPair, alone};
use crate::rdma::over::{self, Over};
use crate::rendezvous::mpi::Mpi;
use crate::rendezvous::receiver::{ENGINES, Pair, name};
use crate::report::{Fields, Report, decimals};
use row::{Row, limit_us};

/// Receiver and sender are processes; the receiver posts, computes on a CPU of its own, and waits.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pioman-fig3",
    question: "Does a send finish while its receiver computes?",
    takes: [260, 50],
    paper: Some("pioman"),
    figure: Some("Fig. 3, Table 1"),
    about: "a send into a posted buffer while its receiver computes, by engine, compared with Open MPI and MPICH",
    axes: &[
        Axis::new("system", "Only these systems", &["pronto", "openmpi", "mpich"]),
        Axis::new("provider", over::PROVIDER_HELP, &over::PROVIDERS),
        Axis::new("engine", "Only these engines of Pronto", &["none", "timer", "idle"]),
        Axis::new("size", "Only these message lengths, bytes", &SIZE_NAMES),
    ],
    examples: &[("--provider verbs", "over soft-RoCE, in the lab: judges P30.verbs")],
    cpus: Cpus::Two,
    lab: |params| Ok(over::lab(params)?.map(|lab| Lab { limit: LAB_LIMIT, ..lab })),
    claims: &["P33", "P30.tcp", "P30.verbs", "P32", "P8", "P29a", "P29b"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let (params, cpus) = (run.params, run.cpus);
    let mut report = Report::default();
    let [times, idle_times] = if params.quick { QUICK_TIMES } else { TIMES };
    let mut sizes = params.kept("size", SIZES, |size| size.name);
    let nodes = over::nodes(params)?;
    if nodes.is_some() {
        sizes.retain(|size| size.bytes <= LONGEST_IN_LAB);
    }
    let transports = over::all(params, nodes.as_ref());
    let computing = if nodes.is_some() { COMPUTING_IN_LAB } else { COMPUTING };
    let engines = params.kept("engine", ENGINES, |engine| name(*engine));
    let mut mpis: Vec<Mpi> = params.kept("system", Mpi::ALL.iter().copied(), |mpi| mpi.name());
    if nodes.is_some() {
        // The lab has none.
        mpis.clear();
    }
    run.begin(transports.len() * (engines.len() * sizes.len() + mpis.len()));
    let (mut rows, mut versions) = (Vec::new(), BTreeSet::new());
    for transport in transports {
        let floors = floors(transport, &sizes, cpus)?;
        if params.keeps("system", "pronto") {
            for engine in &engines {
                let times = if *engine == Engine::Idle { idle_times } else { times };
                let of_engine = Of { transport, engine: *engine, times, computing };
                let from_engine = of_engine.rows(&sizes, run)?;
                rows.extend(from_engine.into_iter().zip(&floors).map(|(row, floor)| row.over(*floor)));
            }
        }
        let Over::Here(provider) = transport else { continue };
        for mpi in &mpis {
            run.progress.step(&format!("{} {}", mpi.name(), provider.name()));
            let bytes: Vec<u64> = sizes.iter().map(|size| size.bytes).collect();
            match mpi.run(provider, &bytes, times, computing, cpus) {
                Ok(found) => {
                    versions.insert(format!("{} {}", mpi.name(), found.version));
                    let of_sizes = sizes.iter().zip(&floors).filter_map(|(size, floor)| {
                        let outcome = found.sizes.get(&size.bytes)?.outcome()?;
                        let place = (mpi.name(), provider.name(), "default");
                        Some(Row::new(place, *size, computing, outcome).over(*floor))
                    });
                    rows.extend(of_sizes);
                }
                Err(error) => {
                    report.note(format!("skipped: {} over {}: {error:#}", mpi.name(), provider.name()));
                }
            }
        }
    }
    report.params = Fields::default()
        .with("cpus", run.placement.numbers())
        .with("placement", "computation on the first; the sender and all progress on the second, but the timer's on the first")
        .with("compute_ms", decimals(computing.as_secs_f64() * 1e3, 0))
        .with("timer_ms", pronto_node::config::TIMER.0 / 1_000_000)
        .with("times", times)
        .with("idle_times", idle_times)
        .with("versions", versions.into_iter().collect::<Vec<_>>())
        .with("floor", "shm: memcpy of the message; tcp: the message through a loopback socket, one core each; verbs: none");
    report.claims = claims::of(&rows);
    report.rows = rows.iter().map(Row::fields).collect();
    report.note(
        "parked_bytes over tcp is the largest sampled number of bytes in the sockets of both ends, in separate repetitions (socket buffers of \
         256 KiB); null if no sample found any. Over shared memory, only eager messages are stored between the two buffers \
         (carries). It is not known for an MPI.",
    );
    Ok(report)
}

/// The rows of one receiver and its sender.
#[derive(Clone, Copy)]
struct Of<'a> {
    transport: Over<'a>,
    engine: Engine,
    times: u32,
    computing: Duration,
}

impl Of<'_> {
    fn rows(self, sizes: &[Size], run: &mut Run<'_>) -> anyhow::Result<Vec<Row>> {
        let Self { transport, engine, times, computing } = self;
        let place = ("pronto", transport.name(), name(engine));
        alone(run.cpus.server, || {
            let mut pair = Pair::start(transport, engine, run.cpus, computing)?;
            let carries = pair.carries()?;
            let mut rows = Vec::new();
            for size in sizes {
                run.progress.step(&format!("{} {} {} B", transport.name(), name(engine), size.name));
                let all = pair.repeat(size.bytes, times)?;
                let outcome = all.outcome().context("no repetition")?;
                let late = matches!(engine, Engine::Timer(_)).then(|| all.late(limit_us(outcome.alone_us)));
                rows.push(Row { carries, late, ..Row::new(place, *size, computing, outcome) });
            }
            Ok(rows)
        })
    }
}

/// Returns the bare transport time of a message without a protocol, in microseconds, by size; NaN where there is no such floor.
fn floors(transport: Over<'_>, sizes: &[Size], cpus: CpuPair) -> anyhow::Result<Vec<f64>> {
    let of_size = |size: &Size| {
        let bytes = usize::try_from(size.bytes)?;
        let (carried, time) = match transport {
            Over::Here(Provider::Shm) => {
                floor::copy_and_sum(cpus, bytes, floor::Footprint { buffers: 1, under_way: 1 }, FLOOR)?
            }
            Over::Here(Provider::Tcp) => floor::tcp_stream(cpus, bytes, FLOOR)?,
            Over::Nodes(_) => return Ok(f64::NAN),
        };
        Ok(time.as_secs_f64() * 1e6 / (carried as f64 / size.bytes as f64))
    };
    sizes.iter().map(of_size).collect()
}

/// A message length.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    name: &'static str,
}

const SIZES: [Size; 8] = [
    Size { bytes: 1 << 10, name: "1024" },
    Size { bytes: 4 << 10, name: "4096" },
    Size { bytes: 16 << 10, name: "16384" },
    Size { bytes: 64 << 10, name: "65536" },
    Size { bytes: 256 << 10, name: "262144" },
    Size { bytes: 1 << 20, name: "1048576" },
    Size { bytes: 4 << 20, name: "4194304" },
    Size { bytes: 16 << 20, name: "16777216" },
];
const SIZE_NAMES: [&str; SIZES.len()] = names!(SIZES);

/// Computation of the paper.
const COMPUTING: Duration = Duration::from_millis(50);
/// Computation and longest message in the lab, where emulated transfers take hundreds of times as long.
const COMPUTING_IN_LAB: Duration = Duration::from_secs(1);
const LONGEST_IN_LAB: u64 = 4 << 20;
/// Limit in seconds in the lab: 15 minutes, or 5 in a quick run, next to nothing else.
const LAB_LIMIT: u32 = 3600;
/// Repetitions of a row: of most rows, and of those with the idle engine, which a bar of 5 % judges and single transfers vary by more.
/// All systems take four minutes, or 45 s in a quick run.
const TIMES: [u32; 2] = [11, 25];
const QUICK_TIMES: [u32; 2] = [3, 7];
/// Measuring time of each size of the floor.
const FLOOR: Duration = Duration::from_millis(20);

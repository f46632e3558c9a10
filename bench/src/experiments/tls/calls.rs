//! Calls of several lengths by Pronto and by tonic.

use core::time::Duration;
use std::collections::BTreeSet;

use anyhow::Context as _;
use pronto::{Node, Peer};
use pronto_core::session::Evidence;

use super::row::{Calls, Row, Tls};
use crate::echo::{self, Server, Size, Wait};
use crate::experiment::Run;
use crate::floor;
use crate::params::Params;
use crate::peers::build::{self, Built};
use crate::peers::line_up::{OVER_TLS, Participant};
use crate::peers::round::Rounds;
use crate::placement::{CpuPair, alone};
use crate::report::Report;
use crate::sample::{Recorder, Sample};
use crate::tls::certificates::Certificates;

/// Lengths of payloads, as values of a column.
pub(super) const SIZES: [&str; 3] = ["32", "4096", "65536"];

/// The selected calls.
pub(super) struct Plan {
    waits: Vec<Wait>,
    sizes: Vec<&'static Size>,
    pronto: bool,
    tonic: Vec<Tonic>,
    built: Built,
}

/// A setting of tonic, and its rounds.
struct Tonic {
    one: &'static Participant,
    rounds: Rounds,
    /// Reason for the end of its rounds, if one failed.
    failed: Option<String>,
}

/// Rows that are measured together in a round.
enum Cell {
    /// Calls of Pronto of one length.
    Pronto(Box<Ours>),
    /// Calls of all lengths of the setting of tonic with this index.
    Tonic(usize),
}

/// Calls of Pronto of one length.
struct Ours {
    size: &'static Size,
    /// Calls over the connection without TLS, and over the one with it.
    calls: [Recorder; 2],
    floor: Recorder,
}

/// A server and a caller of Pronto.
struct Pair {
    tls: Tls,
    server: Server,
    peer: Peer,
    _caller: Node,
}

impl Plan {
    /// Selects the calls, and builds the program of tonic if it is needed. The report has a note if it cannot be built.
    pub(super) fn new(params: &Params, mut waits: Vec<Wait>, report: &mut Report) -> Self {
        if !params.keeps("what", "call") {
            waits.clear();
        }
        let known = echo::SIZES.iter().filter(|size| SIZES.contains(&size.name));
        let sizes = known.filter(|size| params.keeps("size", size.name)).collect();
        let blocks = waits.iter().any(|wait| wait.name() == "block");
        let others = if blocks && params.keeps("peer", "tonic") { OVER_TLS } else { &[] };
        let programs: BTreeSet<_> =
            others.iter().filter_map(|one| Some((one.program()?, one.peer))).collect();
        let built = build::all(&programs, report);
        let is_built = |one: &&Participant| one.program().is_some_and(|program| built.contains_key(&program));
        let tonic = |one| Tonic { one, rounds: Rounds::default(), failed: None };
        let tonic = others.iter().filter(is_built).map(tonic).collect();
        Self { waits, sizes, pronto: params.keeps("peer", "pronto"), tonic, built }
    }

    /// Returns the number of cells, each of which has a part in every round.
    pub(super) fn cells(&self) -> usize {
        self.waits.iter().map(|wait| self.cells_of(*wait).len()).sum()
    }

    /// Returns the version of tonic, if it was measured.
    pub(super) fn version(&self) -> Option<String> {
        self.tonic.iter().find_map(|tonic| tonic.rounds.version.clone())
    }

    fn cells_of(&self, wait: Wait) -> Vec<Cell> {
        let new = |size: &&'static Size| {
            let (calls, floor) = (Default::default(), Recorder::new());
            Cell::Pronto(Box::new(Ours { size, calls, floor }))
        };
        let pronto = if self.pronto { self.sizes.iter().map(new).collect() } else { Vec::new() };
        let others = if wait.name() == "block" { self.tonic.len() } else { 0 };
        pronto.into_iter().chain((0..others).map(Cell::Tonic)).collect()
    }

    /// Measures the selected calls, one waiting policy after the other.
    pub(super) fn measure(
        &mut self,
        run: &mut Run<'_>,
        certificates: &Certificates,
        report: &mut Report,
    ) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for wait in self.waits.clone() {
            let caller = run.cpus.caller;
            rows.extend(alone(caller, || self.of_wait(wait, run, certificates))?);
        }
        for Tonic { one, failed, .. } in &self.tonic {
            if let Some(why) = failed {
                report.note(format!("skipped: {}, {}: a round failed: {why}", one.peer, one.setting));
            }
        }
        Ok(rows)
    }

    fn of_wait(
        &mut self,
        wait: Wait,
        run: &mut Run<'_>,
        certificates: &Certificates,
    ) -> anyhow::Result<Vec<Row>> {
        let (mut cells, cpus) = (self.cells_of(wait), run.cpus);
        let pairs = if self.pronto { pairs(wait, cpus, certificates)? } else { Vec::new() };
        let (tonic, built) = (&mut self.tonic, &self.built);
        let label = |cell: &Cell| match cell {
            Cell::Pronto(ours) => format!("{} {}", wait.name(), ours.size.name),
            Cell::Tonic(_) => "tonic".to_owned(),
        };
        run.in_turns(&mut cells, label, |cell, budget| match cell {
            Cell::Pronto(ours) => {
                let Ours { size, calls, floor } = &mut **ours;
                of_pronto(size, &pairs, calls, budget)?;
                let _stopped =
                    pairs.iter().map(|pair| pair.server.child.stop()).collect::<Result<Vec<_>, _>>()?;
                floor::round(floor::of_calls("tcp", wait), cpus, HEADER + size.bytes, budget / 2, floor)
            }
            Cell::Tonic(index) => {
                tonic[*index].round(built, cpus, budget);
                Ok(())
            }
        })?;
        let (mut rows, mut floors) = (Vec::new(), Vec::new());
        for cell in &cells {
            if let Cell::Pronto(ours) = cell {
                let Ours { size, calls, floor } = &**ours;
                floors.push((size.bytes, floor.sample()));
                rows.extend(Tls::BOTH.into_iter().zip(calls).map(|(tls, call)| {
                    let (call, floor) = (call.sample(), floor.sample());
                    let (peer, size) = ("pronto", size.bytes);
                    Row::Calls(Calls { peer, setting: None, tls, wait: wait.name(), size, call, floor })
                }));
            }
        }
        if wait.name() == "block" {
            let sizes = &self.sizes;
            rows.extend(self.tonic.iter().flat_map(|tonic| tonic.rows(sizes, &floors)));
        }
        Ok(rows)
    }
}

impl Tonic {
    /// Measures a round, unless one has failed. A failure of another project does not end the run.
    fn round(&mut self, built: &Built, cpus: CpuPair, budget: Duration) {
        if self.failed.is_none()
            && let Err(error) = self.one.round(built, cpus, budget, &mut self.rounds)
        {
            self.failed = Some(format!("{error:#}"));
        }
    }

    /// Returns a row for each length. Floors are those of Pronto's rows.
    fn rows(&self, sizes: &[&Size], floors: &[(usize, Sample)]) -> Vec<Row> {
        if self.failed.is_some() {
            return Vec::new();
        }
        let row = |size: &&Size| {
            let floor = floors.iter().find(|(bytes, _)| *bytes == size.bytes);
            Row::Calls(Calls {
                peer: self.one.peer,
                setting: Some(self.one.setting),
                tls: Tls::With,
                wait: "block",
                size: size.bytes,
                call: self.rounds.calls_with(size.bytes).all.sample(),
                floor: floor.map(|(_, floor)| *floor).unwrap_or_default(),
            })
        };
        sizes.iter().map(row).collect()
    }
}

/// Starts a server and a caller for connections without TLS, and for those with it.
fn pairs(wait: Wait, cpus: CpuPair, certificates: &Certificates) -> anyhow::Result<Vec<Pair>> {
    let pair = |tls: Tls| -> anyhow::Result<_> {
        let folder = (tls == Tls::With).then(|| certificates.folder());
        let server = Server::spawn_trusting(folder, wait, cpus.server)?;
        let (caller, peer) = server.meet(wait)?;
        let info = caller.status().peers.first().and_then(|peer| peer.info).context("a caller has a peer")?;
        anyhow::ensure!(
            (info.evidence == Evidence::Certificate) == (tls == Tls::With),
            "the link {} TLS has the evidence {:?}",
            tls.name(),
            info.evidence
        );
        Ok(Pair { tls, server, peer, _caller: caller })
    };
    Tls::BOTH.into_iter().map(pair).collect()
}

/// Measures calls of one length over both connections. The server of the other connection is stopped.
fn of_pronto(size: &Size, pairs: &[Pair], calls: &mut [Recorder; 2], budget: Duration) -> anyhow::Result<()> {
    for (pair, call) in pairs.iter().zip(calls) {
        let others = pairs.iter().filter(|other| other.tls != pair.tls);
        let _stopped = others.map(|other| other.server.child.stop()).collect::<Result<Vec<_>, _>>()?;
        size.measure(&pair.peer, budget, call)?;
    }
    Ok(())
}

/// Length of the header in front of every payload, bytes.
const HEADER: usize = 24;

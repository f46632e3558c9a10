//! The participants, with their transports and settings.

use core::time::Duration;

use anyhow::Context as _;
use pronto::progress::Engine;

use super::ours::{self, Form, Source};
use super::raw::Raw;
use super::round::Rounds;
use super::{Cell, Read};
use crate::echo::Provider;
use crate::params::Choice as _;
use crate::peers::build::{Built, Program};
use crate::peers::start;
use crate::placement::CpuPair;

/// A participant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Participant {
    /// The project.
    pub(crate) peer: &'static str,
    /// `shm` or `tcp`.
    pub(crate) provider: &'static str,
    /// `copied`, `reference`, `heap` or `no-engine` for Pronto; for others `default`, `best`, or the transport.
    pub(crate) setting: &'static str,
    /// The memory in which its receiver reads.
    pub(crate) read: Read,
    /// Content of the setting.
    pub(crate) how: &'static str,
    means: Means,
}

#[derive(Clone, Copy, Debug)]
enum Means {
    Ours(Provider, Source, Engine),
    Raw(Raw),
    /// iceoryx2.
    Crate,
    /// UCX with these environment variables.
    Ucx(&'static [(&'static str, &'static str)]),
    /// MPI with these options of `mpirun`.
    Mpi(&'static [&'static str]),
    /// libfabric with this provider.
    Ofi(&'static str),
}

const fn posted([peer, provider, setting, how]: [&'static str; 4], means: Means) -> Participant {
    Participant { peer, provider, setting, read: Read::Posted, how, means }
}

const fn in_place([peer, provider, setting, how]: [&'static str; 4], means: Means) -> Participant {
    Participant { peer, provider, setting, read: Read::InPlace, how, means }
}

/// All participants. `raw` is the floor of its transport and memory.
pub(crate) const ALL: &[Participant] = &[
    posted(["raw", "shm", "best", "one core: memcpy, then the sum"], Means::Raw(Raw::OneCore)),
    posted(
        ["pronto", "shm", "copied", "copied into a region, then Peer::start_send"],
        Means::Ours(Provider::Shm, Source::Private, Engine::Idle),
    ),
    posted(
        ["pronto", "shm", "reference", "Peer::start_send from a region"],
        Means::Ours(Provider::Shm, Source::Region, Engine::Idle),
    ),
    posted(
        ["pronto", "shm", "heap", "Peer::start_send from the program's heap"],
        Means::Ours(Provider::Shm, Source::Heap, Engine::Idle),
    ),
    posted(
        [
            "pronto",
            "shm",
            "no-engine",
            "Peer::start_send from a region, Engine::None: only waiting threads poll",
        ],
        Means::Ours(Provider::Shm, Source::Region, Engine::None),
    ),
    posted(["ucx", "shm", "default", "tagged messages"], Means::Ucx(&[])),
    posted(
        ["ucx", "shm", "posix", "tagged messages, UCX_TLS=self,posix: through shared memory"],
        Means::Ucx(&[("UCX_TLS", "self,posix")]),
    ),
    posted(
        ["ucx", "shm", "cma", "tagged messages, UCX_TLS=self,posix,cma: copied by the kernel"],
        Means::Ucx(&[("UCX_TLS", "self,posix,cma")]),
    ),
    posted(["openmpi", "shm", "default", "mpirun -np 2"], Means::Mpi(&[])),
    posted(
        ["openmpi", "shm", "best", "pml ob1, btl self,vader with CMA, no yielding"],
        Means::Mpi(start::MPI_VADER),
    ),
    posted(["libfabric", "shm", "default", "provider shm"], Means::Ofi("shm")),
    posted(["raw", "tcp", "best", "a blocking stream, then the sum"], Means::Raw(Raw::Stream)),
    posted(
        ["pronto", "tcp", "copied", "copied into a region, then Peer::start_send"],
        Means::Ours(Provider::Tcp, Source::Private, Engine::Idle),
    ),
    posted(
        ["pronto", "tcp", "reference", "Peer::start_send from a region"],
        Means::Ours(Provider::Tcp, Source::Region, Engine::Idle),
    ),
    posted(
        ["pronto", "tcp", "heap", "Peer::start_send from the program's heap"],
        Means::Ours(Provider::Tcp, Source::Heap, Engine::Idle),
    ),
    posted(
        [
            "pronto",
            "tcp",
            "no-engine",
            "Peer::start_send from a region, Engine::None: only waiting threads poll",
        ],
        Means::Ours(Provider::Tcp, Source::Region, Engine::None),
    ),
    posted(["ucx", "tcp", "default", "tagged messages, UCX_TLS=tcp"], Means::Ucx(&[("UCX_TLS", "tcp")])),
    posted(
        ["ucx", "tcp", "best", "tagged messages, UCX_TLS=tcp on lo"],
        Means::Ucx(&[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")]),
    ),
    posted(["openmpi", "tcp", "default", "btl self,tcp"], Means::Mpi(start::MPI_TCP)),
    posted(
        ["openmpi", "tcp", "best", "pml ob1, btl self,tcp on lo, no yielding"],
        Means::Mpi(start::MPI_TCP_ON_LO),
    ),
    posted(["libfabric", "tcp", "default", "provider tcp"], Means::Ofi("tcp")),
    posted(["libfabric", "tcp", "best", "provider ofi_rxm over tcp"], Means::Ofi("tcp;ofi_rxm")),
    in_place(["raw", "shm", "best", "one core: memcpy; another: the sum"], Means::Raw(Raw::TwoCores)),
    in_place(
        ["pronto", "shm", "copied", "Peer::start copies into send memory"],
        Means::Ours(Provider::Shm, Source::Private, Engine::Idle),
    ),
    in_place(
        ["pronto", "shm", "reference", "Peer::start_from a region"],
        Means::Ours(Provider::Shm, Source::Region, Engine::Idle),
    ),
    in_place(
        ["iceoryx2", "shm", "best", "publish-subscribe, copied into a loan, both sides poll"],
        Means::Crate,
    ),
    in_place(
        ["raw", "tcp", "best", "a blocking stream, added up in pieces"],
        Means::Raw(Raw::StreamInPieces),
    ),
    in_place(
        ["pronto", "tcp", "copied", "Peer::start copies into send memory"],
        Means::Ours(Provider::Tcp, Source::Private, Engine::Idle),
    ),
    in_place(
        ["pronto", "tcp", "reference", "Peer::start_from a region"],
        Means::Ours(Provider::Tcp, Source::Region, Engine::Idle),
    ),
];

/// Forms that a project does not have, with the reason.
pub(crate) const WITHOUT: &[(&str, Read, &str)] = &[
    ("ucx", Read::InPlace, "it delivers messages of these lengths only into a buffer of the receiver"),
    ("openmpi", Read::InPlace, "it delivers messages only into a buffer of the receiver"),
    ("libfabric", Read::InPlace, "it delivers messages only into a buffer of the receiver"),
    ("iceoryx2", Read::Posted, "its receiver posts no buffers"),
];

impl Participant {
    /// Returns project, transport, setting and memory, for the progress and for notes.
    pub(crate) fn title(&self) -> String {
        format!("{} {} {} {}", self.peer, self.provider, self.setting, self.read.name())
    }

    /// Returns the program that it needs in addition to this one.
    pub(crate) const fn program(&self) -> Option<Program> {
        match self.means {
            Means::Ours(..) | Means::Raw(_) => None,
            Means::Crate => Some(Program::Crates),
            Means::Ucx(_) => Some(Program::BulkUcx),
            Means::Mpi(_) => Some(Program::BulkMpi),
            Means::Ofi(_) => Some(Program::BulkOfi),
        }
    }

    /// Returns the longest message that it can send, bytes, with the reason; `None` without a bound among the lengths.
    pub(crate) const fn longest(&self) -> Option<(usize, &'static str)> {
        match (self.means, self.read) {
            (Means::Ours(_, Source::Private, _), Read::InPlace) => {
                Some((CHUNK, "a loan does not exceed a chunk of send memory"))
            }
            _ => None,
        }
    }

    /// Runs one round, and adds it to `rounds`. Each cell is measured for `budget`.
    pub(crate) fn round(
        &self,
        built: &Built,
        cpus: CpuPair,
        cells: &[Cell],
        budget: Duration,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        match self.means {
            Means::Ours(provider, source, engine) => {
                let form = Form { provider, source, read: self.read, engine };
                return ours::round(form, cpus, cells, budget, rounds);
            }
            Means::Raw(raw) => return raw.round(cpus, cells, budget, rounds),
            _ => {}
        }
        let program = self.program().and_then(|program| built.get(&program));
        let program = program.context("its program was not built")?;
        let mut command = start::within(ROUND);
        match self.means {
            Means::Crate => command.arg(program).args(["bulk", self.peer]),
            Means::Ucx(variables) => command.envs(variables.iter().copied()).arg(program),
            Means::Mpi(options) => start::mpirun(&mut command, options)?.arg(program),
            Means::Ofi(provider) => command.arg(program).arg(provider),
            Means::Ours(..) | Means::Raw(_) => &mut command,
        };
        command.args([budget.as_millis().to_string(), cpus.caller.0.to_string(), cpus.server.0.to_string()]);
        command.args(cells.iter().map(|cell| cell.argument()));
        rounds.take(&start::output(&mut command)?, cells)
    }
}

/// Longer than a round of all cells takes on a busy machine.
const ROUND: Duration = Duration::from_secs(60);
/// Length of a chunk of send memory, bytes.
const CHUNK: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn participants_are_unique_and_each_has_its_floor() {
        let titles: BTreeSet<_> = ALL.iter().map(Participant::title).collect();
        assert_eq!(titles.len(), ALL.len());
        for one in ALL {
            let is_floor = |other: &&Participant| {
                (other.peer, other.provider, other.read) == ("raw", one.provider, one.read)
            };
            assert_eq!(ALL.iter().filter(is_floor).count(), 1, "{}", one.title());
            let is_without = WITHOUT.iter().any(|(peer, read, _)| (*peer, *read) == (one.peer, one.read));
            assert!(!is_without && !one.how.is_empty(), "{}", one.title());
        }
    }
}

//! The participants, with their transports and settings.

use core::time::Duration;
use pronto::WaitPolicy;

use super::build::{Built, Program};
use super::raw::Raw;
use super::round::Rounds;
use super::{ours, start};
use crate::echo::{Form, Provider, Wait};
use crate::placement::CpuPair;
use crate::traffic::cost::Cost;

/// A participant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Participant {
    /// The project.
    pub(crate) peer: &'static str,
    /// `shm` or `tcp`.
    pub(crate) provider: &'static str,
    /// `default`, `best`, another one that its documentation names (`tagged`, `place`, `into`), or `block` where the wait is the question.
    pub(crate) setting: &'static str,
    /// Content of the setting.
    pub(crate) how: &'static str,
    means: Means,
}

#[derive(Clone, Copy, Debug)]
enum Means {
    /// Pronto, with calls of this form if their payload is a page or longer.
    Ours(Provider, WaitPolicy, Form),
    Raw(Raw),
    Crate,
    /// UCX with messages of this kind, and these environment variables.
    Ucx(&'static str, &'static [(&'static str, &'static str)]),
    /// MPI with these options of `mpirun`.
    Mpi(&'static [&'static str]),
    /// libfabric with this provider, and messages sent with or without a completion.
    Ofi(&'static str, Sent),
}

/// How libfabric sends short messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// `fi_send`: a completion says when the buffer is free.
    Completed,
    /// `fi_inject`: the buffer is free on return.
    Injected,
}

const fn participant([peer, provider, setting, how]: [&'static str; 4], means: Means) -> Participant {
    Participant { peer, provider, setting, how, means }
}

/// Kinds of UCX messages, as arguments of its program.
const ACTIVE: &str = "am";
const TAGGED: &str = "tag";
const IN_PLACE: &str = "place";

/// All participants. `best` is the setting that the project's documentation or benchmark recommends for small messages on one host.
pub(crate) const ALL: &[Participant] = &[
    participant(["raw", "shm", "best", "a cache line there and back"], Means::Raw(Raw::CacheLine)),
    participant(
        ["pronto", "shm", "default", "adaptive waits"],
        Means::Ours(Provider::Shm, WaitPolicy::Adaptive, Form::Owned),
    ),
    participant(
        ["pronto", "shm", "best", "both sides spin"],
        Means::Ours(Provider::Shm, WaitPolicy::Spin, Form::Owned),
    ),
    participant(
        ["pronto", "shm", "into", "both sides spin; pages are received into memory of the caller"],
        Means::Ours(Provider::Shm, WaitPolicy::Spin, Form::Into),
    ),
    participant(
        ["pronto", "shm", "place", "both sides spin; pages are read in place and returned from there"],
        Means::Ours(Provider::Shm, WaitPolicy::Spin, Form::InPlace),
    ),
    participant(["iceoryx2", "shm", "default", "request-response, both sides poll"], Means::Crate),
    participant(["iceoryx2", "shm", "best", "publish-subscribe both ways, both sides poll"], Means::Crate),
    participant(["ucx", "shm", "default", "active messages"], Means::Ucx(ACTIVE, &[])),
    participant(
        ["ucx", "shm", "best", "active messages, UCX_TLS=self,posix"],
        Means::Ucx(ACTIVE, &[("UCX_TLS", "self,posix")]),
    ),
    participant(
        ["ucx", "shm", "tagged", "tagged messages into receives posted ahead, UCX_TLS=self,posix"],
        Means::Ucx(TAGGED, &[("UCX_TLS", "self,posix")]),
    ),
    participant(
        ["ucx", "shm", "place", "active messages, read in place and returned from there, UCX_TLS=self,posix"],
        Means::Ucx(IN_PLACE, &[("UCX_TLS", "self,posix")]),
    ),
    participant(["openmpi", "shm", "default", "mpirun -np 2"], Means::Mpi(&[])),
    participant(
        ["openmpi", "shm", "best", "pml ob1, btl self,vader, no yielding"],
        Means::Mpi(start::MPI_VADER),
    ),
    participant(["libfabric", "shm", "default", "provider shm"], Means::Ofi("shm", Sent::Completed)),
    participant(["libfabric", "shm", "best", "provider shm, fi_inject"], Means::Ofi("shm", Sent::Injected)),
    participant(["raw", "tcp", "best", "both sides spin on a socket"], Means::Raw(Raw::Spinning)),
    participant(["raw", "tcp", "block", "both sides block in read"], Means::Raw(Raw::Blocking)),
    participant(
        ["pronto", "tcp", "default", "adaptive waits"],
        Means::Ours(Provider::Tcp, WaitPolicy::Adaptive, Form::Owned),
    ),
    participant(
        ["pronto", "tcp", "best", "both sides spin"],
        Means::Ours(Provider::Tcp, WaitPolicy::Spin, Form::Owned),
    ),
    participant(
        ["pronto", "tcp", "block", "both sides block"],
        Means::Ours(Provider::Tcp, WaitPolicy::Block, Form::Owned),
    ),
    participant(
        ["tarpc", "tcp", "default", "bincode, tokio's runtime of many threads, a task a request"],
        Means::Crate,
    ),
    participant(["tarpc", "tcp", "best", "bincode, runtime of one thread, TCP_NODELAY"], Means::Crate),
    participant(["tonic", "tcp", "default", "tokio's runtime of many threads"], Means::Crate),
    participant(["tonic", "tcp", "best", "runtime of one thread"], Means::Crate),
    participant(
        ["ucx", "tcp", "default", "active messages, UCX_TLS=tcp"],
        Means::Ucx(ACTIVE, &[("UCX_TLS", "tcp")]),
    ),
    participant(
        ["ucx", "tcp", "best", "active messages, UCX_TLS=tcp on lo"],
        Means::Ucx(ACTIVE, &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")]),
    ),
    participant(
        ["ucx", "tcp", "tagged", "tagged messages into receives posted ahead, UCX_TLS=tcp on lo"],
        Means::Ucx(TAGGED, &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")]),
    ),
    participant(["openmpi", "tcp", "default", "btl self,tcp"], Means::Mpi(start::MPI_TCP)),
    participant(
        ["openmpi", "tcp", "best", "pml ob1, btl self,tcp on lo, no yielding"],
        Means::Mpi(start::MPI_TCP_ON_LO),
    ),
    participant(["libfabric", "tcp", "default", "provider tcp"], Means::Ofi("tcp", Sent::Completed)),
    participant(
        ["libfabric", "tcp", "best", "provider ofi_rxm over tcp, fi_inject"],
        Means::Ofi("tcp;ofi_rxm", Sent::Injected),
    ),
];

/// Participants of the experiment `tls`, next to Pronto. Both sides of a connection have certificates.
pub(crate) const OVER_TLS: &[Participant] = &[
    participant(["tonic", "tcp", "default-tls", "tokio's runtime of many threads, rustls"], Means::Crate),
    participant(["tonic", "tcp", "best-tls", "runtime of one thread, rustls"], Means::Crate),
];

impl Participant {
    /// Returns project, transport and setting, for the progress.
    pub(crate) fn title(&self) -> String {
        format!("{} {} {}", self.peer, self.provider, self.setting)
    }

    /// Returns the program that it needs in addition to this one.
    pub(crate) const fn program(&self) -> Option<Program> {
        match self.means {
            Means::Ours(..) | Means::Raw(_) => None,
            Means::Crate => Some(Program::Crates),
            Means::Ucx(..) => Some(Program::Ucx),
            Means::Mpi(_) => Some(Program::Mpi),
            Means::Ofi(..) => Some(Program::Ofi),
        }
    }

    /// Runs one round, and adds it to `rounds`.
    pub(crate) fn round(
        &self,
        built: &Built,
        cpus: CpuPair,
        budget: Duration,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let (before, slept) = Cost::with_children()?;
        self.carry_out(built, cpus, budget, rounds)?;
        let (after, wakes) = Cost::with_children()?;
        rounds.cost = rounds.cost.and(after.since(before));
        rounds.wakes += wakes.saturating_sub(slept);
        Ok(())
    }

    fn carry_out(
        &self,
        built: &Built,
        cpus: CpuPair,
        budget: Duration,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        match self.means {
            Means::Ours(provider, wait, form) => {
                return ours::round((provider, Wait(wait)), form, cpus, budget, rounds);
            }
            Means::Raw(raw) => return raw.round(cpus, budget, rounds),
            _ => {}
        }
        let program = self.program().and_then(|program| built.get(&program));
        let program = program.ok_or_else(|| anyhow::anyhow!("its program was not built"))?;
        // A round takes under a second.
        let mut command = start::within(Duration::from_secs(20));
        match self.means {
            Means::Crate => {
                command.arg(program).args([self.peer, self.setting]);
            }
            Means::Ucx(kind, variables) => {
                command.envs(variables.iter().copied()).arg(program).arg(kind);
            }
            Means::Mpi(options) => {
                start::mpirun(&mut command, options)?.arg(program);
            }
            Means::Ofi(provider, _) => {
                command.arg(program).arg(provider);
            }
            Means::Ours(..) | Means::Raw(_) => {}
        }
        command.args([budget.as_millis().to_string(), cpus.caller.0.to_string(), cpus.server.0.to_string()]);
        if matches!(self.means, Means::Ofi(_, Sent::Injected)) {
            command.arg("inject");
        }
        rounds.run(&mut command)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn participants_are_unique() {
        let names: BTreeSet<_> = ALL.iter().map(|one| (one.peer, one.provider, one.setting)).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|one| ["shm", "tcp"].contains(&one.provider) && !one.how.is_empty()));
    }
}

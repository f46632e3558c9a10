//! A job over one of the libraries, started and not yet begun.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::bed::TestBed;
use super::mpi::{self, MpiJob};
use super::rank::{App, Class, Ran, Ranks};
use crate::params::choices;

choices! {
    /// A library over which the ranks of a job communicate, and their way to wait.
    pub(crate) enum Library {
        /// Pronto; ranks that wait sleep.
        Pronto = "pronto",
        /// Open MPI; ranks that wait poll, and leave the CPU to others each time.
        MpiYields = "mpi",
        /// Open MPI; ranks that wait poll.
        MpiPolls = "mpi-polling",
    }
}

/// The programs of jobs.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    mpi: Option<PathBuf>,
}

impl Programs {
    /// Builds the programs that these libraries need. Programs for Pronto are this one.
    pub(crate) fn build(libraries: &[Library]) -> anyhow::Result<Self> {
        let needs_mpi = libraries.iter().any(|library| *library != Library::Pronto);
        Ok(Self { mpi: needs_mpi.then(mpi::program).transpose()? })
    }

    fn mpi(&self) -> anyhow::Result<&Path> {
        self.mpi.as_deref().context("no program with Open MPI was built")
    }
}

/// A job whose ranks wait for their start, on the nodes of [`App::places`].
#[derive(Debug)]
pub(crate) enum Job {
    Pronto(Ranks),
    Mpi(MpiJob),
}

impl Job {
    /// Starts the ranks.
    pub(crate) fn start(
        bed: &TestBed,
        programs: &Programs,
        library: Library,
        app: App,
        class: Class,
    ) -> anyhow::Result<Self> {
        let yields = match library {
            Library::Pronto => return Ok(Self::Pronto(Ranks::start(bed, app, class)?)),
            Library::MpiYields => true,
            Library::MpiPolls => false,
        };
        Ok(Self::Mpi(MpiJob::start(bed, programs.mpi()?, yields, app, class)?))
    }

    /// Returns the processes of the ranks, in their order.
    pub(crate) fn processes(&self) -> Vec<u32> {
        match self {
            Self::Pronto(ranks) => ranks.processes().collect(),
            Self::Mpi(job) => job.processes().collect(),
        }
    }

    /// Runs the job. Returns the results of the ranks.
    pub(crate) fn run(self) -> anyhow::Result<Vec<Ran>> {
        match self {
            Self::Pronto(ranks) => ranks.run(),
            Self::Mpi(job) => job.run(),
        }
    }
}

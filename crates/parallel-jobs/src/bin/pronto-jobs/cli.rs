//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use pronto::WaitPolicy;
use pronto_parallel_jobs::{is, mg};

/// Parallel jobs for measuring coscheduling: IS and MG of the NAS Parallel Benchmarks, and two synthetic programs.
///
/// Exits with code 0 if the result of each run was verified.
#[derive(Debug, Parser)]
#[command(name = "pronto-jobs", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) job: Job,
}

/// A job and its parameters.
#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Sort integer keys by their ranks (NPB IS)
    Is {
        /// Size of the problem
        #[arg(long, ignore_case = true, default_value = "S")]
        class: Class,
        #[command(flatten)]
        ranks: Ranks,
        #[command(flatten)]
        output: Output,
    },
    /// Solve a Poisson equation by multigrid V cycles (NPB MG)
    Mg {
        /// Size of the problem
        #[arg(long, ignore_case = true, default_value = "S")]
        class: Class,
        #[command(flatten)]
        ranks: Ranks,
        #[command(flatten)]
        output: Output,
    },
    /// Send messages from a master to slaves, every second of which replies
    MasterSlave {
        /// Messages to each slave
        #[arg(long, default_value_t = 1000)]
        iterations: u32,
        /// Length of each message, bytes
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=1 << 24))]
        bytes: u32,
        /// Computation of a slave for each message, in work units of calcula
        #[arg(long, default_value_t = 1)]
        units: u32,
        #[command(flatten)]
        ranks: Ranks,
        #[command(flatten)]
        output: Output,
    },
    /// Do floating-point work and count it, by default until SIGINT or SIGTERM
    Calcula {
        /// Number of work units
        #[arg(long)]
        units: Option<u64>,
        /// Time of the work, seconds
        #[arg(long, conflicts_with = "units")]
        seconds: Option<f64>,
        #[command(flatten)]
        output: Output,
    },
}

/// The ranks of a job and how they communicate.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ranks {
    /// Communication: over Pronto, or over Open MPI in processes that mpirun has started
    #[arg(long, value_enum, default_value = "pronto")]
    pub(crate) comm: CommKind,
    /// Number of ranks: 1, 2, 4 or 8, of master-slave 1 to 8. Over Pronto without --rank, all are started on this host
    #[arg(long, visible_alias = "local", value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// Be this rank of a job whose other ranks are started elsewhere
    #[arg(long, requires = "at")]
    pub(crate) rank: Option<usize>,
    /// Addresses of all ranks, such as tcp:10.0.0.1:7000 or shm:@job-0
    #[arg(long, value_delimiter = ',', value_name = "ADDR,ADDR", requires = "rank")]
    pub(crate) at: Vec<String>,
    /// Transport between ranks that are started on this host
    #[arg(long, value_enum, default_value = "shm", conflicts_with = "at")]
    pub(crate) over: Transport,
    /// Wait policy of a rank that waits for a message
    #[arg(long, value_enum, default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Permit TCP to other hosts, which is not encrypted
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// Maximum time that a rank waits for a message, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) patience: u64,
    /// Time of silence after which a rank is considered dead, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) liveness: u64,
    /// Change a key of is or a coefficient of mg, so that the verification must fail
    #[arg(long)]
    pub(crate) damage: bool,
    /// Process that started this rank, and whose end ends it
    #[arg(long, hide = true)]
    pub(crate) started_by: Option<i32>,
}

/// Form of the result, and the number of runs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Print one line of JSON for each run
    #[arg(long)]
    pub(crate) json: bool,
    /// Number of runs
    #[arg(long, default_value_t = 1)]
    pub(crate) repeat: u32,
}

/// Size of a problem of NPB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum Class {
    /// Small: for tests
    S,
    /// Workstation
    W,
    /// The class of the coscheduling paper
    A,
}

/// Kinds of communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommKind {
    /// Nodes of Pronto
    Pronto,
    /// Processes of Open MPI
    Mpi,
}

/// Transports of Pronto within a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Shared memory
    Shm,
    /// TCP over the loopback interface
    Tcp,
}

/// Wait policies of Pronto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Poll until the message is there
    Spin,
    /// Sleep immediately
    Block,
    /// Poll for about the cost of a wake-up, then sleep
    Adaptive,
}

impl From<Class> for is::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::S => Self::S,
            Class::W => Self::W,
            Class::A => Self::A,
        }
    }
}

impl From<Class> for mg::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::S => Self::S,
            Class::W => Self::W,
            Class::A => Self::A,
        }
    }
}

impl From<Wait> for WaitPolicy {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Adaptive => Self::Adaptive,
        }
    }
}

impl Job {
    /// Returns the name of the command.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Is { .. } => "is",
            Self::Mg { .. } => "mg",
            Self::MasterSlave { .. } => "master-slave",
            Self::Calcula { .. } => "calcula",
        }
    }

    /// Returns whether the job divides its data by two again and again, so that the number of ranks must be a power of two.
    pub(crate) const fn divides_by_two(&self) -> bool {
        matches!(self, Self::Is { .. } | Self::Mg { .. })
    }

    /// Returns the ranks, except of `calcula`, which has none.
    pub(crate) const fn ranks(&self) -> Option<&Ranks> {
        match self {
            Self::Is { ranks, .. } | Self::Mg { ranks, .. } | Self::MasterSlave { ranks, .. } => Some(ranks),
            Self::Calcula { .. } => None,
        }
    }

    /// Returns the form of the result.
    pub(crate) const fn output(&self) -> Output {
        match self {
            Self::Is { output, .. }
            | Self::Mg { output, .. }
            | Self::MasterSlave { output, .. }
            | Self::Calcula { output, .. } => *output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_classes_have_upper_and_lower_case() {
        for class in ["a", "A"] {
            let cli = Cli::try_parse_from(["pronto-jobs", "mg", "--class", class, "--local", "4"]).unwrap();
            let Job::Mg { class, ranks, .. } = cli.job else { panic!("another job") };
            assert_eq!((class, ranks.ranks, ranks.comm), (Class::A, Some(4), CommKind::Pronto));
        }
        assert!(Cli::try_parse_from(["pronto-jobs", "is", "--rank", "1"]).is_err(), "without addresses");
    }
}

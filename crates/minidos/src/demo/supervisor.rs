//! The order of a run: start the nodes, follow their work, settle the books, compare.

use core::time::Duration;
use std::io;
use std::process::ExitStatus;
use std::time::Instant;

use nix::errno::Errno;
use thiserror::Error;

use super::children::{Children, Heard};
use super::options::{Options, Transport};
use super::report::{Report, Run};
use super::scratch::Scratch;
use super::signals::Interrupts;
use crate::clock;
use crate::control::{BetweenHosts, Command, Found, NodeReport, Notice, Setup};
use crate::data::{DataError, Points};
use crate::kmeans::{self, Task};
use crate::page::PAGE_SIZE;

/// What a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The whole computation runs in one process, to compare with.
    Single,
    /// So many of all nodes listen.
    Listening(u16),
    /// So many of all nodes have met all others.
    Joined(u16),
    /// So many iterations are done.
    Iterated(u32),
    /// The work is done, and messages are counted.
    Settling,
}

/// Who wants to know how far a run is.
pub trait Progress {
    /// The run has come to this.
    fn at(&mut self, moment: &Moment);
}

/// Why there is no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The number of nodes is not one that is possible.
    #[error("{0} nodes: 1 to {max} are possible", max = Options::MAX_NODES)]
    Nodes(u16),
    /// There are no points.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The system refused what a supervisor needs.
    #[error("cannot start the nodes: {0}")]
    Start(#[from] io::Error),
    /// Signals cannot be held back.
    #[error("cannot take charge of signals: {0}")]
    Signals(#[from] Errno),
    /// A node ended, or was ended.
    #[error("node {node} ended while {doing}: {status}")]
    Ended {
        /// The node.
        node: u16,
        /// What the run was doing.
        doing: &'static str,
        /// How it ended.
        status: ExitStatus,
    },
    /// A node could not go on.
    #[error("node {node} failed while {doing}: {reason}")]
    Failed {
        /// The node.
        node: u16,
        /// What the run was doing.
        doing: &'static str,
        /// In the node's words.
        reason: String,
    },
    /// A node said something out of turn.
    #[error("node {node} said something unexpected while {doing}")]
    Unexpected {
        /// The node.
        node: u16,
        /// What the run was doing.
        doing: &'static str,
    },
    /// The time was over.
    #[error("not done after {} s, still {doing}", limit.as_secs())]
    Deadline {
        /// How long it could have taken.
        limit: Duration,
        /// What the run was doing.
        doing: &'static str,
    },
    /// SIGINT or SIGTERM came.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// What the run was doing.
        doing: &'static str,
    },
}

/// Runs the demo. All node processes have ended and all files are gone when it returns.
///
/// # Errors
/// [`DemoError`]; a run that ends with wrong books or a wrong result is a [`Report`] that says so.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report, DemoError> {
    if !(1..=Options::MAX_NODES).contains(&options.nodes) {
        return Err(DemoError::Nodes(options.nodes));
    }
    let points = options.source.load()?;
    let task = Task::new(points.rows(), points.dims);
    let mut supervisor = Supervisor {
        interrupts: Interrupts::hold_back()?,
        began: clock::now(),
        options,
        progress,
        doing: "starting",
        children: Children::new(),
    };
    supervisor.progress.at(&Moment::Single);
    let single = kmeans::run(&task, &points);
    let single_took = supervisor.began.elapsed();
    let scratch = Scratch::new()?;
    supervisor.start_nodes(&scratch, &points, task)?;
    let joined = clock::now();
    let found = supervisor.follow()?;
    let took = joined.elapsed();
    let nodes = supervisor.settle()?;
    supervisor.children.finish(ENDING)?;
    let run = Run { single, found, nodes, took, single_took };
    Ok(Report::new(options, &points, run))
}

struct Supervisor<'a> {
    interrupts: Interrupts,
    began: Instant,
    options: &'a Options,
    progress: &'a mut dyn Progress,
    doing: &'static str,
    children: Children,
}

impl Supervisor<'_> {
    /// One after the other: each is told where those before it listen, and connects to them.
    fn start_nodes(&mut self, scratch: &Scratch, points: &Points, task: Task) -> Result<(), DemoError> {
        let data = points.values.len() * size_of::<f64>();
        let mut peers = Vec::new();
        for node in 1..=self.options.nodes {
            self.children.start(self.options)?;
            let setup = Setup {
                node,
                nodes: self.options.nodes,
                listen: self.options.transport.listen(scratch.path(), node, self.options.place(node)),
                between_hosts: self.options.place(node).map(|_| match self.options.transport {
                    Transport::Verbs => BetweenHosts::Rdma,
                    Transport::Tcp => BetweenHosts::Tcp,
                    Transport::Shm | Transport::Auto => BetweenHosts::Best,
                }),
                peers: peers.clone(),
                frames: frames(data),
                source: self.options.source.clone(),
                task,
            };
            self.tell(node, &Command::Setup(setup))?;
            match self.next()? {
                (from, Notice::Listening(addresses)) if from == node => peers.push((node, addresses)),
                (node, _) => return Err(self.unexpected(node)),
            }
            self.progress.at(&Moment::Listening(node));
        }
        Ok(())
    }

    /// Until all have done their part; returns what the origin found.
    fn follow(&mut self) -> Result<Option<Found>, DemoError> {
        let (mut joined, mut finished, mut result) = (0, 0, None);
        while finished < self.options.nodes {
            self.doing = if joined < self.options.nodes { "joining" } else { "computing" };
            match self.next()? {
                (_, Notice::Joined) => {
                    joined += 1;
                    self.progress.at(&Moment::Joined(joined));
                }
                (_, Notice::Iterated(iterations)) => self.progress.at(&Moment::Iterated(iterations)),
                (_, Notice::Finished(found)) => {
                    finished += 1;
                    result = result.or(found);
                }
                (node, _) => return Err(self.unexpected(node)),
            }
        }
        Ok(result)
    }

    /// Waits until as many messages of each type were received as were sent, then takes the books in. If some never
    /// arrive, the books are taken as they are: the report says what is missing.
    fn settle(&mut self) -> Result<Vec<NodeReport>, DemoError> {
        self.doing = "settling";
        self.progress.at(&Moment::Settling);
        let patience = clock::now() + SETTLING;
        loop {
            let mut sums: Vec<(u64, u64)> = Vec::new();
            for counts in self.ask(&Command::Count)? {
                let Notice::Counts(counts) = counts else { return Err(self.unexpected(0)) };
                sums.resize(sums.len().max(counts.len()), (0, 0));
                sums.iter_mut()
                    .zip(counts)
                    .for_each(|(sum, count)| *sum = (sum.0 + count.0, sum.1 + count.1));
            }
            if sums.iter().all(|(sent, received)| sent == received) || clock::now() >= patience {
                break;
            }
        }
        let mut reports = Vec::new();
        for report in self.ask(&Command::Report)? {
            let Notice::Report(report) = report else { return Err(self.unexpected(0)) };
            reports.push(*report);
        }
        Ok(reports)
    }

    /// Asks all, and waits for all answers.
    fn ask(&mut self, command: &Command) -> Result<Vec<Notice>, DemoError> {
        for node in 1..=self.options.nodes {
            self.tell(node, command)?;
        }
        (0..self.options.nodes).map(|_| self.next().map(|(_, notice)| notice)).collect()
    }

    fn tell(&mut self, node: u16, command: &Command) -> Result<(), DemoError> {
        // A node that cannot be told has ended; how, is heard from `next`.
        match self.children.tell(node, command) {
            Ok(()) => Ok(()),
            Err(_) => loop {
                self.next()?;
            },
        }
    }

    /// The next notice; an error if none will come.
    fn next(&mut self) -> Result<(u16, Notice), DemoError> {
        loop {
            if self.interrupts.came() {
                return Err(DemoError::Interrupted { doing: self.doing });
            }
            if self.began.elapsed() > self.options.deadline {
                return Err(DemoError::Deadline { limit: self.options.deadline, doing: self.doing });
            }
            match self.children.hear(TICK) {
                None => {}
                Some(Heard::Notice(node, Notice::Failed(reason))) => return Err(self.failed(node, reason)),
                Some(Heard::Notice(node, notice)) => return Ok((node, notice)),
                Some(Heard::Nonsense(node)) => return Err(self.unexpected(node)),
                Some(Heard::Closed(node)) => return Err(self.ended(node)),
            }
        }
    }

    /// A node gives up, perhaps only because another was killed; then that is what is told.
    fn failed(&mut self, node: u16, reason: String) -> DemoError {
        let patience = clock::now() + GRACE;
        let mut gave_up = vec![node];
        while clock::now() < patience {
            match self.children.hear(TICK) {
                Some(Heard::Notice(other, Notice::Failed(_))) => gave_up.push(other),
                Some(Heard::Closed(ended)) if !gave_up.contains(&ended) => return self.ended(ended),
                _ => {}
            }
        }
        DemoError::Failed { node, doing: self.doing, reason }
    }

    /// The output of a node has ended, so it ends; perhaps because of an interrupt from the terminal, which all get.
    fn ended(&mut self, node: u16) -> DemoError {
        let patience = clock::now() + GRACE;
        while clock::now() < patience {
            if self.interrupts.came() {
                return DemoError::Interrupted { doing: self.doing };
            }
            match self.children.ended() {
                // One that ends by itself may do so because it misses one that was killed, and whose end takes longer: the
                // system has all of its memory to take back first.
                Some((_, status)) if status.code().is_some() => std::thread::park_timeout(TICK),
                Some((node, status)) => return DemoError::Ended { node, doing: self.doing, status },
                None => std::thread::yield_now(),
            }
        }
        match self.children.ended() {
            Some((node, status)) => DemoError::Ended { node, doing: self.doing, status },
            None => self.unexpected(node),
        }
    }

    fn unexpected(&self, node: u16) -> DemoError {
        DemoError::Unexpected { node, doing: self.doing }
    }
}

/// Frames of each node's cache: half of all data and a little more, so that tasks that move make old pages leave.
fn frames(data: usize) -> usize {
    data.div_ceil(PAGE_SIZE) / 2 + SPARE_FRAMES
}

/// For what is not data: sums, centres, words.
const SPARE_FRAMES: usize = 32;

/// How often an interrupt and the deadline are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How long after the work messages may still be under way.
const SETTLING: Duration = Duration::from_secs(5);

/// How long nodes may take to end by themselves once they have reported.
const ENDING: Duration = Duration::from_secs(5);

/// How long the system may take to tell of a process that has ended.
const GRACE: Duration = Duration::from_secs(2);

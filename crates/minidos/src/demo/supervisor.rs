//! The phases of a run: start the nodes, follow their work, collect the counts, compare.

use core::time::Duration;
use std::io;
use std::process::ExitStatus;
use std::time::Instant;

use nix::errno::Errno;
use thiserror::Error;

use super::children::{Children, NodeOutput};
use super::options::{Options, Transport};
use super::report::{Report, Run};
use super::scratch::Scratch;
use super::signals::Interrupts;
use crate::clock;
use crate::control::{BetweenHosts, Command, Found, NodeReport, Notice, Setup};
use crate::data::{DataError, Points};
use crate::kmeans::{self, Task};
use crate::page::PAGE_SIZE;

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The whole computation runs in one process, for comparison.
    Single,
    /// Number of nodes that listen.
    Listening(u16),
    /// Number of nodes to which all others have announced themselves.
    Joined(u16),
    /// Number of iterations completed.
    Iterated(u32),
    /// The work is done; messages are counted.
    Settling,
}

/// Observer of a run's progress.
pub trait Progress {
    /// Called when the run has reached `moment`.
    fn at(&mut self, moment: &Moment);
}

/// Reason why a run produced no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The number of nodes is out of range.
    #[error("invalid number of nodes {0}: expected 1 to {max}", max = Options::MAX_NODES)]
    Nodes(u16),
    /// The points could not be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A system call failed that the supervisor needs.
    #[error("cannot start the nodes: {0}")]
    Start(#[from] io::Error),
    /// SIGINT and SIGTERM cannot be blocked.
    #[error("cannot block SIGINT and SIGTERM: {0}")]
    Signals(#[from] Errno),
    /// A node process exited or was killed.
    #[error("node {node} ended while {doing}: {status}")]
    Ended {
        /// The node.
        node: u16,
        /// Phase of the run.
        doing: &'static str,
        /// Exit status of the process.
        status: ExitStatus,
    },
    /// A node reported a failure.
    #[error("node {node} failed while {doing}: {reason}")]
    Failed {
        /// The node.
        node: u16,
        /// Phase of the run.
        doing: &'static str,
        /// Error text from the node.
        reason: String,
    },
    /// A node sent malformed output, or a notice that does not fit the phase.
    #[error("node {node} sent unexpected output while {doing}")]
    Unexpected {
        /// The node.
        node: u16,
        /// Phase of the run.
        doing: &'static str,
    },
    /// The deadline passed.
    #[error("deadline of {} s passed while {doing}", limit.as_secs())]
    Deadline {
        /// Time that the run was allowed to take.
        limit: Duration,
        /// Phase of the run.
        doing: &'static str,
    },
    /// SIGINT or SIGTERM arrived.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// Phase of the run.
        doing: &'static str,
    },
}

/// Runs the demo. All node processes have ended and all files are gone when it returns.
///
/// # Errors
/// [`DemoError`]. If the accounts or the result are wrong, the run still returns a [`Report`], which says so.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report, DemoError> {
    if !(1..=Options::MAX_NODES).contains(&options.nodes) {
        return Err(DemoError::Nodes(options.nodes));
    }
    let points = options.source.load()?;
    let task = Task::new(points.rows(), points.dims);
    let mut supervisor = Supervisor {
        interrupts: Interrupts::block()?,
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
    /// Starts the nodes one after the other. Each receives the addresses of the earlier nodes and connects to them.
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
            self.send(node, &Command::Setup(setup))?;
            match self.next()? {
                (from, Notice::Listening(addresses)) if from == node => peers.push((node, addresses)),
                (node, _) => return Err(self.unexpected(node)),
            }
            self.progress.at(&Moment::Listening(node));
        }
        Ok(())
    }

    /// Follows the nodes until all have finished; returns the result that the origin reported.
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

    /// Waits until as many messages of each type were received as were sent, then collects the nodes' reports. If messages
    /// never arrive, it collects the reports after [`SETTLING`], and the run's report says what is missing.
    fn settle(&mut self) -> Result<Vec<NodeReport>, DemoError> {
        self.doing = "settling";
        self.progress.at(&Moment::Settling);
        let limit = clock::now() + SETTLING;
        loop {
            let mut sums: Vec<(u64, u64)> = Vec::new();
            for counts in self.ask(&Command::Count)? {
                let Notice::Counts(counts) = counts else { return Err(self.unexpected(0)) };
                sums.resize(sums.len().max(counts.len()), (0, 0));
                sums.iter_mut()
                    .zip(counts)
                    .for_each(|(sum, count)| *sum = (sum.0 + count.0, sum.1 + count.1));
            }
            if sums.iter().all(|(sent, received)| sent == received) || clock::now() >= limit {
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

    /// Sends `command` to all nodes and waits for one notice from each.
    fn ask(&mut self, command: &Command) -> Result<Vec<Notice>, DemoError> {
        for node in 1..=self.options.nodes {
            self.send(node, command)?;
        }
        (0..self.options.nodes).map(|_| self.next().map(|(_, notice)| notice)).collect()
    }

    fn send(&mut self, node: u16, command: &Command) -> Result<(), DemoError> {
        // If the write fails, the node has ended; `next` reports how.
        match self.children.send(node, command) {
            Ok(()) => Ok(()),
            Err(_) => loop {
                self.next()?;
            },
        }
    }

    /// Returns the next notice, or an error if none will come.
    fn next(&mut self) -> Result<(u16, Notice), DemoError> {
        loop {
            if self.interrupts.arrived() {
                return Err(DemoError::Interrupted { doing: self.doing });
            }
            if self.began.elapsed() > self.options.deadline {
                return Err(DemoError::Deadline { limit: self.options.deadline, doing: self.doing });
            }
            match self.children.receive(TICK) {
                None => {}
                Some(NodeOutput::Notice(node, Notice::Failed(reason))) => {
                    return Err(self.failed(node, reason));
                }
                Some(NodeOutput::Notice(node, notice)) => return Ok((node, notice)),
                Some(NodeOutput::Malformed(node)) => return Err(self.unexpected(node)),
                Some(NodeOutput::Closed(node)) => return Err(self.ended(node)),
            }
        }
    }

    /// Returns the error for a node that reported a failure. It may have failed only because another node was killed; in that
    /// case the error names the killed node.
    fn failed(&mut self, node: u16, reason: String) -> DemoError {
        let limit = clock::now() + GRACE;
        let mut failed = vec![node];
        while clock::now() < limit {
            match self.children.receive(TICK) {
                Some(NodeOutput::Notice(other, Notice::Failed(_))) => failed.push(other),
                Some(NodeOutput::Closed(ended)) if !failed.contains(&ended) => return self.ended(ended),
                _ => {}
            }
        }
        DemoError::Failed { node, doing: self.doing, reason }
    }

    /// Returns the error for a node whose output ended, which means that the node ends. An interrupt from the terminal reaches
    /// all processes of the group, so it takes precedence.
    fn ended(&mut self, node: u16) -> DemoError {
        let limit = clock::now() + GRACE;
        while clock::now() < limit {
            if self.interrupts.arrived() {
                return DemoError::Interrupted { doing: self.doing };
            }
            match self.children.ended() {
                // A node that exits by itself may do so because another was killed. The end of the killed process takes longer,
                // because the kernel reclaims all of its memory first.
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

/// Returns the frames of each node's cache: a little more than half of the data, so that migrating tasks cause evictions.
fn frames(data: usize) -> usize {
    data.div_ceil(PAGE_SIZE) / 2 + SPARE_FRAMES
}

/// Frames for pages other than data: sums, centres, futex words.
const SPARE_FRAMES: usize = 32;

/// Interval at which the supervisor checks for an interrupt and the deadline.
const TICK: Duration = Duration::from_millis(20);

/// Time after the work within which the last messages must arrive.
const SETTLING: Duration = Duration::from_secs(5);

/// Time within which nodes must end after they have reported.
const ENDING: Duration = Duration::from_secs(5);

/// Time within which the kernel reports a process that has ended.
const GRACE: Duration = Duration::from_secs(2);

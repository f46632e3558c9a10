//! Scatter: rounds of computing, `MPI_Scatter` along a binomial tree, and `MPI_Barrier` (Expedite, section 5).

use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::Cluster;
use crate::id::{NodeId, PortId, TaskId};
use crate::program::{From, Op, Program, Step, Wait};
use crate::record::Record;
use crate::task::TaskOptions;

/// The series in which the main threads record the time that a rank spent on a scatter, nanoseconds: "the sum of the time
/// spent inside `MPI_Scatter()` and inside the message handler before the call" (section 5.2).
pub const SPENT: u32 = 0;

/// The thread that receives and forwards messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forwarding {
    /// The main thread, inside its calls, as in MPICH. It polls first, and sleeps if nothing is there.
    InCalls,
    /// A thread of its own that sleeps until a message comes ("blocking implementation").
    Handler,
    /// A thread of its own that sleeps, with its socket flagged for the boost.
    FlaggedHandler,
}

/// Parameters of every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Computing before each scatter; "120 milliseconds without background computation".
    pub compute: Nanos,
    /// Bytes for each rank; not stated in the paper.
    pub bytes: u32,
    /// CPU time of receiving a message and passing it on.
    pub handling: Nanos,
    /// Thread that forwards.
    pub forwarding: Forwarding,
    /// Number of rounds.
    pub rounds: u32,
}

/// Returns the ranks that `rank` sends to, in order: its subtree is halved, and the farther half goes first.
///
/// MPICH 1.2.5, `intra_fns_new.c`; root is rank 0.
#[must_use]
pub fn children(rank: u32, ranks: u32) -> Vec<u32> {
    let reach = if rank == 0 { ranks.next_power_of_two() } else { 1 << rank.trailing_zeros() };
    let halves = core::iter::successors(Some(reach / 2), |half| Some(half / 2));
    halves.take_while(|half| *half > 0).map(|half| rank + half).filter(|child| *child < ranks).collect()
}

/// Returns the rank that sends to `rank`; none for the root.
#[must_use]
pub const fn parent(rank: u32) -> Option<u32> {
    if rank == 0 { None } else { Some(rank & (rank - 1)) }
}

/// Returns the number of ranks in the subtree of `rank`, including itself.
fn subtree(rank: u32, ranks: u32) -> u32 {
    1 + children(rank, ranks).into_iter().map(|child| subtree(child, ranks)).sum::<u32>()
}

/// Spawns all ranks, one per node (a power of two of them); returns their main threads.
pub fn spawn(cluster: &mut Cluster, nodes: &[NodeId], options: Options) -> Vec<TaskId> {
    let ranks = u32::try_from(nodes.len()).expect("fewer than 2^32 ranks");
    let threads: Vec<Threads> =
        nodes.iter().zip(0..).map(|(node, rank)| Threads::add(cluster, *node, rank, options)).collect();
    let mut places = connect(cluster, &threads, ranks, options.bytes);
    for (threads, place) in threads.iter().zip(&mut places) {
        let place = core::mem::take(place);
        let mut local = None;
        if let (Some(handler), Some(up)) = (threads.handler, place.up) {
            let (to_main, from_handler) = cluster.connect(handler, threads.main);
            local = Some(from_handler);
            if options.forwarding == Forwarding::FlaggedHandler {
                cluster.flag(handler, up);
            }
            cluster.install(handler, Box::new(Handler::new(options, up, place.down.clone(), to_main)));
        }
        cluster.install(threads.main, Box::new(Main::new(options, place, local)));
    }
    threads.into_iter().map(|threads| threads.main).collect()
}

/// Threads of a rank; the root needs no handler, because no rank sends to it.
#[derive(Clone, Copy, Debug)]
struct Threads {
    main: TaskId,
    handler: Option<TaskId>,
}

impl Threads {
    fn add(cluster: &mut Cluster, node: NodeId, rank: u32, options: Options) -> Self {
        let tasks = TaskOptions { process: Some(cluster.new_process()), ..TaskOptions::default() };
        let main = cluster.add_task(node, tasks);
        let handles = options.forwarding != Forwarding::InCalls && rank > 0;
        let handler = handles.then(|| cluster.add_task(node, tasks));
        Self { main, handler }
    }

    /// Returns the thread that forwards.
    fn forwarder(&self) -> TaskId {
        self.handler.unwrap_or(self.main)
    }
}

/// Connects the tree and the barrier's pairs.
fn connect(cluster: &mut Cluster, threads: &[Threads], ranks: u32, bytes: u32) -> Vec<Place> {
    let at = |rank: u32| &threads[rank as usize];
    let mut places: Vec<Place> = threads.iter().map(|_| Place::default()).collect();
    for rank in 0..ranks {
        for child in children(rank, ranks) {
            let (down, up) = cluster.connect(at(rank).forwarder(), at(child).forwarder());
            places[rank as usize].down.push((down, bytes * subtree(child, ranks)));
            places[child as usize].up = Some(up);
        }
    }
    for distance in core::iter::successors(Some(1), |d| Some(2 * d)).take_while(|d| *d < ranks) {
        for rank in (0..ranks).filter(|rank| rank & distance == 0) {
            let (near, far) = cluster.connect(at(rank).main, at(rank ^ distance).main);
            places[rank as usize].partners.push(near);
            places[(rank ^ distance) as usize].partners.push(far);
        }
    }
    places
}

/// A rank's ports.
#[derive(Clone, Debug, Default)]
struct Place {
    up: Option<PortId>,
    /// Ports to the children, with the bytes of each subtree.
    down: Vec<(PortId, u32)>,
    /// Ports of the barrier, nearest first.
    partners: Vec<PortId>,
}

/// A rank's main thread.
#[derive(Debug)]
struct Main {
    options: Options,
    place: Place,
    /// Port to the handler, if there is one.
    local: Option<PortId>,
    phase: Phase,
    left: u32,
    called: Nanos,
    /// Time in the handler before the call.
    before: Nanos,
}

/// The next step of the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Compute,
    Call,
    Received,
    /// Sending to this child, by index.
    Forward(usize),
    /// Sending to, and then receiving from, this partner.
    BarrierSend(usize),
    BarrierReceive(usize),
}

impl Main {
    fn new(options: Options, place: Place, local: Option<PortId>) -> Self {
        let (called, before) = (Nanos::ZERO, Nanos::ZERO);
        Self { options, place, local, phase: Phase::Compute, left: options.rounds, called, before }
    }

    /// Returns the children that this thread sends to.
    fn down(&self) -> &[(PortId, u32)] {
        if self.local.is_some() { &[] } else { &self.place.down }
    }
}

impl Program for Main {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        match self.phase {
            Phase::Compute => {
                if self.left == 0 {
                    return Op::Exit;
                }
                self.left -= 1;
                self.phase = Phase::Call;
                Op::Compute(self.options.compute)
            }
            Phase::Call => {
                (self.called, self.before) = (step.now, Nanos::ZERO);
                let Some(port) = self.local.or(self.place.up) else {
                    self.phase = Phase::Forward(0);
                    return Op::Compute(Nanos::ZERO);
                };
                self.phase = Phase::Received;
                Op::Receive { from: From::Port(port), wait: Wait::Block.into() }
            }
            Phase::Received => {
                self.phase = Phase::Forward(0);
                let handled_before = step.received.filter(|message| message.sent_at < self.called);
                if let (Some(message), true) = (handled_before, self.local.is_some()) {
                    self.before = Nanos(message.tag);
                }
                Op::Compute(if self.local.is_some() { Nanos::ZERO } else { self.options.handling })
            }
            Phase::Forward(index) => {
                if let Some(&(port, bytes)) = self.down().get(index) {
                    self.phase = Phase::Forward(index + 1);
                    return Op::Send { port, bytes, tag: 0 };
                }
                let value = step.now.since(self.called).after(self.before).0;
                step.records.add(Record { at: step.now, task: step.me, series: SPENT, value });
                self.phase = Phase::BarrierSend(0);
                Op::Compute(Nanos::ZERO)
            }
            Phase::BarrierSend(index) => match self.place.partners.get(index) {
                Some(&port) => {
                    self.phase = Phase::BarrierReceive(index);
                    Op::Send { port, bytes: 1, tag: 0 }
                }
                None => {
                    self.phase = Phase::Compute;
                    Op::Compute(Nanos::ZERO)
                }
            },
            Phase::BarrierReceive(index) => {
                self.phase = Phase::BarrierSend(index + 1);
                Op::Receive { from: From::Port(self.place.partners[index]), wait: Wait::Block.into() }
            }
        }
    }
}

/// The program of a rank's handler thread: receives messages, passes them on, and leaves the rest to the main thread.
#[derive(Debug)]
struct Handler {
    options: Options,
    up: PortId,
    down: Vec<(PortId, u32)>,
    to_main: PortId,
    phase: Handling,
    left: u32,
    began: Nanos,
}

/// The next step of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    Receive,
    Begin,
    Forward(usize),
}

impl Handler {
    fn new(options: Options, up: PortId, down: Vec<(PortId, u32)>, to_main: PortId) -> Self {
        let left = options.rounds;
        Self { options, up, down, to_main, phase: Handling::Receive, left, began: Nanos::ZERO }
    }
}

impl Program for Handler {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        match self.phase {
            Handling::Receive => {
                if self.left == 0 {
                    return Op::Exit;
                }
                self.left -= 1;
                self.phase = Handling::Begin;
                Op::Receive { from: From::Port(self.up), wait: Wait::Block.into() }
            }
            Handling::Begin => {
                self.began = step.now;
                self.phase = Handling::Forward(0);
                Op::Compute(self.options.handling)
            }
            Handling::Forward(index) => {
                if let Some(&(port, bytes)) = self.down.get(index) {
                    self.phase = Handling::Forward(index + 1);
                    return Op::Send { port, bytes, tag: 0 };
                }
                self.phase = Handling::Receive;
                let tag = step.now.since(self.began).0;
                Op::Send { port: self.to_main, bytes: self.options.bytes, tag }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expedite, figure 6: "the tree used in an eight-node `MPI_Scatter()`".
    #[test]
    fn the_tree_of_eight_is_the_paper_s() {
        let tree: Vec<_> = (0..8).map(|rank| children(rank, 8)).collect();
        let expected: [&[u32]; 8] = [&[4, 2, 1], &[], &[3], &[], &[6, 5], &[], &[7], &[]];
        assert_eq!(tree, expected);
        let parents: Vec<_> = (0..8).map(parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(2), Some(0), Some(4), Some(4), Some(6)]);
        assert_eq!((subtree(0, 8), subtree(4, 8), subtree(6, 8), subtree(7, 8)), (8, 4, 2, 1));
    }

    #[test]
    fn a_tree_of_any_size_reaches_each_rank_once() {
        for ranks in 1..40 {
            let mut reached: Vec<_> = (0..ranks).flat_map(|rank| children(rank, ranks)).collect();
            reached.sort_unstable();
            assert_eq!(reached, (1..ranks).collect::<Vec<_>>());
            assert!(
                (0..ranks).all(|rank| children(rank, ranks).iter().all(|child| parent(*child) == Some(rank)))
            );
        }
    }
}

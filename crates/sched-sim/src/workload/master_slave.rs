//! Master and slaves, the synthetic application of the coscheduling paper's section 4.2.
//!
//! One master and six slaves on four nodes: the master alone, and two slaves, one of each kind, on each other node. In
//! each iteration the master sends a message to all slaves, and all compute. Slaves of kind `rs_slave` reply with the
//! result, those of kind `r_slave` do not. When all replies are there, the next iteration begins.

use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::Cluster;
use crate::id::{NodeId, PortId, TaskId};
use crate::program::{From, Op, Program, Step, Wait};
use crate::task::TaskOptions;

/// Parameters of the application. The paper gives no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of each message.
    pub bytes: u32,
    /// Computing time of a slave per message.
    pub compute: Nanos,
    /// "A predetermined number of iterations."
    pub iterations: u32,
    /// Wait policy of all tasks.
    pub wait: Wait,
    /// Options of each task.
    pub tasks: TaskOptions,
}

/// The application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterSlave {
    /// The master, which "reports the return time for the application".
    pub master: TaskId,
    /// Slaves that only receive.
    pub receivers: Vec<TaskId>,
    /// Slaves that reply.
    pub repliers: Vec<TaskId>,
}

impl MasterSlave {
    /// Spawns the master on the first node, and a slave of each kind on every other.
    pub fn spawn(cluster: &mut Cluster, nodes: &[NodeId], options: Options) -> Self {
        let remote = &nodes[1..];
        let kinds = 2;
        let master = Master { options, slaves: remote.len() * kinds, next: 0, left: options.iterations };
        let master = cluster.spawn(nodes[0], options.tasks, Box::new(master));
        let (mut receivers, mut repliers) = (Vec::new(), Vec::new());
        for node in remote {
            for (answers, into) in [(Answers::No, &mut receivers), (Answers::Yes, &mut repliers)] {
                let slave = Slave { options, answers, phase: Phase::Receive, left: options.iterations };
                let slave = cluster.spawn(*node, options.tasks, Box::new(slave));
                cluster.connect(master, slave);
                into.push(slave);
            }
        }
        Self { master, receivers, repliers }
    }
}

/// Sends to every slave, then receives from every second; ports are numbered in the order of connecting.
#[derive(Debug)]
struct Master {
    options: Options,
    slaves: usize,
    /// Index of the next operation of an iteration.
    next: usize,
    left: u32,
}

impl Program for Master {
    fn next(&mut self, _step: &mut Step<'_>) -> Op {
        if self.next == self.slaves + self.slaves / 2 {
            self.next = 0;
            self.left -= 1;
        }
        if self.left == 0 {
            return Op::Exit;
        }
        let at = self.next;
        self.next += 1;
        if at < self.slaves {
            Op::Send { port: PortId::at(at), bytes: self.options.bytes, tag: 0 }
        } else {
            let replier = (at - self.slaves) * 2 + 1;
            Op::Receive { from: From::Port(PortId::at(replier)), wait: self.options.wait.into() }
        }
    }
}

/// Receives, computes, and replies if it is of that kind.
#[derive(Debug)]
struct Slave {
    options: Options,
    answers: Answers,
    phase: Phase,
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receive,
    Compute,
    Answer,
}

/// The only port of a slave.
const MASTER: PortId = PortId(0);

impl Program for Slave {
    fn next(&mut self, _step: &mut Step<'_>) -> Op {
        match self.phase {
            Phase::Receive if self.left == 0 => Op::Exit,
            Phase::Receive => {
                self.left -= 1;
                self.phase = Phase::Compute;
                Op::Receive { from: From::Port(MASTER), wait: self.options.wait.into() }
            }
            Phase::Compute => {
                self.phase = if self.answers == Answers::Yes { Phase::Answer } else { Phase::Receive };
                Op::Compute(self.options.compute)
            }
            Phase::Answer => {
                self.phase = Phase::Receive;
                Op::Send { port: MASTER, bytes: self.options.bytes, tag: 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster;
    use crate::scheduler::linux2::{Linux2, Version};

    #[test]
    fn it_is_mapped_as_in_the_paper_and_an_iteration_is_a_round_trip() {
        let mut cluster = Cluster::new(cluster::Options::standard(1));
        let nodes = [0; 4].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let options = Options {
            bytes: 4096,
            compute: Nanos::from_millis(1),
            iterations: 100,
            wait: Wait::Block,
            tasks: TaskOptions::default(),
        };
        let app = MasterSlave::spawn(&mut cluster, &nodes, options);
        assert_eq!((app.receivers.len(), app.repliers.len()), (3, 3));
        for (node, pair) in nodes[1..].iter().zip(app.receivers.iter().zip(&app.repliers)) {
            assert_eq!([pair.0, pair.1].map(|task| cluster.task(*task).node()), [*node; 2]);
        }
        assert!(cluster.run_to_end(Nanos::from_millis(10_000)).is_some(), "all end");
        let took = cluster.task(app.master).usage().ended.unwrap().0 / 100;
        // Both slaves of a node compute one after the other at worst; the messages of six leave one after the other.
        assert!((2_000_000..4_500_000).contains(&took), "{took} ns per iteration");
    }
}

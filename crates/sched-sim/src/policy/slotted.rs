//! GANG and EXPLICIT: the whole cluster runs one job, then the next, then local tasks; a global switch ends each slot.
//!
//! GANG (coscheduling paper, section 1, after Ousterhout) knows all tasks of each job in advance, and all nodes switch
//! at the same moment, as on a machine built for it. EXPLICIT uses messages of a master (the paper's references 5 and
//! 12): nodes switch when they receive one, and "the possibility of master crashes [...] should be taken into account".
//!
//! # Invariants
//! 1. Between two switches a node runs only tasks of one row, and those in no row.
//! 2. A node that has received nothing for its patience runs everything until it receives a message again.

use pronto_sched_policy::policy::time::Nanos;

use super::{Context, Control, Policy};
use crate::id::{NodeId, TaskId};
use crate::task::State;

/// Tasks that run at the same time on all nodes, and the length of their slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Tasks on any nodes; several on one node share it under its scheduler.
    pub tasks: Vec<TaskId>,
    /// Length of the slot.
    pub length: Nanos,
}

/// The source of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Clock that all nodes share: GANG.
    Clock,
    /// Messages of a master: EXPLICIT.
    Master(Master),
}

/// The master of EXPLICIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Master {
    /// Node of the master, which needs no message itself.
    pub node: NodeId,
    /// Time at which it crashes.
    pub crashes: Option<Nanos>,
    /// Time for which nodes trust a silent master; `None` for ever.
    pub patience: Option<Nanos>,
}

/// The policy.
#[derive(Debug)]
pub struct Slotted {
    rows: Vec<Row>,
    switch: Switch,
    /// Number of messages that each node has received, to recognise an old watchdog.
    heard: Vec<u32>,
    /// Tasks of each row on each node.
    local: Vec<Vec<Vec<TaskId>>>,
    sent: u64,
}

/// Flag in the key of a watchdog, next to the node and its message count. The key of the timer that ends a slot is the
/// row that begins.
const WATCHDOG: u64 = 1 << 63;

impl Slotted {
    /// Returns the policy; rows take turns in this order.
    #[must_use]
    pub const fn new(rows: Vec<Row>, switch: Switch) -> Self {
        Self { rows, switch, heard: Vec::new(), local: Vec::new(), sent: 0 }
    }

    /// Returns the number of messages that the master has sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the next row, from `row` on, with a task that has not ended.
    fn alive(&self, context: &Context<'_>, row: usize) -> Option<usize> {
        let lives = |row: &usize| {
            self.rows[*row].tasks.iter().any(|task| context.view.task(*task).state() != State::Exited)
        };
        (row..row + self.rows.len()).map(|row| row % self.rows.len()).find(lives)
    }

    /// Makes a node run this row.
    fn run_row(&self, context: &mut Context<'_>, node: NodeId, row: usize) {
        for (other, tasks) in self.local[node.index()].iter().enumerate() {
            for task in tasks {
                if other == row {
                    context.release(*task);
                } else {
                    context.hold(*task);
                }
            }
        }
    }

    fn switch_to(&mut self, context: &mut Context<'_>, row: usize) {
        let nodes = (0..self.local.len()).map(NodeId::at);
        match self.switch {
            Switch::Clock => {
                for node in nodes {
                    self.run_row(context, node, row);
                }
            }
            Switch::Master(master) => {
                if master.crashes.is_some_and(|crash| context.now() >= crash) {
                    return;
                }
                for node in nodes.filter(|node| *node != master.node) {
                    self.sent += 1;
                    context.send_control(master.node, node, row as u64);
                }
                self.hear(context, master.node, row, &master);
            }
        }
        if let Some(next) = self.alive(context, row + 1) {
            context.timer(context.now().after(self.rows[row].length), next as u64);
        }
    }

    /// Handles a master's message to a node.
    fn hear(&mut self, context: &mut Context<'_>, node: NodeId, row: usize, master: &Master) {
        self.heard[node.index()] = self.heard[node.index()].wrapping_add(1);
        self.run_row(context, node, row);
        if let Some(patience) = master.patience {
            let key = WATCHDOG | u64::from(node.0) << 32 | u64::from(self.heard[node.index()]);
            context.timer(context.now().after(patience), key);
        }
    }

    /// Makes the node run everything if no message has come since.
    fn watchdog(&self, context: &mut Context<'_>, key: u64) {
        let node = usize::try_from((key ^ WATCHDOG) >> 32).unwrap_or(usize::MAX);
        if u64::from(self.heard[node]) == key & u64::from(u32::MAX) {
            for task in self.local[node].iter().flatten() {
                context.release(*task);
            }
        }
    }
}

impl Policy for Slotted {
    fn start(&mut self, context: &mut Context<'_>) {
        let nodes = context.view.nodes();
        self.heard = vec![0; nodes];
        self.local = vec![vec![Vec::new(); self.rows.len()]; nodes];
        for (row, tasks) in self.rows.iter().enumerate() {
            for task in &tasks.tasks {
                self.local[context.view.task(*task).node().index()][row].push(*task);
            }
        }
        if let Some(first) = self.alive(context, 0) {
            self.switch_to(context, first);
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, key: u64) {
        if key & WATCHDOG != 0 {
            return self.watchdog(context, key);
        }
        let row = usize::try_from(key).unwrap_or_default();
        // Tasks that were alive when the slot began may have ended since.
        if let Some(row) = self.alive(context, row) {
            self.switch_to(context, row);
        }
    }

    fn control(&mut self, context: &mut Context<'_>, control: Control) {
        if let Switch::Master(master) = self.switch {
            self.hear(context, control.to, usize::try_from(control.word).unwrap_or_default(), &master);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, Options};
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;
    use crate::workload::compute::Compute;

    const SLOT: Nanos = Nanos::from_millis(200);

    /// Runs two rows of a task each on two nodes; returns the time that each of the four ran in 10 s, in milliseconds,
    /// and the number of messages.
    fn shares(switch: Switch) -> (Vec<u64>, u64) {
        // Ids are known in advance: tasks are numbered in the order of spawning.
        let row = |tasks: [u32; 2]| Row { tasks: tasks.map(TaskId).to_vec(), length: SLOT };
        let policy = Slotted::new(vec![row([0, 1]), row([2, 3])], switch);
        let mut cluster = Cluster::with_policy(Options::standard(1), Box::new(policy));
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let tasks: Vec<_> = [nodes[0], nodes[1], nodes[0], nodes[1]]
            .into_iter()
            .map(|node| cluster.spawn(node, TaskOptions::default(), Box::new(Compute::for_ever())))
            .collect();
        cluster.run_until(Nanos::from_millis(10_000));
        let ran = tasks.iter().map(|task| cluster.task(*task).usage().ran.0 / 1_000_000).collect();
        (ran, cluster.policy::<Slotted>().map_or(0, Slotted::sent))
    }

    fn master(crashes: Option<Nanos>, patience: Option<Nanos>) -> Switch {
        Switch::Master(Master { node: NodeId(0), crashes, patience })
    }

    #[test]
    fn rows_take_turns_on_all_nodes() {
        let (ran, sent) = shares(Switch::Clock);
        assert!(ran.iter().all(|ms| ms.abs_diff(5_000) <= 210), "{ran:?}");
        assert_eq!(sent, 0);
    }

    #[test]
    fn a_master_does_the_same_with_a_message_per_node_and_slot() {
        let (ran, sent) = shares(master(None, None));
        assert!(ran.iter().all(|ms| ms.abs_diff(5_000) <= 210), "{ran:?}");
        assert_eq!(sent, 51, "one other node, 10 s of slots, and the first");
    }

    #[test]
    fn after_a_crash_held_tasks_starve_unless_nodes_lose_patience() {
        let crash = Some(Nanos::from_millis(2_100));
        let (starved, sent) = shares(master(crash, None));
        assert_eq!(sent, 11);
        assert!(starved[2] < 1_100 && starved[0] > 8_800, "{starved:?}");
        let (patient, _) = shares(master(crash, Some(SLOT.times(3))));
        assert!(patient.iter().all(|ms| *ms > 4_000), "{patient:?}");
    }
}

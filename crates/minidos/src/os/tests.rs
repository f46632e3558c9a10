//! Several nodes in one process, on real links: shared memory under contention, then a check of the accounts.
//!
//! Deferred handlers run inline, where a call that waits is refused. These tests thus also show that no handler waits.

use core::time::Duration;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use pronto::{Node, NodeId};

use super::*;
use crate::account::{Faults, Totals, Traffic, reconcile};
use crate::messages::{Registers, TaskId};
use crate::page::{Access, Address};

struct Cluster {
    systems: Vec<Arc<Os>>,
    _nodes: Vec<Node>,
    events: Vec<Receiver<Event>>,
}

fn no_program(_: &Arc<Os>, _: TaskId, _: &MemoryMap, _: Registers) -> Result<Step, OsError> {
    Ok(Step::End(0))
}

impl Cluster {
    /// Starts `count` nodes; each later one connects to all earlier ones.
    fn new(name: &str, transport: &str, count: u16, frames: usize) -> Self {
        let (mut systems, mut nodes, mut events) = (Vec::new(), Vec::<Node>::new(), Vec::new());
        for number in 1..=count {
            let (sender, receiver) = channel();
            let network = Network::new(NodeId(number), count).unwrap();
            let os = Os::new(network, frames, no_program, sender);
            let listen = match transport {
                "shm" => format!("shm:@minidos-{name}-{}-{number}", std::process::id()),
                _ => "tcp:127.0.0.1:0".to_owned(),
            };
            let mut builder = Node::builder(number).listen(&listen);
            for (peer, node) in (1_u16..).zip(&nodes) {
                builder = builder.peer(peer, &node.listening()[0].to_string());
            }
            nodes.push(register(builder, &os).start().unwrap());
            systems.push(os);
            events.push(receiver);
        }
        for (os, node) in systems.iter().zip(&nodes) {
            let up = |peer| node.wait_for_peer(peer, Duration::from_secs(20)).unwrap();
            os.network.connect(os.network.peers().map(up).collect());
        }
        Self { systems, _nodes: nodes, events }
    }

    fn map(&self, length: u64, access: Access) -> Address {
        self.systems[0].map_here(length, access, "test").unwrap().start
    }

    /// Runs `body` in `threads` tasks on each node.
    fn run(&self, threads: u32, body: impl Fn(&Arc<Os>, TaskId) + Sync) {
        thread::scope(|scope| {
            for (os, node) in self.systems.iter().zip(0..) {
                for thread in 1..=threads {
                    let body = &body;
                    scope.spawn(move || body(os, TaskId(node * threads + thread)));
                }
            }
        });
        for events in &self.events {
            assert!(events.try_recv().is_err(), "a handler failed");
        }
        self.check_accounts();
    }

    /// Checks the accounts after all tasks have ended and all messages were received.
    fn check_accounts(&self) {
        let mut totals = Totals { traffic: Traffic::default(), causes: vec![0; Cause::ALL.len()] };
        for os in &self.systems {
            assert_eq!(os.network.faults(), Faults::default());
            totals.traffic.add(&os.network.ledger().traffic());
            totals.causes.iter_mut().zip(os.causes.counts()).for_each(|(sum, count)| *sum += count);
        }
        for kind in &totals.traffic.0 {
            assert_eq!(kind.sent, kind.received);
        }
        let broken: Vec<_> = reconcile(&totals).into_iter().filter(|equation| !equation.holds()).collect();
        assert_eq!(broken, []);
    }
}

fn number(os: &Arc<Os>, task: TaskId, address: Address) -> u64 {
    let mut bytes = [0; 8];
    os.read(task, address, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_lock_excludes_tasks_of_all_nodes() {
    for transport in ["shm", "tcp"] {
        let cluster = Cluster::new("lock", transport, 3, 8);
        let lock = cluster.map(8, Access::Write);
        let counter = cluster.map(8, Access::Write);
        cluster.run(2, |os, task| {
            for _ in 0..50 {
                os.lock(task, lock).unwrap();
                let before = number(os, task, counter);
                os.write(task, counter, &(before + 1).to_le_bytes()).unwrap();
                os.unlock(task, lock).unwrap();
            }
        });
        assert_eq!(number(&cluster.systems[0], TaskId(1), counter), 300);
    }
}

/// More tasks than the pool has workers fault on the same pages, through caches with a single frame.
#[test]
fn contended_pages_lose_no_write_despite_evictions() {
    let cluster = Cluster::new("pages", "shm", 3, 1);
    let pages = cluster.map(3 * 4096, Access::Write);
    let add = |bytes: [u8; 8]| (u64::from_le_bytes(bytes) + 1).to_le_bytes();
    cluster.run(6, |os, task| {
        for turn in 0..40_u64 {
            let page = (turn + u64::from(task.0)) % 3;
            os.update(task, pages.plus(page * 4096), add).unwrap();
        }
    });
    let sum = |page: u64| number(&cluster.systems[1], TaskId(1), pages.plus(page * 4096));
    assert_eq!((0..3).map(sum).sum::<u64>(), 3 * 6 * 40);
}

#[test]
fn a_barrier_lets_no_task_run_ahead() {
    let cluster = Cluster::new("barrier", "shm", 3, 8);
    let barrier = cluster.map(8, Access::Write);
    let rounds = cluster.map(6 * 8, Access::Write);
    cluster.run(2, |os, task| {
        for round in 1..=20_u64 {
            os.write(task, rounds.plus(u64::from(task.0 - 1) * 8), &round.to_le_bytes()).unwrap();
            os.barrier(task, barrier, 6).unwrap();
            for other in 0..6 {
                assert_eq!(number(os, task, rounds.plus(other * 8)), round);
            }
            os.barrier(task, barrier, 6).unwrap();
        }
    });
}

#[test]
fn invalid_accesses_fault_on_every_node() {
    let cluster = Cluster::new("fault", "shm", 2, 8);
    let text = cluster.map(4096, Access::Read);
    cluster.run(1, |os, task| {
        let mut byte = [0];
        os.read(task, text.plus(4095), &mut byte).unwrap();
        let refused = [
            os.read(task, Address(0), &mut byte),
            os.read(task, text.plus(1 << 28), &mut byte),
            os.read(task, text.plus(4095), &mut [0, 0]),
            os.write(task, text, &[1]),
            os.futex_wake(task, text.plus(1 << 28), 1),
        ];
        for result in refused {
            assert!(matches!(result, Err(OsError::Fault { .. })), "{result:?}");
        }
    });
}

#[test]
fn a_futex_across_two_pages_is_refused_on_every_node() {
    let cluster = Cluster::new("across", "shm", 2, 8);
    let words = cluster.map(2 * 4096, Access::Write);
    cluster.run(1, |os, task| {
        let refused = os.futex_wait(task, words.plus(4094), 0);
        assert!(matches!(refused, Err(OsError::Misplaced { .. })), "{refused:?}");
    });
}

//! A program that performs a list of operations, round after round.

use std::sync::Arc;

use pronto_sched_policy::policy::time::Nanos;

use super::CHUNK;
use crate::id::PortId;
use crate::program::{From, Op, Program, Step, Wait};

/// The number of rounds of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// This many rounds; then the task ends.
    Times(u32),
    /// For ever.
    Endless,
}

/// The program.
#[derive(Clone, Debug)]
pub struct Script {
    operations: Arc<[Op]>,
    rounds: Rounds,
    next: usize,
}

impl Script {
    /// Returns a program that performs `operations` for `rounds` rounds; at least one operation must take time.
    #[must_use]
    pub const fn new(operations: Arc<[Op]>, rounds: Rounds) -> Self {
        Self { operations, rounds, next: 0 }
    }
}

impl Program for Script {
    fn next(&mut self, _step: &mut Step<'_>) -> Op {
        if self.rounds == Rounds::Times(0) || self.operations.is_empty() {
            return Op::Exit;
        }
        let operation = self.operations[self.next];
        self.next += 1;
        if self.next == self.operations.len() {
            self.next = 0;
            if let Rounds::Times(left) = &mut self.rounds {
                *left -= 1;
            }
        }
        operation
    }
}

/// The list of one rank under construction.
#[derive(Debug)]
pub(super) struct Steps {
    rank: usize,
    ports: Vec<(usize, PortId)>,
    wait: Wait,
    operations: Vec<Op>,
}

impl Steps {
    pub(super) const fn new(rank: usize, ports: Vec<(usize, PortId)>, wait: Wait) -> Self {
        Self { rank, ports, wait, operations: Vec::new() }
    }

    /// Returns the rank of the list.
    pub(super) const fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn done(self) -> Arc<[Op]> {
        self.operations.into()
    }

    fn port(&self, peer: usize) -> PortId {
        let found = self.ports.iter().find(|(rank, _)| *rank == peer);
        found.expect("ranks that exchange anything are connected").1
    }

    /// Adds a computation.
    pub(super) fn compute(&mut self, time: Nanos) {
        if time > Nanos::ZERO {
            self.operations.push(Op::Compute(time));
        }
    }

    /// Adds an exchange: `bytes` bytes go to one rank while the same number comes from another, in turns.
    pub(super) fn exchange(&mut self, to: usize, from: usize, bytes: u64) {
        let (to, from) = (self.port(to), self.port(from));
        let mut left = bytes;
        while left > 0 {
            let part = left.min(u64::from(CHUNK));
            left -= part;
            let bytes = u32::try_from(part).expect("a chunk is small");
            self.operations.push(Op::Send { port: to, bytes, tag: 0 });
            self.operations.push(Op::Receive { from: From::Port(from), wait: self.wait.into() });
        }
    }
}

//! The ready queue: executions that may start now, one queue per class, control before bulk.
//!
//! # Invariants
//! 1. Items of one class leave in the order in which they were pushed.
//! 2. While items of both classes are ready, at most [`IN_A_ROW`](lanes::IN_A_ROW) items of control leave before one of bulk.

use alloc::collections::VecDeque;

use pronto_sched_policy::policy::{lanes, time};
use pronto_wire::Class;

/// Items that are ready, by class. [`lanes`] of the scheduling policy decides which class is served next.
///
/// The queues have no bound of their own: each request in them has used a credit of its sender, and credits are bounded.
#[derive(Debug)]
pub struct Ready<T> {
    /// By [`Class::index`].
    queues: [VecDeque<T>; Class::ALL.len()],
    turn: lanes::Turn,
}

impl<T> Ready<T> {
    /// Returns an empty ready queue.
    pub const fn new() -> Self {
        Self { queues: [VecDeque::new(), VecDeque::new()], turn: lanes::Turn::NEW }
    }

    /// Adds an item behind the other items of its class.
    pub fn push(&mut self, class: Class, item: T) {
        self.queues[class.index()].push_back(item);
    }

    /// Removes and returns the item to start next, or `None` if nothing is ready.
    pub fn pop(&mut self) -> Option<T> {
        let heads = Class::ALL.map(|class| lanes::Lane {
            class: match class {
                Class::Control => lanes::Class::Control,
                Class::Bulk => lanes::Class::Bulk,
            },
            work: work(&self.queues[class.index()]),
        });
        let (turn, served) = self.turn.next(&heads);
        self.turn = turn;
        debug_assert_eq!(served.is_none(), self.is_empty(), "the policy serves a queue that has an item");
        // `heads` is in the order of `Class::ALL`, which is the order of the queues.
        self.queues[served?].pop_front()
    }

    /// Returns the number of items that are ready.
    pub fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Returns whether no item of any class is ready.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }
}

/// Returns the state of a queue as the policy sees it. The policy compares times within one class only, and the front of a queue is the
/// oldest item of its class, so all times can be equal and no clock is read.
fn work<T>(queue: &VecDeque<T>) -> lanes::Work {
    if queue.is_empty() { lanes::Work::Idle } else { lanes::Work::Ready { since: time::Nanos::ZERO } }
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Items of control that leave in a row while bulk is ready.
    const IN_A_ROW: usize = lanes::IN_A_ROW as usize;

    fn drain<T>(ready: &mut Ready<T>) -> Vec<T> {
        core::iter::from_fn(|| ready.pop()).collect()
    }

    /// Shows: calls.control-first
    #[test]
    fn control_passes_bulk_and_each_class_keeps_its_order() {
        let mut ready = Ready::new();
        assert_eq!((ready.len(), ready.is_empty(), ready.pop()), (0, true, None));
        ready.push(Class::Bulk, "first bulk");
        assert!(!ready.is_empty());
        ready.push(Class::Control, "first control");
        ready.push(Class::Bulk, "second bulk");
        ready.push(Class::Control, "second control");
        assert_eq!(ready.len(), 4);
        assert_eq!(drain(&mut ready), ["first control", "second control", "first bulk", "second bulk"]);
        assert!(ready.is_empty());
    }

    /// Shows: calls.one-in-17
    #[test]
    fn bulk_leaves_once_in_seventeen_while_control_never_runs_out() {
        let mut ready = Ready::new();
        for _ in 0..3 {
            ready.push(Class::Bulk, Class::Bulk);
        }
        let mut served = Vec::new();
        for _ in 0..3 * (IN_A_ROW + 1) {
            ready.push(Class::Control, Class::Control);
            served.extend(ready.pop());
        }
        for round in served.chunks(IN_A_ROW + 1) {
            let (last, control) = round.split_last().expect("a round is not empty");
            assert_eq!(*last, Class::Bulk);
            assert!(control.iter().all(|class| *class == Class::Control), "{round:?}");
        }
    }

    #[test]
    fn control_that_leaves_while_no_bulk_is_ready_does_not_count() {
        let mut ready = Ready::new();
        for _ in 0..IN_A_ROW {
            ready.push(Class::Control, Class::Control);
        }
        assert_eq!(drain(&mut ready).len(), IN_A_ROW);
        ready.push(Class::Bulk, Class::Bulk);
        ready.push(Class::Control, Class::Control);
        assert_eq!(drain(&mut ready), [Class::Control, Class::Bulk]);
    }
}

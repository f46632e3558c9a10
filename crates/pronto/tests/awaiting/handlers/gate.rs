//! Futures that end when the test says so, and the number of those that exist.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A gate for numbered futures.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    begun: Vec<u64>,
    open: BTreeSet<u64>,
    wakers: BTreeMap<u64, Waker>,
    alive: usize,
}

struct Alive(Gate);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().alive -= 1;
    }
}

impl Gate {
    /// Awaits that the gate opens for this number.
    pub(super) async fn pass(&self, number: u64) {
        let _alive = self.begin(number);
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.open.remove(&number) {
                return Poll::Ready(());
            }
            state.wakers.insert(number, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn begin(&self, number: u64) -> Alive {
        let mut state = self.0.lock().unwrap();
        state.begun.push(number);
        state.alive += 1;
        Alive(self.clone())
    }

    /// Opens the gate for this number. Keeps the waker, as a timer might.
    pub(super) fn open(&self, number: u64) {
        let mut state = self.0.lock().unwrap();
        state.open.insert(number);
        let waker = state.wakers.get(&number).cloned();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the numbers of the futures that were polled, in the order of their first polls.
    pub(super) fn begun(&self) -> Vec<u64> {
        self.0.lock().unwrap().begun.clone()
    }

    /// Returns how many futures wait.
    pub(super) fn alive(&self) -> usize {
        self.0.lock().unwrap().alive
    }
}

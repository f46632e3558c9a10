//! One node of the mini distributed OS: what tasks call, and what its peers ask of it.
//!
//! | file | what |
//! | --- | --- |
//! | `pages` | reading and writing shared memory; faults and evictions |
//! | `homes` | carrying out what this node's home and cache decide |
//! | `futexes` | sleeping and waking; locks and barriers made of that |
//! | `addresses` | what a process has mapped |
//! | `tasks` | tasks that move, end, and are signalled |
//! | `handlers` | which message goes where |
//!
//! # Invariants
//! 1. The locks of `cache` and `home` are never held together, nor while a message is sent.
//! 2. No handler waits for another message: what has to wait stays in the home's queues, or in a demand that the cache
//!    keeps, with the means to answer it later.

mod addresses;
mod error;
mod futexes;
mod handlers;
mod homes;
mod pages;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::account::{Cause, Causes};
use crate::cache::Cache;
use crate::control::{Command, Found};
use crate::home::Home;
use crate::messages::{NodeInfo, Stamp};
use crate::network::Network;
use crate::page::{PAGE_SIZE, Page, PageNumber};
use crate::ranges::Ranges;

pub(crate) use addresses::ORIGIN;
pub use error::OsError;
pub(crate) use handlers::register;
use homes::{FutexClient, HomeRef, PageClient};
use tasks::Tasks;
pub(crate) use tasks::{MemoryMap, Process, Program, Step};

/// A node, shared by its tasks and its handlers.
#[derive(Debug)]
pub(crate) struct Os {
    pub(crate) network: Network,
    pub(crate) causes: Causes,
    cache: Mutex<Cache<HomeRef>>,
    /// Tells tasks that wait for the cache that something in it has changed.
    changed: Condvar,
    home: Mutex<Home<PageClient, FutexClient>>,
    ranges: Mutex<Ranges>,
    tasks: Tasks,
    events: Sender<Event>,
}

/// What a node's main loop waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// One more node said that it is there.
    Met,
    /// An iteration of the computation ended.
    Iterated(u32),
    /// The origin has taken the process apart, and this node has sent home what it wrote.
    TakenApart,
    /// The origin has the result.
    Computed(Found),
    /// Something failed that cannot be mended; the run is over.
    Failed(OsError),
    /// The supervisor wants something.
    Told(Command),
}

impl Os {
    pub(crate) fn new(network: Network, frames: usize, program: Program, events: Sender<Event>) -> Arc<Self> {
        Arc::new(Self {
            network,
            causes: Causes::default(),
            cache: Mutex::new(Cache::new(frames)),
            changed: Condvar::new(),
            home: Mutex::new(Home::default()),
            ranges: Mutex::new(Ranges::default()),
            tasks: Tasks::new(program),
            events,
        })
    }

    /// Takes in a page of a mapped file, of which this node is the home.
    pub(crate) fn load(&self, page: PageNumber, contents: Box<Page>) {
        debug_assert_eq!(page.home(self.network.nodes()), self.network.me());
        lock(&self.home).insert(page, contents);
    }

    /// Says to all others that this node is there.
    pub(crate) fn announce(&self) -> Result<(), OsError> {
        for peer in self.network.peers() {
            self.causes.count(Cause::Announced);
            let info = NodeInfo {
                stamp: Stamp::default(),
                pid: std::process::id(),
                frames: u32::try_from(lock(&self.cache).frames()).unwrap_or(u32::MAX),
                page_size: u32::try_from(PAGE_SIZE).unwrap_or(u32::MAX),
            };
            self.network.notify(peer, info)?;
        }
        Ok(())
    }

    /// Reports a failure that has nobody else to go to.
    pub(crate) fn fail(&self, error: OsError) {
        self.tell(Event::Failed(error));
    }

    /// Reports that an iteration of the computation ended.
    pub(crate) fn iterated(&self, iteration: u32) {
        self.tell(Event::Iterated(iteration));
    }

    pub(crate) fn tell(&self, event: Event) {
        // Nobody listens any more when the node is being shut down; then nothing needs to be told.
        let _ = self.events.send(event);
    }
}

/// A task that panics leaves the tables whole: each method of theirs ends in a state that its invariants describe.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! One node of the mini distributed OS: the operations of its tasks, and the handlers of its peers' messages.
//!
//! | file | content |
//! | --- | --- |
//! | `pages` | reading and writing shared memory; faults and evictions |
//! | `homes` | executing the actions of this node's home and cache |
//! | `futexes` | sleeping and waking; locks and barriers |
//! | `addresses` | mapped ranges |
//! | `tasks` | running, migrating, ending and signalling tasks |
//! | `handlers` | registration of message handlers |
//!
//! # Invariants
//! 1. The locks of `cache` and `home` are never held together, nor while a message is sent.
//! 2. No handler waits for another message. A request that has to wait stays in the home's queue, and a demand that has to
//!    wait stays in the cache, together with the responder.

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

/// State of a node, shared by its tasks and its handlers.
#[derive(Debug)]
pub(crate) struct Os {
    pub(crate) network: Network,
    pub(crate) causes: Causes,
    cache: Mutex<Cache<HomeRef>>,
    /// Wakes tasks that wait for a change of the cache.
    changed: Condvar,
    home: Mutex<Home<PageClient, FutexClient>>,
    ranges: Mutex<Ranges>,
    tasks: Tasks,
    events: Sender<Event>,
}

/// Event for a node's main loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// Another node has announced itself.
    PeerAnnounced,
    /// An iteration of the computation ended.
    Iterated(u32),
    /// The process has ended, and this node has returned the pages that it modified.
    ProcessEnded,
    /// The origin has the result.
    Computed(Found),
    /// A failure that ends the run.
    Failed(OsError),
    /// A command from the supervisor.
    Command(Command),
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

    /// Adds a page of a mapped file whose home is this node.
    pub(crate) fn load(&self, page: PageNumber, contents: Box<Page>) {
        debug_assert_eq!(page.home(self.network.nodes()), self.network.me());
        lock(&self.home).insert(page, contents);
    }

    /// Announces this node to all others.
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

    /// Reports a failure to the main loop.
    pub(crate) fn fail(&self, error: OsError) {
        self.emit(Event::Failed(error));
    }

    /// Reports that an iteration of the computation ended.
    pub(crate) fn iterated(&self, iteration: u32) {
        self.emit(Event::Iterated(iteration));
    }

    pub(crate) fn emit(&self, event: Event) {
        // Fails only while the node shuts down; then the event is not needed.
        let _ = self.events.send(event);
    }
}

/// Locks `mutex`. A poisoned lock is usable, because every method of the tables leaves their invariants intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The I/O manager: everything that can have an event is a source. Threads poll the sources, or one thread sleeps on all of them.
//!
//! After Trahay, Denis, Aumage and Namyst, "Improving Reactivity and Communication Overlap in MPI using a Generic I/O
//! Manager" (PIOMan, 2007). Independent of any protocol. `docs/decisions/0009-one-manager-for-all-sources.md` describes the
//! replacement for the paper's thread scheduler.
//!
//! | file | content |
//! | --- | --- |
//! | `source` | [`Source`], and the description given at its registration: [`Spec`] |
//! | `manager` | [`Manager`]: registration, polls by any thread ([`Trigger`]), wake-ups |
//! | `run` | the loop of the engine thread: [`Engine`], [`EngineDriver`] |
//! | `engine_threads`, `spares`, `handover` | the role holder: the engine thread, or a spare while that is blocked ([`EngineThreads`]) |
//! | `poller`, `direct`, `group` | the engine half: sources in memory, hot and cold, and sources behind one epoll |
//! | `resting` | sources without events for long, which stay armed ([`Rouse`]) |
//! | `sleep_set`, `stuck` | the descriptors on which the engine sleeps; descriptors with spurious events |
//! | `busy_poll` | devices that the kernel polls during a sleep ([`BusyPoll`]) |
//! | `tasklet` | [`Tasklet`]: work that follows an event |
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::sync::Arc;
//! use pronto_core::{Clock, Nanos};
//! use pronto_progress::{Engine, Manager, Sleep, Source, Spec, Trigger};
//!
//! struct Never;
//! impl Clock for Never {
//!     fn now(&self) -> Nanos { Nanos::ZERO }
//! }
//!
//! /// A counter that another thread increments.
//! struct Word { shared: Arc<AtomicU32>, seen: u32 }
//! impl Source for Word {
//!     fn poll(&mut self) -> usize {
//!         let now = self.shared.load(Ordering::Acquire);
//!         (now - std::mem::replace(&mut self.seen, now)) as usize
//!     }
//! }
//!
//! let manager = Manager::new(Engine::None, Never)?;
//! let shared = Arc::new(AtomicU32::new(0));
//! let word = Word { shared: Arc::clone(&shared), seen: 0 };
//! let registration = manager.register(Spec::memory("word", Sleep::Notified), word)?;
//! shared.fetch_add(3, Ordering::Release);
//! registration.notifier().notify();
//! assert_eq!(manager.poll(Trigger::Yield), Some(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod busy_poll;
mod descriptor;
mod direct;
mod engine_threads;
mod group;
mod handover;
mod manager;
mod poller;
mod reports;
mod resting;
mod run;
mod sleep_set;
mod source;
mod spares;
mod spurious_events;
mod tasklet;

#[cfg(all(test, loom))]
mod loom_handover;

pub use busy_poll::{BusyPoll, BusyPollError, MOST_PACKETS, busy_poll_offered};
pub use engine_threads::EngineThreads;
pub use manager::{
    Engine, GROUP_INTERVAL, MAX_KINDS, MAX_SOURCES, Manager, Notifier, RegisterError, Registration,
};
pub use poller::panic_message;
pub use reports::{Counters, Failure};
pub use resting::Rouse;
pub use run::EngineDriver;
pub use sleep_set::Watch;
pub use source::{AfterPanic, Cost, Priority, Sleep, Source, Spec, TimeoutFinding, Trigger, Triggers};
pub use spares::{BLOCKS_AFTER, Hire, MAX_SPARES};
pub use tasklet::{Kind, Place, Tasklet};

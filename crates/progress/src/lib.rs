//! The I/O manager: everything that may have an event is a source, and somebody polls it, or everybody sleeps on it.
//!
//! After Trahay, Denis, Aumage and Namyst, "Improving Reactivity and Communication Overlap in MPI using a Generic I/O
//! Manager" (PIOMan, 2007). Independent of any protocol. `docs/decisions/0009-one-manager-for-all-sources.md` says what stands
//! in for the paper's thread scheduler.
//!
//! | file | what |
//! | --- | --- |
//! | `source` | [`Source`], and what its registration says of it: [`Spec`] |
//! | `manager` | [`Manager`]: registration, polls by any thread ([`Trigger`]), wake-ups |
//! | `run` | what the engine's thread does: [`Engine`], [`Keeper`] |
//! | `post`, `spares`, `handover` | who is on duty: the engine's thread, or a spare while that one is blocked ([`Post`]) |
//! | `poller`, `direct`, `group` | the engine half: sources in memory, hot and cold, and those behind one epoll |
//! | `sleep_set`, `stuck` | what the engine sleeps on; descriptors that say ready for ever |
//! | `busy_poll` | devices that the kernel polls within a sleep ([`BusyPoll`]) |
//! | `tasklet` | [`Tasklet`]: what follows from an event |
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
//! /// A word that somebody counts up.
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
mod group;
mod handover;
mod manager;
mod poller;
mod post;
mod reports;
mod run;
mod sleep_set;
mod source;
mod spares;
mod stuck;
mod tasklet;

#[cfg(all(test, loom))]
mod loom_handover;

pub use busy_poll::{BusyPoll, BusyPollError, MOST_PACKETS, busy_poll_offered};
pub use manager::{
    Engine, GROUP_INTERVAL, MAX_KINDS, MAX_SOURCES, Manager, Notifier, RegisterError, Registration,
};
pub use poller::panic_message;
pub use post::Post;
pub use reports::{Counters, Failure};
pub use run::Keeper;
pub use sleep_set::Watch;
pub use source::{AfterPanic, Cost, Net, Priority, Sleep, Source, Spec, Trigger, Triggers};
pub use spares::{BLOCKS_AFTER, Hire, MAX_SPARES};
pub use tasklet::{Kind, Place, Tasklet};

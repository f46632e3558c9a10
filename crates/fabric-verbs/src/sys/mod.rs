//! Verbs objects as values: each owns one object of the library, keeps the objects that it was made from alive, and
//! destroys it in `drop`.
//!
//! # Invariants
//! 1. A pointer in a value here came from the library's successful creating call and is passed to its destroying call
//!    once, in `drop`, after everything made from it is gone: every object made from another holds an `Arc` of it.
//! 2. Memory that is registered stays mapped until the registration is ended: a registration holds its memory's owner.
//! 3. The library's calls used here may be made from any thread; those on one queue pair or completion queue are made
//!    through `&mut`, or by its only owner.
#![expect(unsafe_code, reason = "libibverbs is a C library; this folder is where it is called")]

mod completions;
mod context;
mod memory;
mod queue;
mod receive;

pub(crate) use completions::{Channel, CompletionQueue, Done};
pub use context::Registered;
pub(crate) use context::{AsyncEvent, Context, Domain, Gid, PortAddress, active_ports};
pub(crate) use memory::{Access, MemoryRegion, MemoryWindow, PinnedBytes};
pub(crate) use queue::{COPY, Connect, Queue, QueueSizes, Rights, SendRequest, Verb};
pub(crate) use receive::SharedReceives;

//! The loader of the BPF scheduler in `kernel/scx`, which boosts flagged threads on kernels that accept no modules.
//!
//! [`Loaded`] is the scheduler while the kernel uses it. [`Server`] flags threads on behalf of other processes, which send their requests
//! over a Unix socket ([`pronto_expedite::scx`]). `pronto expedite scx` runs both. When its process ends for any reason, the kernel
//! returns to its own scheduler.
#![deny(unsafe_code)]

mod packet;
mod scheduler;
mod server;
mod settings;
mod shared;

pub use pronto_bpf::Messages;
pub use scheduler::{Exit, LoadError, Loaded, Name, active};
pub use server::{Flags, ListenError, Server};
pub use settings::{NeverCovers, Settings};

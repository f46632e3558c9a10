//! Shared-memory provider of the fabric, for processes on one host.
//!
//! ```text
//!   my segment (I write, you read)            your segment (you write, I read)
//!   +-----------------------------+           +-----------------------------+
//!   | lines: my messages          | --------> |                             |
//!   | done words for your payload | --------> |                             |
//!   | armed word, state, grants   | --------> |                             |
//!   +-----------------------------+           +-----------------------------+
//!   | my send memory              | --------> |                             |
//!   +-----------------------------+           +-----------------------------+
//!          two socket pairs: one wakes a sleeper, one passes memory descriptors
//! ```
//!
//! A [`Listener`] and [`Handshake::dial`] meet on a Unix socket, exchange greetings, and
//! [`establish`](Handshake::establish) a [`Link`]: a queue pair per class and a lifeline. While both sides poll, a
//! message of up to 40 bytes moves as one cache line, without a system call. A payload of up to 232 bytes is copied
//! into the slot next to its line. The sender composes a longer payload in send memory, where the receiver reads it.
//!
//! # Trust in the peer
//! Every byte has one writer, and the kernel enforces it: segments are memory files that cannot change size and that no
//! process can newly map for writing, and send memory is passed as a read-only descriptor. Anything that a peer writes
//! to its own memory is copied out once, and the copy is checked. Processes of the same user are not protected from
//! each other: such a process could reopen send memory for writing, or trace this one.
//!
//! # fork
//! A forked child has none of the mappings, and every operation in it fails. Descriptors are closed on exec.
#![deny(unsafe_code)]

mod announce;
mod bell;
mod by_address;
mod closer;
mod error;
mod fds;
mod form;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod layout;
mod lease;
mod map;
mod memfd;
mod one_sided;
mod passed;
mod queue_pair;
mod receive;
mod region;
mod regions;
mod send;
mod setup;
#[cfg(test)]
mod tests;

pub use error::{SegmentFault, SetupError, SetupFault};
pub use handshake::{Canceller, HANDSHAKE_LIMIT, Handshake, Listener, PeerCredentials, Visitors};
pub use layout::MAX_GRANTS;
pub use lease::ShmLease;
pub use queue_pair::{Counts, ShmQueuePair};
pub use region::ShmRegion;
pub use setup::{Lifeline, Link};

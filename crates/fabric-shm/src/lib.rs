//! Shared-memory provider of the fabric seam, for processes of one host.
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
//!          two socket pairs: one to wake a sleeper by, one to pass descriptors of memory
//! ```
//!
//! A [`Listener`] and [`Handshake::dial`] meet on a Unix socket, exchange greetings, and
//! [`establish`](Handshake::establish) a [`Link`]: a queue pair per class and a lifeline. While both sides poll, a
//! message of up to 40 bytes is one cache line that moves, without a system call; a longer one is composed in send
//! memory, where its receiver reads it.
//!
//! # What a peer can do
//! Every byte has one writer, and the kernel sees to it: segments are memory files that cannot change size and that
//! nobody can newly map for writing; send memory is passed open for reading. What a peer writes to its own memory is
//! copied out once, and the copy is checked. A process of the same user could reopen send memory for writing, or trace us:
//! between processes of one user there is no wall for shared memory to stand on.
//!
//! # fork
//! A forked child has none of the mappings, and every operation in it fails. Descriptors are closed on exec.
#![deny(unsafe_code)]

mod announce;
mod bell;
mod error;
mod fds;
mod form;
mod handshake;
mod layout;
mod lease;
mod map;
mod memfd;
mod one_sided;
mod queue_pair;
mod receive;
mod region;
mod regions;
mod send;
mod setup;
#[cfg(test)]
mod tests;

pub use error::{SegmentFault, SetupError, SetupFault};
pub use handshake::{Canceller, HANDSHAKE_LIMIT, Handshake, Listener, PeerCredentials};
pub use layout::MAX_GRANTS;
pub use lease::ShmLease;
pub use queue_pair::{Counts, ShmQueuePair};
pub use region::ShmRegion;
pub use setup::{Lifeline, Link};

//! The send ring: where outgoing payloads are composed, in the fabric provider's memory, and lie until the transport is done.
//!
//! ```text
//!   SendRing::loan -> Loan --finish--> Frame --post--> Posted --completed--> Frame -> dropped: free
//!                     writable         read only       the transport's       may be read, or posted again
//! ```
//!
//! The memory is one virtual region (comm-layer paper, section 3.2, whose circular buffer this is), in chunks, with a
//! bounded overflow arena at its end:
//!
//! ```text
//!   | chunk 0 | chunk 1 |  ...  | chunk n-1 | strips | overflow slots |
//!     open      open      not made ready      always ready
//! ```
//!
//! Short buffers come from a *strip*, which one thread has to itself ([`strip`]): threads that send together do not touch each
//! other's lines. What is longer, or finds its strip full, comes from the chunks.
//!
//! A chunk is the unit in which the provider makes memory ready and takes it back; no buffer crosses one. In a chunk,
//! buffers are laid one after another, freed in any order, and when the last is free the chunk starts over: one call after
//! the other uses the same few lines for ever, and a burst comes back to the lowest chunk that is free. A buffer that is
//! held for long (a *straggler*) pins its chunk and nothing else. Only when no chunk has room are the overflow slots
//! used, counted; after them the loan is refused, with the straggler's age and owner if there is one.

mod chunk;
mod config;
mod loan;
mod memory;
mod overflow;
mod present;
mod ring;
mod strip;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use config::{OVERFLOW_CLASSES, Placement, RingConfig, SlotClass};
pub use loan::{Frame, Loan, Posted};
pub(crate) use present::PresentRing;
pub use ring::{Chunk, Exhausted, Oldest, RingStats, SendRing};

/// Alignment of every buffer, and the unit of allocation: a cache line.
pub const ALIGNMENT: u32 = 64;

/// Whole lines that `len` bytes take; an empty buffer takes one, so that it has a place of its own.
const fn lines(len: u32) -> u32 {
    if len == 0 { 1 } else { len.div_ceil(ALIGNMENT) }
}

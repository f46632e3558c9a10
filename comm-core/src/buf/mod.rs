//! The send ring: memory of the fabric provider in which outgoing payloads are composed, and stay until their completion.
//!
//! ```text
//!   SendRing::loan -> Loan --finish--> Frame --post--> Posted --completed--> Frame -> dropped: free
//!                     writable         read only       in use by transport   may be read, or posted again
//! ```
//!
//! The memory is one virtual region, divided into chunks, with a bounded overflow arena at its end. It implements the circular
//! buffer of the comm-layer paper, section 3.2:
//!
//! ```text
//!   | chunk 0 | chunk 1 |  ...  | chunk n-1 | arenas | overflow slots |
//!     open      open      not made ready      always ready
//! ```
//!
//! Short buffers come from a thread arena ([`thread_arena`]), which belongs to one thread: threads that send concurrently do not
//! share cache lines. A longer buffer, or one for which the arena has no room, comes from the chunks.
//!
//! A chunk is the unit in which the provider makes memory ready and reclaims it; no buffer crosses a chunk boundary. In a
//! chunk, buffers are allocated in order and freed in any order. When the last one is freed, the chunk is reused from the
//! start. Therefore consecutive calls use the same few lines, and a burst returns to the lowest free chunk. A buffer that is
//! held for long (a *straggler*) pins only its own chunk. If no chunk has room, the overflow slots are used and counted. If
//! these are in use, too, the loan is refused, with age and owner of the straggler if there is one.

mod chunk;
mod config;
mod loan;
mod memory;
mod overflow;
mod present;
mod ring;
mod thread_arena;

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

/// Returns the number of lines for `len` bytes. An empty buffer takes one line, so that its address is unique.
const fn lines(len: u32) -> u32 {
    if len == 0 { 1 } else { len.div_ceil(ALIGNMENT) }
}

//! The TCP provider of the fabric seam: hosts without RDMA, and the default between hosts.
//!
//! A [`Link`] is two connections, one per class, so that control never queues behind bulk. Each is a [`TcpQueuePair`]:
//! everything posted between two doorbells leaves in one vectored write, everything that has arrived comes in by one
//! receive. Long payloads go out of send memory, and into receive buffers, without a copy in between. One-sided
//! operations are frames that the target executes while it polls.
//!
//! # Sleeping
//! The channel is the socket, waited for level-triggered: there is nothing to arm in the kernel, and what has arrived
//! before keeps it readable. Right after `arm` the next poll leaves one receive out, since the sleep itself finds what
//! came meanwhile. Ask [`channel`](pronto_core::fabric::QueuePair::channel) before every sleep:
//!
//! - *writable* only while the socket is full and something is left to send (else it would wake the sleeper at once, for
//!   nothing); after it, `poll_send` sends on. If others post while it sleeps, [`TcpQueuePair::on_blocked`] says when to
//!   ask again.
//! - *readable* except while a message waits for a receive buffer. That happens only while this side holds as many leases
//!   as the connection's receive depth, and the pool's budget is used up. Then the event is on [`ReceivePool::channel`],
//!   which the sleeping thread watches as well: clear it, then poll.
//!
//! # Copies
//! Up to 1 KiB of payload is copied into the staging ring. More is written from send memory where it lies. A region's
//! bytes may change while they are sent, so they are copied out 64 KiB at a time: `by_reference` is false. Data of
//! one-sided operations travels in frames of at most 64 KiB; a read's answer lets messages pass between two of them.
//!
//! # Trust
//! Traffic is not encrypted. Listeners and diallers refuse addresses outside the host unless told
//! [`Plaintext::IUnderstand`].
#![deny(unsafe_code)]

mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod inbound;
mod one_sided;
mod outbound;
mod pool;
mod queue_pair;
mod random;
mod setup;
mod silence;
mod socket;
mod staging;
mod tuning;

#[cfg(test)]
mod tests;

pub use error::SetupError;
pub use pool::{Lease, ReceivePool};
pub use queue_pair::{Counters, TcpQueuePair};
pub use setup::{
    Canceller, Handshake, Incoming, Link, Listener, ListenerCounters, MAX_HALF_OPEN, Options, Plaintext,
};
pub use socket::Calls;
pub use tuning::{BusyPolling, SocketOffers, socket_offers};

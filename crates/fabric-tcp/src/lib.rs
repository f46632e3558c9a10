//! TCP provider of the fabric: for hosts without RDMA, and the default between hosts.
//!
//! A [`Link`] is two connections, one per class, so that control never queues behind bulk. Each is a [`TcpQueuePair`].
//! All messages posted between two doorbells leave in one vectored write, and one receive takes everything that has
//! arrived. Long payloads are sent from send memory, and received into receive buffers, without a copy in between.
//! One-sided operations are frames that the target executes while it polls.
//!
//! # Sleeping
//! The channel is the socket, waited for level-triggered: nothing is armed in the kernel, and data that arrived earlier
//! keeps the socket readable. The first poll after `arm` skips one receive, since the sleep itself notices data that
//! arrived meanwhile. Call [`channel`](pronto_core::fabric::QueuePair::channel) before every sleep:
//!
//! - *writable* only while the socket is full and output waits (otherwise it would wake the sleeper immediately,
//!   without need). After such an event, `poll_send` continues sending. If other threads post while one sleeps,
//!   [`TcpQueuePair::on_blocked`] reports when to query the channel again.
//! - *readable* except while a message waits for a receive buffer. That happens only while this side holds as many
//!   leases as the connection's receive depth and the pool's budget is used up. The event is then on
//!   [`ReceivePool::channel`], which the sleeping thread must watch, too: clear it, then poll.
//!
//! # Copies
//! Payloads of up to 1 KiB are copied into the staging ring. The kernel takes longer ones from send memory or from their
//! region, 64 KiB at a time, and puts them into receive buffers and regions. Bytes that arrive together with their header are
//! copied once more: for reads of this side at most a kilobyte. Data of one-sided operations is sent in frames of at most
//! 64 KiB; messages can be sent between two frames of the response to a read.
//!
//! # Trust
//! Traffic is not encrypted. Listeners and diallers reject addresses outside the host unless the caller passes
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
mod parts;
mod piece;
mod pool;
mod queue_pair;
mod random;
mod setup;
mod silence;
mod socket;
mod staging;
mod tls;
mod tuning;

#[cfg(test)]
mod tests;

pub use error::SetupError;
pub use pool::{Lease, ReceivePool};
pub use queue_pair::{Counters, TcpQueuePair};
pub use setup::{
    Canceller, Handshake, Incoming, Link, Listener, ListenerCounters, MAX_HALF_OPEN, Options, Plaintext,
    TlsBy,
};
pub use socket::Calls;
pub use tls::Tls;
pub use tuning::{BusyPolling, SocketOffers, socket_offers};

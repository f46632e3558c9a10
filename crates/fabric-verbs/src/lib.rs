//! The RDMA verbs provider of the fabric seam: InfiniBand, RoCE, and soft-RoCE.
//!
//! A [`Link`] is two reliable connected queue pairs, one per class, between a port of each node. Which port: the one whose
//! address is that of the connection over which the two nodes have met ([`Device::for_address`]).
//!
//! # A message's way
//! - Up to 40 bytes of payload travel in the message's line; up to 232 in a place of 256 bytes beside it, where the device takes so
//!   many inline: they are copied when they are posted, and it is told to copy them when the doorbell rings. Their buffers are free at
//!   once, and nothing is heard of them again: the completions of sends are looked at while a request is outstanding that was asked
//!   to complete, and now and then for one that has failed (`reaping.rs`). The receiver copies them out and posts the receive again.
//! - Up to 2,024 bytes go with their header as one gathered message into one of the receive buffers that all connections of
//!   the port share: memory goes with what may be under way, not with the longest message.
//! - A longer payload waits at its sender's: the message carries the key of a type-2 memory window onto it, the receiver
//!   reads it into a registered buffer, hands the message out in its order, and says so. The sender ends the window; only
//!   then does its work request complete. (The receiver could end it with what it says, by send with invalidate; but
//!   soft-RoCE does not tell the sender that it did, and whoever owns the buffer should not take the peer's word for it.)
//!
//! # Registration
//! Never on the way of a message of up to 64 KiB. Send memory is registered by `prepare`, chunk by chunk; receive buffers
//! when a connection is made; buffers for long payloads ahead of need. A region that payloads are sent from by reference is
//! registered by `register`; one that was not is copied, or, for payloads of more than 64 KiB, registered
//! once, which is counted.
//!
//! # Trust
//! No registration has a remote right. What a peer can reach is bound to its one queue pair by a window: granted ranges,
//! and payloads that wait to be read. RDMA traffic is neither encrypted nor authenticated: whoever can put packets on the
//! network, and guesses numbers of 24 bits, can disturb a connection; whoever listens reads all.
//!
//! # Sleeping
//! The channel of a link's two queue pairs is one epoll descriptor (and another one for callers), of three for each: the completion channel of both queues, a bell
//! for buffers that come back, and a socket to the peer that carries nothing and ends with it. A device cannot take back that it was armed: after
//! `disarm` one event may still come, with nothing to show for it. A queue that is armed is not armed again. Whoever polls without ever sleeping is told of the
//! peer's end by a [`Lifeline`], which somebody else watches.
#![deny(unsafe_code)]

mod account;
mod alive;
mod arming;
mod buddies;
mod connecting;
mod device;
mod ending;
mod error;
mod ffi;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod granting;
mod inbox;
mod lease;
mod offer;
mod pool;
mod queue_pair;
mod reaping;
mod receives;
mod receiving;
mod regions;
mod sending;
mod setup;
mod sleep;
mod sys;
mod waiters;
mod windows;

pub use alive::Lifeline;
pub use device::{Device, DeviceCounters, Place, Registration};
pub use error::VerbsError;
pub use lease::Lease;
pub use offer::OFFER_LEN;
pub use queue_pair::{Counters, VerbsQueuePair};
pub use setup::{Link, Offer};
pub use sys::Registered;

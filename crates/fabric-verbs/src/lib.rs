//! RDMA verbs provider of the fabric: InfiniBand, RoCE, and soft-RoCE.
//!
//! A [`Link`] is two reliable connected queue pairs, one per class, between a port of each node. The port is the one
//! with the address of the connection over which the two nodes have met ([`Device::for_address`]).
//!
//! # Path of a message
//! - A payload of up to 40 bytes is sent in the request's line. A payload of up to 232 bytes is sent in a slot of 256
//!   bytes, if the device copies that many bytes inline. The payload is copied when it is posted, and the device copies
//!   it when the doorbell rings. Its buffer is free immediately, and no completion follows. So the completions of sends
//!   are polled only while a signalled request is outstanding, and occasionally to detect a failed one (`reaping.rs`).
//!   The receiver copies the payload out and posts the receive again.
//! - Up to 2,024 bytes are sent with their header as one gathered message into one of the receive buffers that all
//!   connections of the port share: memory depends on the number of messages in flight, not on the longest message.
//! - A longer payload waits in its sender's memory. The message carries the key of a type-2 memory window onto it. The
//!   receiver reads the payload into a registered buffer, delivers the message in order, and reports it. The sender
//!   ends the window, and only then does its work request complete. (The receiver could end the window with its report,
//!   by send with invalidate. But soft-RoCE does not notify the sender of that, and the owner of the buffer should not
//!   have to trust the peer.)
//!
//! # Registration
//! A message of up to 64 KiB never waits for a registration. Send memory is registered by `prepare`, chunk by chunk;
//! receive buffers when a connection is made; buffers for long payloads ahead of need. A region for sends by reference
//! is registered by `register`. A payload from an unregistered region is copied if it has at most 64 KiB; otherwise,
//! the region is registered once, which is counted.
//!
//! # Trust
//! No registration has a remote right. Everything that a peer can reach is bound to its one queue pair by a window:
//! granted ranges, and payloads that wait to be read. RDMA traffic is neither encrypted nor authenticated. Anyone who
//! can inject packets into the network and guess numbers of 24 bits can disturb a connection; anyone who can listen can
//! read all traffic.
//!
//! # Sleeping
//! The channel of a link's two queue pairs is one epoll descriptor (and another one for callers). It contains three
//! descriptors of each queue pair: the completion channel of both queues, a bell for returned buffers, and a socket to
//! the peer that carries no data and ends with it. A device cannot withdraw a request for an event: after disarming,
//! one spurious event may still come. An armed queue is not armed again. Threads that poll and never sleep need a
//! [`Lifeline`], which another thread watches, to learn of the peer's end.
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

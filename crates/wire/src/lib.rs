//! Bytes to headers and back: every byte that travels between two nodes is laid out here.
//!
//! Two levels. A *raw* value is what a peer alleges: fixed layout, nothing believed. A *checked* value holds only what
//! can legally be sent; it is made by one constructor, which is where every kind, flag and length is examined. What can
//! be built can be emitted and read back (tests in each module).
//!
//! The crate knows nothing of sockets, memory or time. Byte tables: `docs/protocol.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod class;
pub mod greeting;
pub mod header;
pub mod id;
pub mod inline;

pub use class::Class;
pub use greeting::{Greeting, GreetingFault, Refusal, TypeEntry, Windows};
pub use header::{
    Acks, CallId, FailureCode, HEADER_LEN, Header, HeaderFault, INLINE_PAYLOAD, Kind, LINE_LEN, RawHeader,
    Request,
};
pub use id::{Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeId};
pub use inline::InlinePayload;

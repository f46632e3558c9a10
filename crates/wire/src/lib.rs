//! The wire format: conversion between bytes and headers, for every byte that travels between two nodes.
//!
//! There are two levels. A *raw* value is an unchecked claim of a peer, in fixed layout. A *checked* value can only hold
//! valid content: its one constructor checks every kind, flag and length. Every checked value can be encoded and decoded
//! again (tests in each module).
//!
//! The crate does not depend on sockets, memory or time. `docs/protocol.md` has tables of the bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod class;
pub mod greeting;
pub mod header;
pub mod id;
pub mod inline;
pub mod pressure;

pub use class::Class;
pub use greeting::{Greeting, GreetingFault, GreetingRefusal, TypeEntry, Windows};
pub use header::{
    Acks, CallId, FailureCode, FirstWords, HEADER_LEN, Header, HeaderFault, INLINE_PAYLOAD, Kind, LINE_LEN,
    RawHeader, Request,
};
pub use id::{Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeId};
pub use inline::InlinePayload;
pub use pressure::Pressure;

//! Typed messages and calls: messages are plain structs.
//!
//! [`codec`] encodes and decodes values, [`message`] defines message types. Both traits are usually derived;
//! `docs/messages.md` describes them in full.
//!
//! ```
//! use pronto_rpc::{Message, Order, Payload, Request, decode_message, encode_message};
//!
//! #[derive(Message)]
//! #[message(name = "demo.sum")]
//! struct Sum {
//!     total: u64,
//! }
//!
//! #[derive(Message, Debug, PartialEq)]
//! #[message(name = "demo.add", reply = Sum, class = control, order = by_key(account), idempotent)]
//! struct Add {
//!     account: u32,
//!     access: Access,
//!     values: Vec<u64>,
//! }
//!
//! #[derive(Payload, Debug, PartialEq)]
//! enum Access {
//!     Read,
//!     Write { exclusive: bool },
//! }
//!
//! let add = Add { account: 7, access: Access::Write { exclusive: true }, values: vec![1, 2] };
//! assert_eq!((Add::ORDER, add.key()), (Order::ByKey, 7));
//! assert_eq!(<Add as Request>::Reply::NAME, "demo.sum");
//!
//! let mut buffer = [0; 64];
//! let len = encode_message(&add, &mut buffer)?;
//! assert_eq!((len, add.encoded_len()), (26, 26));
//! assert_eq!(decode_message(&buffer[..len]), Ok(add));
//! # Ok::<(), pronto_rpc::Full>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
// So that derived code, which names `::pronto_rpc`, also compiles inside this crate.
extern crate self as pronto_rpc;

mod arrived;
pub mod async_handler;
mod awaiting;
mod bytes;
mod calling;
pub mod codec;
mod decoding;
mod encode;
pub mod error;
pub mod handler;
pub mod host;
pub mod in_place;
pub mod message;
pub mod multicall;
pub mod one_sided;
pub mod peer;
pub mod pending;
pub mod rendezvous;

pub use async_handler::AsyncContext;
pub use bytes::Bytes;
pub use codec::{
    Full, Malformed, Payload, Reader, Source, Writer, decode_message, decode_message_into, encode_message,
};
pub use error::{CallError, CallRejection, HandlerError};
pub use handler::{Context, InlineContext, IntoResponse, Responder, Route, RouteMode};
pub use host::Host;
pub use in_place::{InPlace, Unreadable};
pub use message::{Key, Message, Order, Request};
pub use multicall::multicall;
pub use one_sided::{AccessError, RemoteMemory};
pub use peer::{DEFAULT_TIMEOUT, Peer, Together};
pub use pending::{Pending, with_bytes};
pub use pronto_core::session::Executed;
pub use pronto_rpc_macros::{Message, Payload};
pub use pronto_wire::{Class, Epoch, FailureCode, LayoutHash, NameHash, NodeId, ServiceId};
pub use rendezvous::{MessageSource, Receive, ReceiveError, Sending, TransferError};

/// Items that derived code uses. They are not part of the stable interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::codec::layout::{largest, smallest, sum};
    pub use crate::codec::{Fault, Full, Malformed, Payload, Reader, Source, Writer};
    pub use crate::message::{Key, Message, Order, Request};
    pub use pronto_wire::{Class, LayoutHash, NameHash};
}

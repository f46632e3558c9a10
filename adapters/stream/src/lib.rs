//! Byte streams over a peer of a Pronto node: ordered, flow-controlled, for code that expects a socket.
//!
//! [`Streams`] adds the streams to a node. One side listens under the name of a service ([`Streams::listen`]), the other one connects
//! to it ([`Streams::connect`]). Both get a [`PeerStream`], which implements `AsyncRead` and `AsyncWrite` of tokio (feature `tokio`, on by
//! default), and those of futures-io (feature `futures-io`). With the feature `tonic`, an unmodified tonic server
//! serves the connections of a [`Listener`].
//!
//! `docs/decisions/0034-byte-streams-over-notifications.md` describes the protocol.
#![forbid(unsafe_code)]

mod endpoint;
mod error;
mod frames;
#[cfg(feature = "futures-io")]
mod futures;
mod listener;
mod poster;
mod state;
mod stream;
mod table;
#[cfg(feature = "tokio")]
mod traits;

pub use endpoint::{StreamLimits, Streams};
pub use error::{ConnectError, Refusal, StreamError};
pub use listener::Listener;
pub use stream::PeerStream;
#[cfg(feature = "tonic")]
pub use traits::PeerInfo;

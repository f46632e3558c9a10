//! Low-latency RPC between nodes of a distributed operating system.
//!
//! A [`Node`] listens, connects to its peers and handles message types. A [`Peer`] is the handle through which a program calls
//! another node. The same code runs over shared memory, TCP and RDMA. `docs/messages.md` describes how to declare messages,
//! `docs/calls.md` how to call and handle them, and how calls fail, `docs/embedding.md` how a program with a node begins and ends.
//!
//! ```
//! use pronto::{Message, Node};
//!
//! #[derive(Message)]
//! #[message(name = "demo.sum")]
//! struct Sum { total: u64 }
//!
//! #[derive(Message)]
//! #[message(name = "demo.add", reply = Sum)]
//! struct Add { values: Vec<u64> }
//!
//! let server = Node::builder(1)
//!     .listen("shm:@pronto-doc")
//!     .handle(|_, add: Add| Sum { total: add.values.iter().sum() })
//!     .start()?;
//! let client = Node::builder(2).peer(1, "shm:@pronto-doc").start()?;
//!
//! let peer = client.wait_for_peer(1, std::time::Duration::from_secs(5))?;
//! assert_eq!(peer.call(&Add { values: vec![1, 2, 3] })?.total, 6);
//! # drop(server);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub use pronto_core::buf::Placement;
pub use pronto_core::fabric::{Grant, GrantError, GrantId, Memory, Region, Rights};
pub use pronto_core::session::{
    Doorbells, DownCause, Event, Executed, Limits, LinkInfo, MessageName, SendError,
};
pub use pronto_core::{Nanos, WaitPolicy};
pub use pronto_node::{
    Address, Boost, Builder, Config, ConfigError, Connect, CoscheduleConfig, CoscheduleGroup, Down,
    EVENTS_HELD, Events, HandlerFuture, MAX_FUTURES, Missed, Node, NodeError, NodeHost, PastConfig,
    PeerStatus, Rdma, SPIN_DOWN, Status, map_file, measure_thresholds, region,
};
pub use pronto_node::{admin, credentials, progress, topology};
pub use pronto_rpc as rpc;
pub use pronto_rpc::{
    AccessError, Bytes, CallError, CallRejection, Class, DEFAULT_TIMEOUT, Epoch, FailureCode, HandlerError,
    InPlace, Key, LayoutHash, Message, MessageSource, NameHash, NodeId, Order, Payload, ReceiveError,
    RemoteMemory, Request, Route, ServiceId, TransferError, Unreadable,
};
pub use pronto_wire::Pressure;

#[doc(hidden)]
pub use pronto_rpc::__private;

/// A peer of a [`Node`], to which calls and notifications are sent. It is cheap to clone, and any thread may use it.
///
/// `peer.call(&request)` sends a request and waits for its reply, `start` returns a [`Pending`] reply, `notify` sends one way.
/// `waiting` and `expecting` return a handle whose calls wait in another way. `post`, `send` and `start_send` move long messages into
/// posted buffers, `grant`, `read_memory`, `write_memory`, `compare_swap` and `fetch_add` access memory of the other node. All methods
/// are those of [`pronto_rpc::Peer`].
pub type Peer = pronto_rpc::Peer<NodeHost>;
/// A call in progress: `wait`, `poll`, `.await` or `cancel` it. Its methods are those of [`pronto_rpc::Pending`].
pub type Pending<M> = pronto_rpc::Pending<M, NodeHost>;
/// A posted receive.
pub type Receive = pronto_rpc::Receive<NodeHost>;
/// A send into a posted receive, in progress.
pub type Sending = pronto_rpc::Sending<NodeHost>;
/// The context of a handler that runs on the worker pool.
pub type Context<'a> = pronto_rpc::Context<'a, NodeHost>;
/// The context of an async handler, which may be kept.
pub type AsyncContext = pronto_rpc::AsyncContext<NodeHost>;
/// The context of an inline handler.
pub type InlineContext<'a> = pronto_rpc::InlineContext<'a, NodeHost>;
/// The callee's end of a call, which may reply after the handler has returned.
pub type Responder<R> = pronto_rpc::Responder<R, NodeHost>;

/// The program of `docs/tutorial.md`, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
pub struct Tutorial;

/// The examples of `docs/messages.md`, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/messages.md")]
pub struct Messages;

/// The example of `docs/sources.md`, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sources.md")]
pub struct Sources;

/// The example of `docs/calls.md`, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/calls.md")]
pub struct Calls;

/// The program of `docs/embedding.md`, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
pub struct Embedding;

/// The program of `README.md`, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

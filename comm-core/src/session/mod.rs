//! One peer: the state that two nodes share, carried by one link after another.
//!
//! A session has two halves. Any thread reaches the *shared half* ([`Shared`]: call slots, credits, the peer's types, the submission
//! queue) through `&self`. The *engine half* ([`Engine`]: links, receive side, timers) is behind one try-lock,
//! which every polling thread takes. A sender never waits for that lock: if another thread holds it, the sender puts the
//! message into the submission queue, and the holder checks the queue before it releases the lock and once more afterwards.
//!
//! # Order of calls
//! 1. [`Session::new`], then [`Session::install`] with each link on which the greetings agreed. [`Shared::is_up`] is true from
//!    the first one until the session ends.
//! 2. While it is up: [`Session::call`] or [`Session::notify`] to send; [`Session::turn`] or [`Session::wait`] to receive and to
//!    make progress; [`Session::tick`] when [`Ticked::next_due`] has come, and every few milliseconds while a call is open.
//! 3. A call slot that [`Session::call`] returned is freed by exactly one of: [`Session::take`] after the end, a
//!    [`Session::wait`] that returns the end, [`Session::abandon`].
//! 4. Before a thread sleeps: [`Session::arm`], one more turn, and sleep only if that turn found nothing.
//! 5. [`Session::take_down`] ends the session. Another link may be installed afterwards.
//!
//! # A request's path through this folder
//! [`Session::call`] takes a slot and a credit. `engine::outbound` writes the header and posts. On the other side, `engine::inbound`
//! checks the message and passes it, with its [`RequestToken`], to the [`Sink`]; the response goes back through `engine::outbound`.
//! `engine::inbound` ends the call in its slot (`calls`), and the waiter takes the [`End`].
//!
//! # Layers
//! The modules below depend on each other in one direction, which `cargo xtask tidy` checks: values and parts, each of which owns its
//! fields; [`Shared`], made of the parts that any thread accesses; [`Engine`], which depends on the shared half but not on the
//! session; and `api`, the methods of [`Session`].

// Values that the parts, the engine and the users of a session exchange.
mod end;
mod greeting;
mod inbound;
mod limits;
mod link;
mod one_sided;
mod outgoing;
mod pausing;
mod redial;
mod response;
mod send_error;
mod spec;
mod stream;
mod token;
mod waiter;

// Parts: each owns its fields, and depends neither on the shared half nor on the engine.
mod admission;
mod backlog;
mod by_slot;
mod calls;
mod connection;
mod credit;
mod doorbells;
mod idleness;
mod last_down;
mod peer_types;
mod permissions;
mod phase;
mod pressure;
mod rendezvous;
mod response_overflow;
mod work;

// The two halves, and the session made of them.
mod api;
mod engine;
mod shared;

pub use admission::{RoomFor, RoomRequest, RoomState, RoomTicket, WhenDown};
pub use api::{AfterRefusal, Callee, DetachedToken, FastOutcome, ReplySlots, RoomWait, Session, WaitOutcome};
pub use calls::{CallTable, Expects};
pub use credit::{Credit, Credits, Returned};
pub use doorbells::Doorbells;
pub use end::{End, Executed};
pub use engine::{Engine, Progress, Ticked};
pub use greeting::{Agreement, Authenticated, Evidence, Identity, agree, greet, introduce};
pub use inbound::{Inbound, Sink};
pub use response::Response;

pub use limits::{CONTROL_WINDOW, Limits, MAX_CALLS};
pub use link::{DownCause, Event, LinkInfo, Links};
pub use one_sided::Access;
pub use outgoing::{Carrier, Outgoing, OutgoingPayload};
pub use peer_types::{PeerTypes, TypeKey, TypeLookup};
pub use permissions::Permissions;
pub use pressure::HeaderPressure;
pub use redial::Redial;
pub use rendezvous::{
    Chunking, LeftSend, Lent, MAX_PARKED_LEN, MAX_PIECES, MAX_RECEIVES, MAX_SENDS, MAX_UNEXPECTED,
    NotReceived, Offer, Offered, Pieces,
};
pub use send_error::{MessageName, SendError};
pub use shared::Shared;
pub use spec::CallSpec;
pub use token::{RequestToken, TokenSlot};

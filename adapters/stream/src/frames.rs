//! The messages of the protocol. All but the credits are in class bulk, so that they arrive in the order in which they were sent.

use pronto::{Bytes, Message, Payload};

use crate::error::Refusal;

/// The side that sends a message: streams of both directions may have one number.
#[derive(Payload, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Opener,
    Acceptor,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Opener => Self::Acceptor,
            Self::Acceptor => Self::Opener,
        }
    }
}

/// A stream, as the sender of a message knows it.
#[derive(Payload, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    /// Counted by the opener, and never used again.
    pub(crate) number: u64,
    pub(crate) sender: Side,
}

/// Opens a stream. The reply has the window of the acceptor, and the error is a [`Refusal`].
#[derive(Message, Debug)]
#[message(name = "pronto.stream.open", reply = Opened, class = bulk)]
pub(crate) struct Open {
    pub(crate) number: u64,
    pub(crate) service: String,
    /// Bytes that the acceptor may send before the first credit.
    pub(crate) window: u32,
}

#[derive(Message, Debug)]
#[message(name = "pronto.stream.opened", class = bulk)]
pub(crate) struct Opened {
    pub(crate) window: u32,
}

/// One piece of the bytes. `offset` is the number of bytes before it, so that a lost piece is noticed.
#[derive(Message, Debug)]
#[message(name = "pronto.stream.data", class = bulk)]
pub(crate) struct Data {
    pub(crate) stream: StreamId,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// The end of the bytes of one direction.
#[derive(Message, Debug)]
#[message(name = "pronto.stream.finish", class = bulk)]
pub(crate) struct Finish {
    pub(crate) stream: StreamId,
    pub(crate) offset: u64,
}

/// The end of both directions: the sender has dropped its stream.
#[derive(Message, Debug)]
#[message(name = "pronto.stream.reset", class = bulk)]
pub(crate) struct Reset {
    pub(crate) stream: StreamId,
}

/// Permission to send bytes up to the offset `until`.
#[derive(Message, Debug)]
#[message(name = "pronto.stream.credit")]
pub(crate) struct Credit {
    pub(crate) stream: StreamId,
    pub(crate) until: u64,
}

/// The outcome of an [`Open`] at the acceptor.
pub(crate) type OpenResult = Result<Opened, Refusal>;

//! Message types: payloads with a name, a class and an order.

use alloc::string::String;

use pronto_wire::{Class, Epoch, LayoutHash, NameHash, NodeId, ServiceId};

use crate::codec::Payload;

/// The order of handler executions. Inline handlers always run one at a time; the node that registers a handler chooses whether it runs
/// inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Handlers of this type may run concurrently: any worker takes the next message.
    Unordered,
    /// Handlers of this type run one at a time, in the order in which each sender posted the messages.
    Ordered,
    /// Handlers of messages with the same [`Message::key`] run one at a time; each key has a lane.
    ByKey,
}

/// A payload that is a message: a notification, a request or a reply. Usually derived.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "not a message",
    note = "write `#[derive(Message)]` and `#[message(name = \"service.verb\")]` above it"
)]
pub trait Message: Payload + Send + 'static {
    /// The type's name, the same on every node.
    const NAME: &'static str;
    /// The connection that it travels on.
    const CLASS: Class;
    /// The order of executions of its handler.
    const ORDER: Order;
    /// True if the request may be executed twice. Such a request is sent again if its outcome is unknown.
    const IDEMPOTENT: bool;

    /// Returns the lane of this message, if the order is [`Order::ByKey`].
    #[inline]
    fn key(&self) -> u64 {
        0
    }

    /// Returns the hashes that must be equal on both ends: of the name and of the layout. The layout of a request includes its reply.
    #[inline]
    fn type_key() -> (NameHash, LayoutHash) {
        const { (NameHash::of(Self::NAME), Self::LAYOUT) }
    }
}

/// A message that gets exactly one reply. Derived if `reply = T` is given.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request",
    label = "has no reply",
    note = "name the type of its reply: `#[message(name = \"service.verb\", reply = T)]`"
)]
pub trait Request: Message {
    /// The type of the reply.
    type Reply: Message;
}

/// The empty reply, for requests that return nothing.
impl Message for () {
    const NAME: &'static str = "pronto.done";
    const CLASS: Class = Class::Control;
    const ORDER: Order = Order::Unordered;
    const IDEMPOTENT: bool = false;
}

/// A value that selects a lane. Numbers are used as they are, strings are hashed (FNV-1a, 64 bit).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a message",
    label = "not a key",
    note = "keys: integers of up to 64 bits, bool, char, String, ids"
)]
pub trait Key {
    /// Returns the lane. If two keys share a lane, their handlers run one at a time, which is correct but slower.
    fn lane(&self) -> u64;
}

macro_rules! number_keys {
    ($($number:ident as $unsigned:ident)*) => {$(
        impl Key for $number {
            #[inline]
            fn lane(&self) -> u64 {
                u64::from(self.cast_unsigned())
            }
        }

        impl Key for $unsigned {
            #[inline]
            fn lane(&self) -> u64 {
                u64::from(*self)
            }
        }
    )*};
}

number_keys!(i8 as u8 i16 as u16 i32 as u32 i64 as u64);

impl Key for bool {
    #[inline]
    fn lane(&self) -> u64 {
        u64::from(*self)
    }
}

impl Key for char {
    #[inline]
    fn lane(&self) -> u64 {
        u64::from(*self)
    }
}

impl Key for String {
    #[inline]
    fn lane(&self) -> u64 {
        NameHash::of(self).0
    }
}

macro_rules! id_keys {
    ($($id:ident)*) => {$(
        impl Key for $id {
            #[inline]
            fn lane(&self) -> u64 {
                u64::from(self.0)
            }
        }
    )*};
}

id_keys!(NodeId ServiceId Epoch);

//! What a message type is: a payload with a name, a class and an order.

use alloc::string::String;

use pronto_wire::{Class, Epoch, LayoutHash, NameHash, NodeId, ServiceId};

use crate::codec::Payload;

/// Which handler executions wait for each other. Inline handlers run one by one anyway; that is chosen where they are
/// registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// None: any worker takes the next message.
    Unordered,
    /// All of this type: in the order in which each sender posted them, one at a time.
    Ordered,
    /// Those of this type with the same key, as [`Message::key`] says; each key has its lane.
    ByKey,
}

/// A payload that travels by itself: a notification, a request or a reply. Derived.
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
    /// Which executions of its handler wait for each other.
    const ORDER: Order;
    /// Whether it may be executed twice: such a request is sent again when its outcome is unknown.
    const IDEMPOTENT: bool;

    /// The lane of this message, if the order is [`Order::ByKey`].
    #[inline]
    fn key(&self) -> u64 {
        0
    }

    /// What both ends must agree on: the name, and the layout; a request's includes its reply.
    #[inline]
    fn type_key() -> (NameHash, LayoutHash) {
        const { (NameHash::of(Self::NAME), Self::LAYOUT) }
    }
}

/// A message that is answered by exactly one reply. Derived where `reply = T` is given.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request",
    label = "has no reply",
    note = "name the type of its reply: `#[message(name = \"service.verb\", reply = T)]`"
)]
pub trait Request: Message {
    /// The answer.
    type Reply: Message;
}

/// The empty reply: done.
impl Message for () {
    const NAME: &'static str = "pronto.done";
    const CLASS: Class = Class::Control;
    const ORDER: Order = Order::Unordered;
    const IDEMPOTENT: bool = false;
}

/// A value that picks a lane. Numbers stand for themselves, texts are hashed (FNV-1a, 64 bit).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a message",
    label = "not a key",
    note = "keys: integers of up to 64 bits, bool, char, String, ids"
)]
pub trait Key {
    /// The lane. Two values with the same lane wait for each other, which is never wrong, only slower.
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

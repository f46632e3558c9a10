//! Identifiers on the wire: nodes, incarnations, sessions, services, message types.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A configured node id, unique among the nodes that communicate.
    NodeId(u16);
    /// The number of one incarnation of a node. Drawn at random at start, so that two incarnations of one node differ.
    Epoch(u64);
    /// The number of a session, which two incarnations share over successive links. Drawn by the node that accepted the first link.
    SessionId(u64);
    /// A service of a node. Messages are addressed to a node and a service.
    ServiceId(u16);
    /// A message type within one session, numbered by the node that handles it.
    TypeId(u16);
    /// A message type's name, hashed (FNV-1a, 64 bit).
    NameHash(u64);
    /// A message type's layout, hashed over field names and types. If the two ends differ, the type is refused.
    LayoutHash(u64);
}

impl NameHash {
    /// Returns the hash of a type's name. FNV-1a is stable and can be computed in a constant.
    pub const fn of(name: &str) -> Self {
        Self(fnv1a(FNV_OFFSET, name.as_bytes()))
    }
}

impl LayoutHash {
    /// Returns the hash of a layout's description, for example `struct{a:u64,b:[u8;4]}`.
    pub const fn of(description: &str) -> Self {
        Self(fnv1a(FNV_OFFSET, description.as_bytes()))
    }

    /// Returns this hash extended by text.
    #[must_use]
    pub const fn text(self, text: &str) -> Self {
        Self(fnv1a(self.0, text.as_bytes()))
    }

    /// Returns this hash extended by another layout, as for the fields of a struct.
    #[must_use]
    pub const fn then(self, inner: Self) -> Self {
        Self(fnv1a(self.0, &inner.0.to_le_bytes()))
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

const fn fnv1a(mut state: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        state = (state ^ bytes[i] as u64).wrapping_mul(FNV_PRIME);
        i += 1;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_vectors() {
        assert_eq!(NameHash::of("").0, 0xcbf2_9ce4_8422_2325);
        assert_eq!(NameHash::of("a").0, 0xaf63_dc4c_8601_ec8c);
        assert_eq!(NameHash::of("foobar").0, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn layout_hash_is_order_sensitive() {
        let (a, b) = (LayoutHash::of("u64"), LayoutHash::of("u32"));
        assert_ne!(LayoutHash::of("struct").then(a).then(b), LayoutHash::of("struct").then(b).then(a));
    }
}

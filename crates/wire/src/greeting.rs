//! The first message that each of two nodes sends on a new link.
//!
//! Each side sends one greeting (the dialling side first) or a refusal. A greeting contains the sender's node id, epoch,
//! protocol versions, feature bits, receive windows and handled message types. The peer writes the type numbers of the
//! greeting into its headers. The session's features are the intersection of both sides' bits; unknown bits are ignored.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::class::Class;
use crate::id::{Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeId};

/// First bytes of every greeting and refusal.
pub const MAGIC: [u8; 4] = *b"PRNT";
/// Protocol versions that this code supports: lowest, highest.
pub const VERSIONS: (u16, u16) = (2, 2);
/// Feature bit: RDMA is possible. If both sides set it, both try to use RDMA ([`Greeting::features`]).
pub const RDMA: u64 = 1;
/// Feature bit: the node knows the kinds of messages by which two nodes agree to end an idle link. If both sides set it, either may ask for
/// that.
pub const PAUSE: u64 = 2;
/// Feature bit: the node takes part in coscheduling by the sender's pressure in headers. If both sides set it, either may write its
/// pressure into the flags of its headers.
pub const PRESSURE: u64 = 4;
/// Maximum number of message types in a greeting.
pub const MAX_TYPES: usize = 4096;
/// Longest node name, bytes.
pub const MAX_NAME: usize = 64;
/// Longest greeting, bytes. A provider refuses a longer blob before reading it.
pub const MAX_GREETING: usize = size_of::<RawGreeting>() + MAX_NAME + MAX_TYPES * size_of::<RawType>();

const GREETING: u8 = 1;
const REFUSAL: u8 = 2;

/// Receive capacity of one side on one connection, in messages of each kind. The side has posted receives for the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Requests and notifications that are in flight or being handled, at first.
    pub requests: u16,
    /// Maximum of `requests` that the receiver may grant while the link lasts.
    pub grows_to: u16,
    /// Replies, one per call slot of the receiver.
    pub replies: u16,
    /// Control messages without payload: credit returns, cancels, heartbeats, goodbye.
    pub control: u16,
    /// Longest payload, bytes.
    pub max_payload: u32,
}

impl Windows {
    /// Returns the number of messages that may be in flight towards the receiver, which is the number of receives it must post, if the
    /// window grows as far as it can.
    pub const fn depth(&self) -> u32 {
        self.grows_to as u32 + self.replies as u32 + self.control as u32
    }
}

/// One message type that the sender of the greeting handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeEntry {
    /// The type's name, hashed.
    pub name: NameHash,
    /// The type's layout, hashed.
    pub layout: LayoutHash,
    /// The service that handles it.
    pub service: ServiceId,
    /// The number of the type in headers.
    pub type_id: TypeId,
}

/// A checked greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Supported protocol versions: lowest, highest.
    pub versions: (u16, u16),
    /// Supported feature bits.
    pub features: u64,
    /// The sender.
    pub node: NodeId,
    /// The incarnation of the sender.
    pub epoch: Epoch,
    /// The intended receiver. A node refuses a greeting for another node.
    pub target: NodeId,
    /// From the dialling side: the session to resume. From the accepting side: the session of this link.
    pub session: Option<SessionId>,
    /// Receive windows, by class.
    pub windows: [Windows; 2],
    /// A human-readable name.
    pub name: String,
    /// Message types that the sender handles.
    pub types: Vec<TypeEntry>,
}

/// The reason why a node refuses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[repr(u16)]
#[non_exhaustive]
pub enum GreetingRefusal {
    /// The two nodes have no protocol version in common.
    #[error("no protocol version in common")]
    Version = 1,
    /// The greeting was meant for another node.
    #[error("the greeting is for another node: check the addresses in the configuration")]
    WrongNode = 2,
    /// The dialling node has the same id as the accepting node.
    #[error("both nodes have the same id: give each node its own")]
    SameId = 3,
    /// A link to this epoch of the node exists already; wait for it.
    #[error("a link to this node exists already")]
    Duplicate = 4,
    /// Another process with this id is connected and alive.
    #[error(
        "another live process has the id of the dialling node: stop it, or give one of the two another id"
    )]
    IdTaken = 5,
    /// A message type has the same name and another layout.
    #[error("a message type has two layouts: both nodes must be built from the same declaration")]
    Layout = 6,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Draining = 7,
    /// The greeting could not be decoded.
    #[error("the greeting was malformed")]
    Malformed = 8,
    /// The node has reached its maximum number of peers.
    #[error("the node has reached its configured number of peers")]
    TooManyPeers = 9,
    /// The peer may not have this id: it runs as another user, connects from another address than those of the node with its id, or has the
    /// certificate or key of another node.
    #[error(
        "this node may not connect with its id: with TLS, its certificate or key is that of another node; over TCP without, the other node expects the id from other addresses (`from` in its [[peer]]); over shared memory, the processes run as different users, or the other node has no shm address of this one in its [[peer]]"
    )]
    NotPermitted = 10,
}

impl GreetingRefusal {
    const ALL: [Self; 10] = [
        Self::Version,
        Self::WrongNode,
        Self::SameId,
        Self::Duplicate,
        Self::IdTaken,
        Self::Layout,
        Self::Draining,
        Self::Malformed,
        Self::TooManyPeers,
        Self::NotPermitted,
    ];

    /// Encodes the refusal of node `by`.
    pub fn encode(self, by: NodeId) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.push(REFUSAL);
        out.extend_from_slice(&(self as u16).to_le_bytes());
        out.extend_from_slice(&by.0.to_le_bytes());
        out
    }
}

/// An error of a greeting, or a refusal in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GreetingFault {
    /// The peer refuses the link.
    #[error("node {by} refused: {refusal}")]
    Refused {
        /// The reason.
        refusal: GreetingRefusal,
        /// The node that refuses, as it says.
        by: NodeId,
    },
    /// The bytes do not begin with [`MAGIC`], so the sender is not a Pronto node.
    #[error("not a Pronto greeting")]
    Magic,
    /// Neither greeting nor refusal, or an unknown refusal.
    #[error("unknown greeting kind {0}")]
    UnknownKind(u16),
    /// The greeting is shorter or longer than its header announces.
    #[error("greeting of {len} bytes, but its header announces {expected}")]
    Length {
        /// Actual length, bytes.
        len: usize,
        /// Announced length, bytes.
        expected: usize,
    },
    /// A count or size is outside its limits.
    #[error("greeting field {field} is out of range: {value}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// Two types share a number, or a (name, service) is listed twice.
    #[error("type {0} is listed twice")]
    TypeTwice(TypeId),
    /// The node's name is not UTF-8.
    #[error("node name is not UTF-8")]
    Name,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWindows {
    requests: U16,
    grows_to: U16,
    replies: U16,
    control: U16,
    max_payload: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGreeting {
    magic: [u8; 4],
    kind: u8,
    name_len: u8,
    version_min: U16,
    version_max: U16,
    features: U64,
    node: U16,
    target: U16,
    epoch: U64,
    session: U64,
    windows: [RawWindows; 2],
    type_count: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawType {
    name: U64,
    layout: U64,
    service: U16,
    type_id: U16,
}

impl Greeting {
    /// Encodes the greeting. Truncates the name to [`MAX_NAME`] bytes and the list of types to [`MAX_TYPES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut end = self.name.len().min(MAX_NAME);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &self.name.as_bytes()[..end];
        let types = &self.types[..self.types.len().min(MAX_TYPES)];
        let window = |w: Windows| RawWindows {
            requests: w.requests.into(),
            grows_to: w.grows_to.into(),
            replies: w.replies.into(),
            control: w.control.into(),
            max_payload: w.max_payload.into(),
        };
        let raw = RawGreeting {
            magic: MAGIC,
            kind: GREETING,
            name_len: u8::try_from(name.len()).expect("MAX_NAME fits a byte"),
            version_min: self.versions.0.into(),
            version_max: self.versions.1.into(),
            features: self.features.into(),
            node: self.node.0.into(),
            target: self.target.0.into(),
            epoch: self.epoch.0.into(),
            session: self.session.map_or(0, |s| s.0).into(),
            windows: self.windows.map(window),
            type_count: u16::try_from(types.len()).expect("MAX_TYPES fits 16 bits").into(),
        };
        let mut out =
            Vec::with_capacity(size_of::<RawGreeting>() + name.len() + types.len() * size_of::<RawType>());
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(name);
        for entry in types {
            let raw = RawType {
                name: entry.name.0.into(),
                layout: entry.layout.0.into(),
                service: entry.service.0.into(),
                type_id: entry.type_id.0.into(),
            };
            out.extend_from_slice(raw.as_bytes());
        }
        out
    }

    /// Decodes the first message of a peer. Returns [`GreetingFault::Refused`] if it is a refusal.
    pub fn decode(bytes: &[u8]) -> Result<Self, GreetingFault> {
        let Some(([b'P', b'R', b'N', b'T', kind], rest)) = bytes.split_first_chunk::<5>() else {
            return Err(GreetingFault::Magic);
        };
        match *kind {
            GREETING => {}
            REFUSAL => return Err(decode_refusal(rest)),
            other => return Err(GreetingFault::UnknownKind(other.into())),
        }
        let short = |expected| GreetingFault::Length { len: bytes.len(), expected };
        let (raw, rest) =
            RawGreeting::read_from_prefix(bytes).map_err(|_| short(size_of::<RawGreeting>()))?;
        let (name_len, type_count) = (usize::from(raw.name_len), usize::from(raw.type_count.get()));
        let range = |field, value: usize| GreetingFault::Range { field, value: value as u64 };
        if name_len > MAX_NAME {
            return Err(range("name length", name_len));
        }
        if type_count > MAX_TYPES {
            return Err(range("type count", type_count));
        }
        let expected = size_of::<RawGreeting>() + name_len + type_count * size_of::<RawType>();
        if bytes.len() != expected {
            return Err(short(expected));
        }
        let (name, types) = rest.split_at(name_len);
        Ok(Self {
            versions: (raw.version_min.get(), raw.version_max.get()),
            features: raw.features.get(),
            node: NodeId(raw.node.get()),
            target: NodeId(raw.target.get()),
            epoch: Epoch(raw.epoch.get()),
            session: Some(SessionId(raw.session.get())).filter(|s| s.0 != 0),
            windows: [check_windows(&raw.windows[0])?, check_windows(&raw.windows[1])?],
            name: core::str::from_utf8(name).map_err(|_| GreetingFault::Name)?.into(),
            types: decode_types(types)?,
        })
    }

    /// Returns the window of one class.
    pub const fn window(&self, class: Class) -> &Windows {
        &self.windows[class.index()]
    }
}

fn decode_refusal(rest: &[u8]) -> GreetingFault {
    let &[code_low, code_high, by_low, by_high] = rest else {
        return GreetingFault::Length { len: rest.len() + 5, expected: 9 };
    };
    let code = u16::from_le_bytes([code_low, code_high]);
    let by = NodeId(u16::from_le_bytes([by_low, by_high]));
    match GreetingRefusal::ALL.into_iter().find(|known| *known as u16 == code) {
        Some(refusal) => GreetingFault::Refused { refusal, by },
        None => GreetingFault::UnknownKind(code),
    }
}

/// Checks that each window has at least the minimum size, and that the sum can be counted by wrapping 16-bit counters.
fn check_windows(raw: &RawWindows) -> Result<Windows, GreetingFault> {
    let windows = Windows {
        requests: raw.requests.get(),
        grows_to: raw.grows_to.get(),
        replies: raw.replies.get(),
        control: raw.control.get(),
        max_payload: raw.max_payload.get(),
    };
    let range = |field, value: u32| Err(GreetingFault::Range { field, value: value.into() });
    if windows.requests == 0 || windows.replies == 0 || windows.control < MIN_CONTROL_WINDOW {
        return range("window", 0);
    }
    if windows.grows_to < windows.requests {
        return range("largest window", windows.grows_to.into());
    }
    if windows.depth() > MAX_DEPTH {
        return range("window", windows.depth());
    }
    if windows.max_payload < MIN_PAYLOAD {
        return range("longest payload", windows.max_payload);
    }
    Ok(windows)
}

/// Smallest control window: a credit return, a heartbeat, a goodbye and one cancel.
pub const MIN_CONTROL_WINDOW: u16 = 4;
/// Maximum number of messages in flight on one connection: half the range of a 16-bit counter.
pub const MAX_DEPTH: u32 = 1 << 15;
/// Payload length that every node can receive, bytes.
pub const MIN_PAYLOAD: u32 = 4096;

fn decode_types(bytes: &[u8]) -> Result<Vec<TypeEntry>, GreetingFault> {
    let raw = <[RawType]>::ref_from_bytes(bytes).expect("the length was checked to be whole entries");
    let types: Vec<_> = raw
        .iter()
        .map(|raw| TypeEntry {
            name: NameHash(raw.name.get()),
            layout: LayoutHash(raw.layout.get()),
            service: ServiceId(raw.service.get()),
            type_id: TypeId(raw.type_id.get()),
        })
        .collect();
    let mut seen: Vec<_> = types.iter().map(|t| t.type_id).collect();
    seen.sort_unstable();
    if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(GreetingFault::TypeTwice(pair[0]));
    }
    let mut named: Vec<_> = types.iter().map(|t| (t.service, t.name, t.type_id)).collect();
    named.sort_unstable();
    if let Some(pair) = named.windows(2).find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
        return Err(GreetingFault::TypeTwice(pair[1].2));
    }
    Ok(types)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn greeting() -> Greeting {
        let windows = Windows { requests: 64, grows_to: 512, replies: 32, control: 8, max_payload: 4096 };
        Greeting {
            versions: VERSIONS,
            features: 0,
            node: NodeId(1),
            epoch: Epoch(7),
            target: NodeId(2),
            session: Some(SessionId(9)),
            windows: [windows; 2],
            name: "one".into(),
            types: vec![TypeEntry {
                name: NameHash::of("demo.add"),
                layout: LayoutHash::of("x"),
                service: ServiceId(0),
                type_id: TypeId(3),
            }],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Greeting::decode(&greeting().encode()), Ok(greeting()));
        let bare = Greeting { session: None, name: String::new(), types: vec![], ..greeting() };
        assert_eq!(Greeting::decode(&bare.encode()), Ok(bare));
    }

    /// Shows: protocol.bytes, protocol.refusal, protocol.windows, protocol.types
    #[test]
    fn golden_greeting() {
        let windows = Windows {
            requests: 0x0102,
            grows_to: 0x0708,
            replies: 0x0304,
            control: 8,
            max_payload: 0x0001_0203,
        };
        let (name, layout) = (NameHash(0x1112_1314_1516_1718), LayoutHash(0x2122_2324_2526_2728));
        let greeting = Greeting {
            versions: (0x0304, 0x0506),
            features: 0x8000_0000_0000_0001,
            node: NodeId(0x0708),
            target: NodeId(0x090a),
            epoch: Epoch(0x3132_3334_3536_3738),
            session: Some(SessionId(0x4142_4344_4546_4748)),
            windows: [windows, Windows { requests: 0x0506, ..windows }],
            name: "one".into(),
            types: vec![TypeEntry { name, layout, service: ServiceId(0x5152), type_id: TypeId(0x5354) }],
        };
        #[rustfmt::skip]
        let golden = [
            b'P', b'R', b'N', b'T', 1, 3, 0x04, 0x03, 0x06, 0x05,
            1, 0, 0, 0, 0, 0, 0, 0x80,
            0x08, 0x07, 0x0a, 0x09,
            0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
            0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
            0x02, 0x01, 0x08, 0x07, 0x04, 0x03, 8, 0, 0x03, 0x02, 0x01, 0,
            0x06, 0x05, 0x08, 0x07, 0x04, 0x03, 8, 0, 0x03, 0x02, 0x01, 0,
            1, 0, b'o', b'n', b'e',
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
            0x52, 0x51, 0x54, 0x53,
        ];
        assert_eq!(greeting.encode(), golden);
        assert_eq!(Greeting::decode(&golden), Ok(greeting));
        let refusal = GreetingRefusal::WrongNode.encode(NodeId(0x0708));
        assert_eq!(refusal, [b'P', b'R', b'N', b'T', 2, 2, 0, 0x08, 0x07]);
    }

    #[test]
    fn every_truncation_and_extension_is_refused() {
        let bytes = greeting().encode();
        for len in 0..bytes.len() {
            assert!(Greeting::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(
            Greeting::decode(&longer),
            Err(GreetingFault::Length { len: longer.len(), expected: bytes.len() })
        );
    }

    /// Shows: protocol.greeting, protocol.refusal
    #[test]
    fn a_refusal_decodes_as_a_refusal() {
        for refusal in GreetingRefusal::ALL {
            let by = NodeId(0x0708);
            let bytes = refusal.encode(by);
            assert_eq!(Greeting::decode(&bytes), Err(GreetingFault::Refused { refusal, by }));
            for wrong in [&bytes[..7], &[&bytes[..], &[0]].concat()] {
                let (len, expected) = (wrong.len(), 9);
                assert_eq!(Greeting::decode(wrong), Err(GreetingFault::Length { len, expected }));
            }
        }
        assert_eq!(Greeting::decode(b"PRNT\x02\xff\xff\x01\x00"), Err(GreetingFault::UnknownKind(0xffff)));
    }

    /// Shows: protocol.windows
    #[test]
    fn windows_are_bounded() {
        let with = |windows| Greeting { windows: [windows; 2], ..greeting() }.encode();
        let good = greeting().windows[0];
        for bad in [
            Windows { requests: 0, ..good },
            Windows { replies: 0, ..good },
            Windows { control: 1, ..good },
            Windows { requests: u16::MAX, grows_to: u16::MAX, ..good },
            Windows { grows_to: good.requests - 1, ..good },
            Windows { grows_to: u16::MAX, ..good },
            Windows { max_payload: 1, ..good },
        ] {
            assert!(matches!(Greeting::decode(&with(bad)), Err(GreetingFault::Range { .. })), "{bad:?}");
        }
    }

    /// Shows: protocol.types
    #[test]
    fn a_type_may_be_listed_once() {
        let entry = greeting().types[0];
        let twice = Greeting { types: vec![entry, entry], ..greeting() };
        assert_eq!(Greeting::decode(&twice.encode()), Err(GreetingFault::TypeTwice(TypeId(3))));
        let renumbered = TypeEntry { type_id: TypeId(4), ..entry };
        let twice = Greeting { types: vec![entry, renumbered], ..greeting() };
        assert_eq!(Greeting::decode(&twice.encode()), Err(GreetingFault::TypeTwice(TypeId(4))));
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert_eq!(Greeting::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(GreetingFault::Magic));
        assert_eq!(Greeting::decode(b""), Err(GreetingFault::Magic));
    }
}

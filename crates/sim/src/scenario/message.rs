//! Messages between scenario nodes: a stamp that identifies the message, and bytes derived from it.

use pronto_core::fabric::{Arrived, Payload};
use pronto_core::session::TypeKey;
use pronto_wire::{LayoutHash, NameHash, ServiceId, TypeEntry, TypeId};

use crate::random::Random;

/// Length of a stamp, bytes: the minimum message length.
pub(crate) const STAMP: usize = 24;

/// Kinds of messages of a scenario node; their order is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A call that is answered immediately.
    Prompt,
    /// A call that runs in a lane, one after another per caller and class.
    Laned,
    /// A notification.
    Notice,
    /// A rendezvous by reference.
    Offer,
    /// The carried message of a rendezvous.
    Eager,
    /// A further grant for an offer.
    Regrant,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Prompt, Self::Laned, Self::Notice, Self::Offer, Self::Eager, Self::Regrant];

    pub(crate) const fn key(self) -> TypeKey {
        let name = match self {
            Self::Prompt => NameHash::of("sim.prompt"),
            Self::Laned => NameHash::of("sim.laned"),
            Self::Notice => NameHash::of("sim.notice"),
            Self::Offer => NameHash::of("sim.offer"),
            Self::Eager => NameHash::of("sim.carried"),
            Self::Regrant => NameHash::of("sim.regrant"),
        };
        TypeKey { service: ServiceId(0), name, layout: LayoutHash::of("stamp") }
    }

    pub(crate) fn of(number: TypeId) -> Self {
        Self::ALL[usize::from(number.0)]
    }

    pub(crate) fn entries() -> Vec<TypeEntry> {
        let entry = |(number, kind): (u16, &Self)| {
            let TypeKey { service, name, layout } = kind.key();
            TypeEntry { service, name, layout, type_id: TypeId(number) }
        };
        (0..).zip(&Self::ALL).map(entry).collect()
    }
}

/// Unique name of a message: its sender, the sender's incarnation, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) node: u16,
    pub(crate) incarnation: u32,
    pub(crate) number: u64,
}

/// Start of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) name: Name,
    /// Length of the reply, bytes.
    pub(crate) answer_len: u32,
    /// True for the reply.
    pub(crate) answer: bool,
}

impl Stamp {
    /// Fills a payload with the stamp and the bytes derived from it.
    pub(crate) fn fill(&self, payload: &mut [u8]) {
        let (stamp, rest) = payload.split_at_mut(STAMP);
        let Name { node, incarnation, number } = self.name;
        stamp[..8].copy_from_slice(&number.to_le_bytes());
        stamp[8..12].copy_from_slice(&incarnation.to_le_bytes());
        stamp[12..16].copy_from_slice(&self.answer_len.to_le_bytes());
        stamp[16..18].copy_from_slice(&node.to_le_bytes());
        stamp[18..].fill(u8::from(self.answer));
        Random::new(number ^ u64::from(node) << 48).fill(rest);
    }

    /// Reads a payload. Panics unless a stamp has filled it.
    pub(crate) fn read<L: Payload>(payload: &Arrived<L>) -> Self {
        let mut bytes = vec![0; payload.len()];
        payload.copy_to(0, &mut bytes).expect("a copy of the whole lies within");
        assert!(bytes.len() >= STAMP, "a message of {} bytes, which was not sent", bytes.len());
        let name = Name {
            number: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            incarnation: u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")),
            node: u16::from_le_bytes(bytes[16..18].try_into().expect("two bytes")),
        };
        let answer_len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
        let stamp = Self { name, answer_len, answer: bytes[18] == 1 };
        let mut expected = vec![0; bytes.len()];
        stamp.fill(&mut expected);
        assert!(bytes == expected, "message {name:?} of {} bytes arrived changed", bytes.len());
        stamp
    }
}

//! One-sided operations: access to the memory that the peer has granted, without its handlers.
//!
//! They travel on the bulk connection, in order with its messages, and end in a slot of the table of calls like a synchronous send:
//! [`End::Done`](super::End::Done) carries what an atomic operation found.

use pronto_wire::{CallId, Class};

use super::refusal::Refused;
use crate::fabric::{Operation, Region, RemoteRange};

/// The class whose connection carries one-sided operations, and whose grants they need.
pub(super) const CLASS: Class = Class::Bulk;

/// A one-sided operation.
#[derive(Clone, Debug)]
pub enum Access {
    /// The peer's memory into a local region.
    Read {
        /// Where to; held until the end.
        local: Region,
        /// Offset in it, bytes.
        offset: u64,
        /// Where from.
        remote: RemoteRange,
    },
    /// A local region into the peer's memory.
    Write {
        /// Where from; held until the end.
        local: Region,
        /// Offset in it, bytes.
        offset: u64,
        /// Where to.
        remote: RemoteRange,
    },
    /// Replaces eight aligned bytes if they are as expected.
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// What must be there.
        expected: u64,
        /// What to put there.
        desired: u64,
    },
    /// Adds to eight aligned bytes, wrapping.
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// What to add.
        add: u64,
    },
}

/// A one-sided operation on its way out.
#[derive(Debug)]
pub(super) struct OneSided {
    pub(super) access: Access,
    /// The link whose grants it means.
    pub(super) link: u16,
    pub(super) completes: CallId,
}

impl Access {
    pub(super) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Read { local, offset, remote } => {
                Operation::Read { local, local_offset: *offset, remote: *remote }
            }
            Self::Write { local, offset, remote } => {
                Operation::Write { local, local_offset: *offset, remote: *remote }
            }
            Self::CompareSwap { remote, expected, desired } => {
                Operation::CompareSwap { remote: *remote, expected: *expected, desired: *desired }
            }
            Self::FetchAdd { remote, add } => Operation::FetchAdd { remote: *remote, add: *add },
        }
    }

    /// What is wrong with it whatever the peer has granted.
    pub(super) fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Read { local, offset, remote } | Self::Write { local, offset, remote } => {
                let end = offset.checked_add(remote.len).filter(|end| *end <= local.len() as u64);
                end.map(|_| ()).ok_or(Refused::OutOfRegion)
            }
            Self::CompareSwap { remote, .. } | Self::FetchAdd { remote, .. } => {
                let word = remote.len == 8 && remote.offset.is_multiple_of(8);
                if word { Ok(()) } else { Err(Refused::NoWord { len: remote.len }) }
            }
        }
    }

    /// The local memory that must live until the end.
    pub(super) fn into_region(self) -> Option<Region> {
        match self {
            Self::Read { local, .. } | Self::Write { local, .. } => Some(local),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => None,
        }
    }
}

//! One-sided operations: access to memory that the peer has granted, without running its handlers.
//!
//! They travel on the bulk connection, in order with its messages. Like a synchronous send, they end in a slot of the table of calls.
//! [`End::Done`](super::End::Done) carries the previous value of an atomic operation.

use pronto_wire::{CallId, Class};

use super::send_error::SendError;
use crate::fabric::{Operation, Region, RemoteRange};

/// The class whose connection carries one-sided operations, and whose grants they need.
pub(super) const CLASS: Class = Class::Bulk;

/// A one-sided operation.
#[derive(Clone, Debug)]
pub enum Access {
    /// Copies the peer's memory into a local region.
    Read {
        /// Destination, held until the end.
        local: Region,
        /// Offset in `local`, bytes.
        offset: u64,
        /// Source.
        remote: RemoteRange,
    },
    /// Copies a local region into the peer's memory.
    Write {
        /// Source, held until the end.
        local: Region,
        /// Offset in `local`, bytes.
        offset: u64,
        /// Destination.
        remote: RemoteRange,
    },
    /// Replaces eight aligned bytes if they equal `expected`.
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// The value that is replaced.
        expected: u64,
        /// The new value.
        desired: u64,
    },
    /// Adds to eight aligned bytes, wrapping.
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// The summand.
        add: u64,
    },
}

/// An outgoing one-sided operation.
#[derive(Debug)]
pub(super) struct OneSided {
    pub(super) access: Access,
    /// The link to whose grants it refers.
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

    /// Checks the operation without regard to the peer's grants.
    pub(super) fn check(&self) -> Result<(), SendError> {
        match self {
            Self::Read { local, offset, remote } | Self::Write { local, offset, remote } => {
                let end = offset.checked_add(remote.len).filter(|end| *end <= local.len() as u64);
                // Such memory is the source of messages only.
                end.filter(|_| !local.is_read_only()).map(|_| ()).ok_or(SendError::OutOfRegion)
            }
            Self::CompareSwap { remote, .. } | Self::FetchAdd { remote, .. } => {
                let word = remote.len == 8 && remote.offset.is_multiple_of(8);
                if word { Ok(()) } else { Err(SendError::NoWord { len: remote.len }) }
            }
        }
    }

    /// Returns the local memory that must live until the end.
    pub(super) fn into_region(self) -> Option<Region> {
        match self {
            Self::Read { local, .. } | Self::Write { local, .. } => Some(local),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => None,
        }
    }
}

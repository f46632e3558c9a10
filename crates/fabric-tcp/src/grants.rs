//! Grants: the ranges of regions that the peer of this connection may access.
//!
//! A key is 64 random bits and valid in this table only, so a leaked key is useless to a third peer.

use core::ops::Range;
use std::collections::HashMap;

use pronto_core::fabric::{Grant, GrantError, GrantId, Region, RemoteRange, Rights};

use crate::random::random_bytes;

/// Maximum number of simultaneous grants of one connection.
const MAX_GRANTS: usize = 4096;

/// Kind of access by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Atomic,
}

#[derive(Debug)]
struct Granted {
    id: GrantId,
    region: Region,
    range: Range<u64>,
    rights: Rights,
}

#[derive(Debug, Default)]
pub(crate) struct Grants {
    by_key: HashMap<u64, Granted>,
    next: u32,
}

impl Grants {
    pub(crate) fn grant(
        &mut self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
    ) -> Result<Grant, GrantError> {
        let len = region.len() as u64;
        if range.start > range.end || range.end > len {
            return Err(GrantError::Range { start: range.start, end: range.end, len });
        }
        if self.by_key.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany(MAX_GRANTS));
        }
        let mut key = u64::from_le_bytes(random_bytes()?);
        while self.by_key.contains_key(&key) {
            key = u64::from_le_bytes(random_bytes()?);
        }
        Ok(self.insert(key, region, range, rights))
    }

    /// Adds a grant under a key that is not in use. The caller has checked the range.
    pub(crate) fn insert(&mut self, key: u64, region: &Region, range: Range<u64>, rights: Rights) -> Grant {
        let id = GrantId(self.next);
        self.next = self.next.wrapping_add(1);
        let remote = RemoteRange { key, offset: 0, len: range.end - range.start };
        self.by_key.insert(key, Granted { id, region: region.clone(), range, rights });
        Grant { id, remote, is_copy: false }
    }

    /// Ends a grant, and returns its key.
    pub(crate) fn revoke(&mut self, id: GrantId) -> Result<u64, GrantError> {
        let key = self.by_key.iter().find_map(|(key, granted)| (granted.id == id).then_some(*key));
        let key = key.ok_or(GrantError::Unknown)?;
        self.by_key.remove(&key);
        Ok(key)
    }

    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
    }

    /// Returns the region behind a key and the offset in it, if the whole access is granted.
    pub(crate) fn range(&self, key: u64, offset: u64, len: u64, access: Access) -> Option<(&Region, usize)> {
        let granted = self.by_key.get(&key)?;
        let allowed = match access {
            Access::Read => granted.rights.read,
            Access::Write => granted.rights.write,
            Access::Atomic => granted.rights.atomic,
        };
        let start = granted.range.start.checked_add(offset)?;
        let end = start.checked_add(len)?;
        (allowed && end <= granted.range.end).then_some((&granted.region, usize::try_from(start).ok()?))
    }
}

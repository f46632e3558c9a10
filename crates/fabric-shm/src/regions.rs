//! Sends by reference: the regions that the peer knows.
//!
//! A region's descriptor is passed once per connection, at its first use; from then on lines name the region by its
//! index in a table. The table holds weak references: an index is reused only when no thread holds its region any more.
//! By the contract of the fabric, the poster of a message from a region holds the region until the completion.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use pronto_core::fabric::{Region, RegionMemory};

use crate::form::RegionName;
use crate::map;
use crate::memfd::{self, Demand};

/// Maximum number of regions from which one connection can send at a time.
pub(crate) const MAX_REGIONS: usize = 128;

/// Maximum length of the regions that one connection announces for sending from them, and, separately, of those that it grants, bytes.
/// Chosen by us; no source. The peer maps them, and the address space of a process, 128 TiB on x86-64, has room for hundreds of
/// peers that announce all of it.
pub(crate) const MAX_ANNOUNCED: u64 = 128 << 30;

#[derive(Debug)]
struct Passed {
    memory: Weak<dyn RegionMemory>,
    /// Length of the mapping that the peer has, bytes.
    len: u64,
    generation: u32,
}

/// The regions that the peer knows.
#[derive(Debug, Default)]
pub(crate) struct PassedRegions {
    places: Vec<Passed>,
    /// Index of the region used last, which is compared first.
    last: usize,
}

/// Reason why a region cannot be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// Its memory has no descriptor, the table is full, or the announced regions would be too long: its bytes have to be copied.
    Copy,
    /// The socket is full of earlier announcements: the caller should retry later.
    Later,
}

impl PassedRegions {
    /// Returns the name of a region. Passes its descriptor by `announce` if the peer does not know it.
    pub(crate) fn name(
        &mut self,
        region: &Region,
        announce: impl FnOnce(RegionName, OwnedFd) -> Result<(), Errno>,
    ) -> Result<RegionName, Unnamed> {
        let is_it =
            |passed: &Passed| core::ptr::addr_eq(passed.memory.as_ptr(), Arc::as_ptr(region.memory()));
        if !self.places.get(self.last).is_some_and(is_it) {
            self.last = match self.places.iter().position(is_it) {
                Some(place) => place,
                None => self.pass(region, announce)?,
            };
        }
        let generation = self.places[self.last].generation;
        let slot = u32::try_from(self.last).expect("the table is small");
        Ok(RegionName { slot, generation })
    }

    fn pass(
        &mut self,
        region: &Region,
        announce: impl FnOnce(RegionName, OwnedFd) -> Result<(), Errno>,
    ) -> Result<usize, Unnamed> {
        let fd = readable(region).ok_or(Unnamed::Copy)?;
        // The longest one, as the peer keeps it mapped until another one replaces it.
        let unused = self.places.iter().enumerate().filter(|(_, passed)| passed.memory.strong_count() == 0);
        let place = match unused.max_by_key(|(_, passed)| passed.len) {
            Some((place, _)) => place,
            None if self.places.len() < MAX_REGIONS => self.places.len(),
            None => return Err(Unnamed::Copy),
        };
        let len = map::round_up(region.len()) as u64;
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != place);
        if others.map(|(_, passed)| passed.len).sum::<u64>() + len > MAX_ANNOUNCED {
            return Err(Unnamed::Copy);
        }
        let generation = self.places.get(place).map_or(1, |passed| passed.generation.wrapping_add(1));
        let slot = u32::try_from(place).expect("the table is small");
        announce(RegionName { slot, generation }, fd).map_err(|errno| match errno {
            Errno::EAGAIN => Unnamed::Later,
            _ => Unnamed::Copy,
        })?;
        let passed = Passed { memory: Arc::downgrade(region.memory()), len, generation };
        match self.places.get_mut(place) {
            Some(old) => *old = passed,
            None => self.places.push(passed),
        }
        Ok(place)
    }
}

/// Opens the region's memory for reading. Returns `None` if the peer would reject it.
pub(crate) fn readable(region: &Region) -> Option<OwnedFd> {
    memfd::read_only(sharable(region)?).ok()
}

/// Returns the region's descriptor, or `None` if it has none or the peer would reject it.
pub(crate) fn sharable(region: &Region) -> Option<BorrowedFd<'_>> {
    let fd = map::descriptor(region)?;
    memfd::check(fd, Demand::FixedSize).ok().map(|_| fd)
}

//! One-sided access: grants given and grants held.
//!
//! The region's descriptor is sent with the grant, read-only unless the peer may write, and the holder maps the region. A word
//! per grant in the giver's segment says whether the grant is live. The holder reads the word before every access, so that an
//! access needs no action on the giver's side. It reads the word again afterwards: an access during which the grant ended is not
//! reported as done. The kernel enforces which processes can map the file and whether it can be written. Bounds within the
//! region, and revocation, bind only a peer that runs this code.
//!
//! Memory of the program has no descriptor. The peer reads it by its address, if the kernel lets it ([`by_address`](crate::by_address)). If it
//! does not, the grant is one of a copy.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use pronto_core::fabric::{
    FabricError, Grant, GrantError, GrantId, OutOfBounds, PeerFault, PostError, Region, RemoteRange, Rights,
};
use pronto_sync::atomic::{AtomicU32, Ordering, fence};

use crate::announce::Announcement;
use crate::by_address::PeerMemory;
use crate::layout::MAX_GRANTS;
use crate::map::{Access, Mapping, OwnArray, PeerArray, round_up};
use crate::receive::{map_peer, system};
use crate::region::ShmRegion;
use crate::regions::{self, MAX_ANNOUNCED};

/// Grant word of an unused slot.
const NOBODY: u32 = 0;

/// Grants that this side gave to the peer.
#[derive(Debug)]
pub(crate) struct Given {
    /// This side's grant words: the generation of a live grant, else `NOBODY`.
    words: OwnArray<AtomicU32>,
    /// Generation of the last grant of each slot.
    generations: Box<[u32]>,
    /// The region of the last grant of each slot.
    regions: Box<[GrantedRegion]>,
    /// The copy that is granted in place of memory which the peer cannot read.
    copies: Box<[Option<Region>]>,
    /// Length of the regions of all live grants, bytes. A region counts once for each of its grants.
    sum: u64,
}

/// A region as the peer maps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GrantedRegion {
    /// Address of the memory in this process, which distinguishes regions.
    base: usize,
    is_writable: bool,
    len: u64,
}

impl Given {
    pub(crate) fn new(words: OwnArray<AtomicU32>) -> Self {
        let generations = vec![0; words.len()].into();
        let regions = vec![GrantedRegion::default(); words.len()].into();
        let copies = vec![None; words.len()].into();
        Self { words, generations, regions, copies, sum: 0 }
    }

    /// Returns the number of live grants of copies.
    #[cfg(test)]
    pub(crate) fn copies(&self) -> usize {
        self.copies.iter().flatten().count()
    }

    /// Returns the length of all regions with a live grant, and of `new`. The peer maps each of them once.
    fn len_with(&self, new: GrantedRegion) -> u64 {
        let live = |at: &usize| self.words[*at].load(Ordering::Relaxed) != NOBODY;
        let mut granted = vec![new];
        for at in (0..self.words.len()).filter(live) {
            if !granted.contains(&self.regions[at]) {
                granted.push(self.regions[at]);
            }
        }
        granted.iter().map(|region| region.len).sum()
    }

    /// Makes a grant and passes it to the peer by `announce`. `reads_by_address` tells whether the peer can read memory by its address.
    pub(crate) fn grant(
        &mut self,
        region: &Region,
        (start, end): (u64, u64),
        rights: Rights,
        reads_by_address: bool,
        announce: impl FnOnce(Announcement, Option<OwnedFd>) -> Result<(), Errno>,
    ) -> Result<Grant, GrantError> {
        let len = region.len() as u64;
        if start > end || end > len {
            return Err(GrantError::Range { start, end, len });
        }
        if !region.is_read_only() {
            return self.grant_shared(region, (start, end), rights, announce);
        }
        let (at, len) = place_of(start, end - start)?;
        if reads_by_address {
            return self.grant_by_address(region, (at, len), announce);
        }
        let copy = copy_of(region, (at, len))?;
        let grant = self.grant_shared(&copy, (0, end - start), rights, announce)?;
        self.copies[grant.id.0 as usize] = Some(copy);
        Ok(Grant { is_copy: true, ..grant })
    }

    /// Grants memory that the peer reads by its address.
    fn grant_by_address(
        &mut self,
        region: &Region,
        (at, len): (usize, usize),
        announce: impl FnOnce(Announcement, Option<OwnedFd>) -> Result<(), Errno>,
    ) -> Result<Grant, GrantError> {
        let (start, end) = (at as u64, (at + len) as u64);
        let first = region.address(at, len).map_err(|outside| GrantError::Range {
            start,
            end,
            len: outside.len as u64,
        })?;
        let (address, len) = (first.as_ptr().expose_provenance() as u64, len as u64);
        let none = GrantedRegion::default();
        self.make(none, len, |slot, generation| {
            announce(Announcement::Memory { slot, generation, address, len }, None)
        })
    }

    /// Grants memory that the peer maps.
    fn grant_shared(
        &mut self,
        region: &Region,
        (start, end): (u64, u64),
        rights: Rights,
        announce: impl FnOnce(Announcement, Option<OwnedFd>) -> Result<(), Errno>,
    ) -> Result<Grant, GrantError> {
        let is_writable = rights.write || rights.atomic;
        let base = region.memory().base().as_ptr().addr();
        let granted = GrantedRegion { base, is_writable, len: round_up(region.len()) as u64 };
        if self.sum.saturating_add(granted.len) > MAX_ANNOUNCED && self.len_with(granted) > MAX_ANNOUNCED {
            return Err(GrantError::TooMuchMemory(MAX_ANNOUNCED));
        }
        let fd = if is_writable {
            regions::sharable(region).and_then(|fd| fd.try_clone_to_owned().ok())
        } else {
            regions::readable(region)
        };
        let fd = fd.ok_or(GrantError::Memory)?;
        let len = end - start;
        self.make(granted, len, |slot, generation| {
            announce(Announcement::Grant { slot, generation, start, len, rights }, Some(fd))
        })
    }

    /// Makes a grant of `len` bytes in a free slot, and announces it by `announce`.
    fn make(
        &mut self,
        granted: GrantedRegion,
        len: u64,
        announce: impl FnOnce(u32, u32) -> Result<(), Errno>,
    ) -> Result<Grant, GrantError> {
        let place = self.words.iter().position(|word| word.load(Ordering::Relaxed) == NOBODY);
        let place = place.ok_or(GrantError::TooMany(MAX_GRANTS))?;
        let generation = self.generations[place].wrapping_add(1).max(NOBODY + 1);
        let slot = u32::try_from(place).expect("the table is small");
        // SYNC: live before the peer can learn of it; pairs with the load in Held::live.
        self.words[place].store(generation, Ordering::Release);
        if let Err(errno) = announce(slot, generation) {
            self.words[place].store(NOBODY, Ordering::Release);
            let live = self.words.iter().filter(|word| word.load(Ordering::Relaxed) != NOBODY).count();
            return Err(match errno {
                // The peer has not received earlier ones.
                Errno::EAGAIN | Errno::ETOOMANYREFS => GrantError::TooMany(live),
                _ => GrantError::Failed(FabricError::Lost),
            });
        }
        self.generations[place] = generation;
        self.regions[place] = granted;
        self.sum += granted.len;
        let remote = RemoteRange { key: key(slot, generation), offset: 0, len };
        Ok(Grant { id: GrantId(slot), remote, is_copy: false })
    }

    /// Ends a grant.
    pub(crate) fn revoke(&mut self, GrantId(slot): GrantId) -> Result<(), GrantError> {
        let word = self.words.get(slot as usize).ok_or(GrantError::Unknown)?;
        // SYNC: pairs with the load in Held::live.
        let revoked = word.swap(NOBODY, Ordering::SeqCst);
        // SYNC: the grant ends before this side reads or writes the memory again; pairs with the fence in Held::live_after.
        fence(Ordering::SeqCst);
        if revoked == NOBODY {
            return Err(GrantError::Unknown);
        }
        self.sum -= self.regions[slot as usize].len;
        self.copies[slot as usize] = None;
        Ok(())
    }

    /// Ends all grants. The caller must issue a fence afterwards.
    pub(crate) fn revoke_all(&mut self) {
        self.sum = 0;
        self.copies.fill(None);
        for word in self.words.iter() {
            // SYNC: as in revoke.
            word.store(NOBODY, Ordering::SeqCst);
        }
    }
}

/// The memory of a grant from the peer.
#[derive(Debug)]
enum Lent {
    /// The mapping of the whole region.
    Mapped(Arc<Mapping>),
    /// Memory in the peer's address space, which can only be read.
    InPeer,
}

/// A grant from the peer.
#[derive(Debug)]
struct HeldGrant {
    generation: u32,
    memory: Lent,
    /// Offset of the grant in the region, or its address in the peer.
    start: u64,
    len: u64,
    rights: Rights,
}

/// Grants from the peer to this side.
#[derive(Debug)]
pub(crate) struct Held {
    /// The peer's grant words.
    words: PeerArray<AtomicU32>,
    grants: Box<[Option<HeldGrant>]>,
    /// Number of grants in the table.
    count: usize,
    regions: MappedRegions,
    peer: PeerMemory,
}

impl Held {
    pub(crate) fn new(words: PeerArray<AtomicU32>, peer: PeerMemory) -> Self {
        let grants = (0..MAX_GRANTS).map(|_| None).collect();
        Self { words, grants, count: 0, regions: MappedRegions::default(), peer }
    }

    /// Returns the peer's memory that is not shared.
    pub(crate) fn peer(&mut self) -> &mut PeerMemory {
        &mut self.peer
    }

    /// Adopts a grant of memory that is read by its address.
    pub(crate) fn adopt_by_address(
        &mut self,
        (slot, generation): (u32, u32),
        (start, len): (u64, u64),
    ) -> Result<(), FabricError> {
        if start.checked_add(len).is_none() {
            return Err(PeerFault::Length { len, max: u64::MAX - start }.into());
        }
        self.put(slot, HeldGrant { generation, memory: Lent::InPeer, start, len, rights: Rights::READ })
    }

    /// Puts a grant into its slot, in place of an earlier one.
    fn put(&mut self, slot: u32, grant: HeldGrant) -> Result<(), FabricError> {
        let place = self.grants.get_mut(slot as usize);
        let place = place.ok_or_else(|| PeerFault::Offset { offset: slot.into(), len: MAX_GRANTS as u64 })?;
        self.count += usize::from(place.replace(grant).is_none());
        Ok(())
    }

    /// Maps the region of a grant that the peer announced, unless it is mapped already.
    pub(crate) fn adopt(&mut self, what: Announcement, fd: &OwnedFd) -> Result<(), FabricError> {
        let Announcement::Grant { slot, generation, start, len, rights } = what else { return Ok(()) };
        let access = if rights.write || rights.atomic { Access::Write } else { Access::Read };
        let memory = match self.regions.mapped(fd, access) {
            Err(FabricError::Peer(PeerFault::TooMuchMemory { .. })) => {
                // The peer may have revoked grants whose regions are still mapped here.
                self.give_back();
                self.regions.mapped(fd, access)?
            }
            mapped => mapped?,
        };
        let region = memory.len() as u64;
        let rest = start.checked_add(len).and_then(|_| region.checked_sub(start));
        match rest {
            Some(rest) if len <= rest => {}
            Some(max @ 1..) => return Err(PeerFault::Length { len, max }.into()),
            _ => return Err(PeerFault::Offset { offset: start, len: region }.into()),
        }
        self.put(slot, HeldGrant { generation, memory: Lent::Mapped(memory), start, len, rights })
    }

    /// Unmaps the regions of the peer that are not granted now.
    pub(crate) fn give_back(&mut self) {
        self.forget_revoked();
        self.regions.forget(0);
    }

    /// Returns whether this side has adopted this grant.
    pub(crate) fn knows(&self, remote: RemoteRange) -> bool {
        self.find(remote).is_some()
    }

    /// Forgets revoked grants.
    pub(crate) fn forget_revoked(&mut self) {
        if self.count == 0 {
            return;
        }
        for (slot, place) in self.grants.iter_mut().enumerate() {
            let words = &self.words;
            let revoked = |grant: &mut HeldGrant| grant.generation != words.load(slot, Ordering::Acquire);
            self.count -= usize::from(place.take_if(revoked).is_some());
        }
    }

    fn find(&self, remote: RemoteRange) -> Option<(usize, &HeldGrant)> {
        let (slot, generation) = parts(remote.key)?;
        let grant = self.grants.get(slot)?.as_ref()?;
        (grant.generation == generation).then_some((slot, grant))
    }

    /// Returns the memory of a live grant that allows this access, and the offset in it.
    fn live(
        &self,
        remote: RemoteRange,
        allowed: impl FnOnce(Rights) -> bool,
    ) -> Result<(&Lent, u64), PostError> {
        let (slot, grant) = self.find(remote).ok_or(PostError::NotGranted)?;
        let inside = remote.offset.checked_add(remote.len).is_some_and(|end| end <= grant.len);
        // SYNC: a holder that sees a grant live sees the memory as it was when granted; pairs with the stores in Given.
        let live = self.words.load(slot, Ordering::Acquire) == grant.generation;
        if !(inside && live && allowed(grant.rights)) {
            return Err(PostError::NotGranted);
        }
        Ok((&grant.memory, grant.start + remote.offset))
    }

    /// Returns the mapped memory of a live grant that allows this access, and the offset in it.
    fn mapped(
        &self,
        remote: RemoteRange,
        allowed: impl FnOnce(Rights) -> bool,
    ) -> Result<(&Mapping, u64), PostError> {
        match self.live(remote, allowed)? {
            (Lent::Mapped(memory), at) => Ok((memory, at)),
            (Lent::InPeer, _) => Err(PostError::NotGranted),
        }
    }

    /// Checks that a grant which was live before an access is live after it. Otherwise, the giver may have written to
    /// the memory during a read, or may have read it before a write was complete. Such an access is not reported as
    /// done; part of it may have been carried out.
    fn live_after(&self, remote: RemoteRange) -> Result<(), PostError> {
        let (slot, grant) = self.find(remote).ok_or(PostError::NotGranted)?;
        // SYNC: orders the access before the load, stores too; pairs with the fences in Given::revoke and
        // ShmQueuePair::close.
        fence(Ordering::SeqCst);
        let live = self.words.load(slot, Ordering::Relaxed) == grant.generation;
        if live { Ok(()) } else { Err(PostError::NotGranted) }
    }

    /// Copies from the peer's memory into a region.
    pub(crate) fn read(&self, local: &Region, offset: u64, remote: RemoteRange) -> Result<(), PostError> {
        let (memory, start) = self.live(remote, |rights| rights.read)?;
        let (at, len) = place(local, offset, remote.len)?;
        let read = match memory {
            Lent::Mapped(memory) => local.write_from(at, memory.lend(start, len)?).map_err(PostError::from),
            Lent::InPeer => self.peer.read_into(local, at, (start, len)),
        };
        // Memory whose grant has ended may be gone, which is no failure of the peer.
        self.live_after(remote).and(read)
    }

    /// Copies from a region into the peer's memory.
    pub(crate) fn write(&self, local: &Region, offset: u64, remote: RemoteRange) -> Result<(), PostError> {
        let (memory, start) = self.mapped(remote, |rights| rights.write)?;
        let (at, len) = place(local, offset, remote.len)?;
        memory.write_from(start, local.lend(at, len)?)?;
        self.live_after(remote)
    }

    /// Performs an atomic operation on eight bytes of the peer's memory. Returns the previous value.
    pub(crate) fn atomic(&self, remote: RemoteRange, operation: Atomic) -> Result<u64, PostError> {
        let (memory, start) = self.mapped(remote, |rights| rights.atomic)?;
        if remote.len != size_of::<u64>() as u64 {
            let (offset, len) = (usize::try_from(remote.offset).unwrap_or(usize::MAX), memory.len());
            return Err(OutOfBounds { offset, wanted: size_of::<u64>(), len }.into());
        }
        let word = memory.word(start)?;
        let before = match operation {
            Atomic::CompareSwap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            Atomic::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        };
        self.live_after(remote)?;
        Ok(before)
    }
}

/// A mapped region of the peer.
#[derive(Debug)]
struct MappedRegion {
    /// Device and inode of its file.
    file: (u64, u64),
    access: Access,
    memory: Arc<Mapping>,
}

/// The peer's regions that are mapped here, the one that was granted last at the end. A region that is granted again and again is mapped
/// once, because the faults of a new mapping take about as long as the copy of its bytes.
#[derive(Debug, Default)]
struct MappedRegions(Vec<MappedRegion>);

/// Maximum length of the regions that stay mapped without a grant, bytes. Their memory stays allocated even if the peer drops them.
const KEPT: u64 = 128 << 20;
/// Maximum number of these regions. A process may have 65,530 mappings by default.
const MAX_KEPT: usize = 64;

impl MappedRegions {
    /// Returns the mapping of a region.
    fn mapped(&mut self, fd: &OwnedFd, access: Access) -> Result<Arc<Mapping>, FabricError> {
        let stat = fstat(fd).map_err(system)?;
        let file = (stat.st_dev, stat.st_ino);
        let known = self.0.iter().position(|region| region.file == file && region.access == access);
        let region = match known {
            Some(at) => self.0.remove(at),
            None => {
                self.forget(KEPT);
                let mapped = self.0.iter().map(|region| region.memory.len() as u64).sum();
                MappedRegion {
                    file,
                    access,
                    memory: Arc::new(map_peer(fd, access, (mapped, MAX_ANNOUNCED))?),
                }
            }
        };
        let memory = Arc::clone(&region.memory);
        self.0.push(region);
        Ok(memory)
    }

    /// Unmaps regions without a grant, those first that were granted longest ago, until the others have `kept` bytes together, and are
    /// at most [`MAX_KEPT`].
    fn forget(&mut self, kept: u64) {
        let is_free = |region: &MappedRegion| Arc::strong_count(&region.memory) == 1;
        let len = |region: &MappedRegion| region.memory.len() as u64;
        let free = self.0.iter().filter(|region| is_free(region));
        let (mut count, mut bytes) = (free.clone().count(), free.map(len).sum::<u64>());
        self.0.retain(|region| {
            let goes = (bytes > kept || count > MAX_KEPT) && is_free(region);
            if goes {
                (count, bytes) = (count - 1, bytes - len(region));
            }
            !goes
        });
    }
}

/// Returns an offset and a length as numbers of this machine.
fn place_of(start: u64, len: u64) -> Result<(usize, usize), GrantError> {
    let place = usize::try_from(start).ok().zip(usize::try_from(len).ok());
    place.ok_or_else(|| GrantError::Range { start, end: start.saturating_add(len), len: usize::MAX as u64 })
}

/// Copies a range of memory that the peer cannot read into a region that it can map.
fn copy_of(memory: &Region, (at, len): (usize, usize)) -> Result<Region, GrantError> {
    let copy = ShmRegion::allocate(len).map_err(|_| GrantError::Memory)?;
    memory.copy_range_to(at..at + len, &copy).map_err(|_| GrantError::Unreadable)?;
    Ok(copy)
}

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    CompareSwap { expected: u64, desired: u64 },
    FetchAdd { add: u64 },
}

/// Returns the position and the length of an access in `local`, if they are within its bounds.
fn place(local: &Region, offset: u64, len: u64) -> Result<(usize, usize), PostError> {
    let (start, wanted) = (usize::try_from(offset), usize::try_from(len));
    let (start, wanted) = (start.unwrap_or(usize::MAX), wanted.unwrap_or(usize::MAX));
    if start.checked_add(wanted).is_none_or(|end| end > local.len()) {
        return Err(OutOfBounds { offset: start, wanted, len: local.len() }.into());
    }
    Ok((start, wanted))
}

fn key(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

fn parts(key: u64) -> Option<(usize, u32)> {
    let slot = usize::try_from(key & u64::from(u32::MAX)).ok()?;
    Some((slot, u32::try_from(key >> 32).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::ShmRegion;

    const LEN: usize = 1 << 20;

    fn region() -> (Region, OwnedFd) {
        let region = ShmRegion::allocate(LEN).unwrap();
        let fd = regions::readable(&region).unwrap();
        (region, fd)
    }

    #[test]
    fn a_region_that_is_granted_again_is_not_mapped_again() {
        let mut mapped = MappedRegions::default();
        let ((first, fd), (_second, other)) = (region(), region());
        let once = mapped.mapped(&fd, Access::Read).unwrap();
        // A grant brings another descriptor of the file.
        let again = mapped.mapped(&regions::readable(&first).unwrap(), Access::Read).unwrap();
        assert!(Arc::ptr_eq(&once, &again));
        assert!(!Arc::ptr_eq(&once, &mapped.mapped(&other, Access::Read).unwrap()));
        let writable = regions::sharable(&first).unwrap().try_clone_to_owned().unwrap();
        assert!(!Arc::ptr_eq(&once, &mapped.mapped(&writable, Access::Write).unwrap()));
        assert_eq!(mapped.0.len(), 3);
    }

    #[test]
    fn regions_without_a_grant_are_unmapped_beyond_what_is_kept() {
        let mut mapped = MappedRegions::default();
        let regions: Vec<_> = (0..4).map(|_| region()).collect();
        let held = mapped.mapped(&regions[0].1, Access::Read).unwrap();
        for (_, fd) in &regions[1..] {
            drop(mapped.mapped(fd, Access::Read).unwrap());
        }
        // The second one is granted again, so the third one was granted longest ago.
        drop(mapped.mapped(&regions[1].1, Access::Read).unwrap());
        let third = mapped.0.iter().map(|region| region.file).nth(1).unwrap();
        mapped.forget(2 * LEN as u64);
        assert_eq!(mapped.0.len(), 3);
        assert!(mapped.0.iter().all(|region| region.file != third));
        mapped.forget(0);
        assert_eq!(mapped.0.len(), 1, "the region with a grant stays");
        assert!(Arc::ptr_eq(&held, &mapped.0[0].memory));
    }

    /// A process may have a limited number of mappings, of any length.
    #[test]
    fn few_regions_without_a_grant_stay_mapped() {
        let mut mapped = MappedRegions::default();
        for _ in 0..3 * MAX_KEPT {
            let region = ShmRegion::allocate(1).unwrap();
            drop(mapped.mapped(&regions::readable(&region).unwrap(), Access::Read).unwrap());
        }
        assert_eq!(mapped.0.len(), MAX_KEPT + 1);
    }
}

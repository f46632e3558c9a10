//! Regions that other processes can map.

use pronto_core::fabric::Region;
use std::sync::Arc;

use crate::error::SetupError;
use crate::map::RegionSegment;
use crate::memfd;

/// Allocator of regions that can be granted and sent by reference over shared memory.
#[derive(Debug)]
pub struct ShmRegion;

impl ShmRegion {
    /// Returns a region of `len` zero bytes in a memory file of its own. All of its memory is allocated immediately, as
    /// registration does, so that no access fails later for lack of it.
    pub fn allocate(len: usize) -> Result<Region, SetupError> {
        let fd = memfd::create(len).map_err(SetupError::system("memfd_create"))?;
        memfd::commit(&fd, len).map_err(SetupError::system("fallocate"))?;
        memfd::seal_size(&fd).map_err(SetupError::system("fcntl"))?;
        let memory = RegionSegment::new(fd, len).map_err(SetupError::system("mmap"))?;
        Ok(Region::new(Arc::new(memory)))
    }
}

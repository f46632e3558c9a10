//! A mapped file, from which messages are sent. Another process may truncate the file at any time.
//!
//! # Invariants
//! 1. `mapped .. mapped + mapped_len` is one mapping, created only in `new` and unmapped only in `drop`.
//! 2. No instruction of this process reads the mapping: an access beyond the end of the file would end the process with `SIGBUS`. System calls
//!    that read it fail instead.

use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::fstat;
use nix::sys::uio::pread;
use pronto_core::fabric::{MemoryAccess, RegionMemory};

/// Alignment of the offset of a mapping: the page size on x86-64; elsewhere, a multiple of it is used, too.
const ALIGNMENT: u64 = 64 << 10;

/// A range of a file, mapped for reading.
#[derive(Debug)]
pub struct FileMapping {
    file: OwnedFd,
    /// Offset of the first byte in the file.
    start: u64,
    base: NonNull<u8>,
    len: usize,
    mapped: NonNull<u8>,
    mapped_len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and nobody accesses it by instructions (invariant 2).
unsafe impl Send for FileMapping {}
// SAFETY: as for Send.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps `range` of a file. A forked child does not inherit the mapping.
    ///
    /// # Errors
    /// `EINVAL` if the file has fewer bytes, or the range is empty or reversed; otherwise the error of dup(2), fstat(2) or mmap(2).
    pub fn new(file: impl AsFd, range: Range<u64>) -> Result<Self, Errno> {
        let file = file.as_fd().try_clone_to_owned().map_err(|error| errno_of(&error))?;
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if range.is_empty() || range.end > size {
            return Err(Errno::EINVAL);
        }
        let aligned = range.start - range.start % ALIGNMENT;
        let ahead = usize::try_from(range.start - aligned).map_err(|_| Errno::EFBIG)?;
        let mapped_len = usize::try_from(range.end - aligned).map_err(|_| Errno::EFBIG)?;
        let size = NonZeroUsize::new(mapped_len).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(aligned).map_err(|_| Errno::EFBIG)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, offset) }?;
        // SAFETY: `ahead` is within the mapping.
        let base = unsafe { mapped.cast::<u8>().add(ahead) };
        let len = mapped_len - ahead;
        let this = Self { file, start: range.start, base, len, mapped: mapped.cast(), mapped_len };
        // SAFETY: our own mapping (invariant 1), of which DONTFORK changes no byte.
        unsafe { madvise(mapped, mapped_len, MmapAdvise::MADV_DONTFORK) }?;
        Ok(this)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1: our own mapping, whole.
        let unmapped = unsafe { munmap(self.mapped.cast(), self.mapped_len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

// SAFETY: invariant 1 keeps the mapping in place; only system calls read it, as `access` says.
unsafe impl RegionMemory for FileMapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn access(&self) -> MemoryAccess {
        MemoryAccess::SystemCalls
    }

    fn read_by_system_call(&self, offset: usize, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let Ok(at) = i64::try_from(self.start + (offset + done) as u64) else { return false };
            match pread(&self.file, &mut out[done..], at) {
                Ok(0) => return false,
                Ok(count) => done += count,
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use pronto_core::fabric::Region;

    use super::*;

    fn file(len: usize) -> std::fs::File {
        let fd = nix::sys::memfd::memfd_create(c"mapped", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(&(0..len).map(|at| u8::try_from(at % 256).unwrap_or(0)).collect::<Vec<_>>()).unwrap();
        file
    }

    #[test]
    fn a_range_of_a_file_is_read() {
        let file = file(200_000);
        let region = Region::new(Arc::new(FileMapping::new(&file, 65_537..150_000).unwrap()));
        let mut bytes = [0; 3];
        region.read(2, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 4, 5]);
        assert_eq!(region.len(), 84_463);
        assert!(region.read(84_462, &mut bytes).is_err());
        assert!(region.lend(0, 1).is_err(), "an instruction might fault");
        assert!(region.write(0, &[1]).is_err());
    }

    #[test]
    fn bytes_that_a_file_has_lost_are_an_error() {
        let file = file(100_000);
        let region = Region::new(Arc::new(FileMapping::new(&file, 0..100_000).unwrap()));
        file.set_len(50_000).unwrap();
        let mut bytes = [0; 1_000];
        assert!(region.read(49_000, &mut bytes).is_ok());
        assert!(region.read(49_001, &mut bytes).is_err());
        assert!(region.read(99_000, &mut bytes).is_err());
    }

    #[test]
    fn a_range_that_the_file_does_not_have_is_refused() {
        let file = file(4_096);
        for range in [0..4_097, 5_000..6_000, 7..7] {
            assert_eq!(FileMapping::new(&file, range).unwrap_err(), Errno::EINVAL);
        }
    }
}

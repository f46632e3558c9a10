//! Memory files: creating and sealing them, and checking those of a peer.
//!
//! A peer that shrank a file that this process has mapped would kill it with `SIGBUS`. A file is therefore mapped only
//! if its size is sealed, and its properties are taken from the kernel, never from the peer. A hole punched into
//! ordinary memory reads as zeros. A hole in huge pages needs another huge page to be read, and causes a `SIGBUS` if
//! none is free: such files are rejected.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

use crate::error::SegmentFault;
use crate::map::round_up;

/// Seals of every shared memory file: its size and its seals are fixed.
const FIXED: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);
/// Seals of a file that only processes that have mapped it already can write to.
const OWNED: SealFlag = FIXED.union(SealFlag::F_SEAL_FUTURE_WRITE);

/// Creates a file of `len` bytes, rounded up to whole pages, without seals. Only its user may open it again, and only
/// for reading.
pub(crate) fn create(len: usize) -> Result<OwnedFd, Errno> {
    let fd = memfd_create(c"pronto", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    fchmod(&fd, Mode::S_IRUSR)?;
    ftruncate(&fd, i64::try_from(round_up(len)).map_err(|_| Errno::EFBIG)?)?;
    Ok(fd)
}

/// Allocates the memory of a whole file, so that no access can fail for lack of it.
pub(crate) fn commit(fd: &OwnedFd, len: usize) -> Result<(), Errno> {
    fallocate(fd, FallocateFlags::empty(), 0, i64::try_from(round_up(len)).map_err(|_| Errno::EFBIG)?)
}

/// Fixes the size permanently.
pub(crate) fn seal_size(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(FIXED)).map(drop)
}

/// Fixes the size, and prevents new writable mappings; existing ones stay writable.
pub(crate) fn seal_owned(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(OWNED)).map(drop)
}

/// Opens the file again, for reading only.
pub(crate) fn read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Condition that a file must meet before it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Its size cannot change.
    FixedSize,
    /// Its size cannot change, and no process can newly map it for writing.
    Owned,
}

/// Checks a peer's file and returns its length.
pub(crate) fn check(fd: BorrowedFd<'_>, demand: Demand) -> Result<u64, SegmentFault> {
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(|_| SegmentFault::NotSealed)?;
    let wanted = match demand {
        Demand::FixedSize => SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW,
        Demand::Owned => OWNED,
    };
    if !SealFlag::from_bits_retain(seals).contains(wanted) {
        return Err(SegmentFault::NotSealed);
    }
    is_plain(fd)?;
    let stat = fstat(fd).map_err(|_| SegmentFault::NotSealed)?;
    u64::try_from(stat.st_size).map_err(|_| SegmentFault::NotSealed)
}

/// Checks that a file is on ordinary memory, without huge pages.
pub(crate) fn is_plain(fd: BorrowedFd<'_>) -> Result<(), SegmentFault> {
    let kind = fstatfs(fd).map_err(|_| SegmentFault::NotSealed)?.filesystem_type();
    if kind == TMPFS_MAGIC { Ok(()) } else { Err(SegmentFault::NotPlain { magic: kind.0 }) }
}

/// Checks that a peer's file has exactly the required length.
pub(crate) fn check_len(fd: BorrowedFd<'_>, demand: Demand, len: usize) -> Result<(), SegmentFault> {
    let expected = round_up(len) as u64;
    match check(fd, demand)? {
        found if found == expected => Ok(()),
        found => Err(SegmentFault::Size { found, expected }),
    }
}

//! Memory files: making them, sealing them, and what is refused of a peer's.
//!
//! A peer that could shrink a file that we mapped would kill us with `SIGBUS`. So nothing is mapped whose size is not
//! sealed, and nothing is believed about a file that the kernel does not say. A hole that is punched into ordinary memory reads
//! as zeros. One in huge pages needs another huge page to be read, and is a `SIGBUS` where none is free: such files are refused.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

use crate::error::SegmentFault;
use crate::map::round_up;

/// Seals of every memory file that is shared: its size is fixed, and so are the seals.
const FIXED: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);
/// Seals of a file that only those can write to who have mapped it already.
const OWNED: SealFlag = FIXED.union(SealFlag::F_SEAL_FUTURE_WRITE);

/// A new file of `len` bytes, in whole pages, without seals. Only its user may open it again, and for reading only.
pub(crate) fn create(len: usize) -> Result<OwnedFd, Errno> {
    let fd = memfd_create(c"pronto", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    fchmod(&fd, Mode::S_IRUSR)?;
    ftruncate(&fd, i64::try_from(round_up(len)).map_err(|_| Errno::EFBIG)?)?;
    Ok(fd)
}

/// Puts memory behind all of a file, so that no access can fail for want of it.
pub(crate) fn commit(fd: &OwnedFd, len: usize) -> Result<(), Errno> {
    fallocate(fd, FallocateFlags::empty(), 0, i64::try_from(round_up(len)).map_err(|_| Errno::EFBIG)?)
}

/// Fixes the size for ever.
pub(crate) fn seal_size(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(FIXED)).map(drop)
}

/// Fixes the size, and who can write: those who have it mapped for writing by now.
pub(crate) fn seal_owned(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(OWNED)).map(drop)
}

/// The same file, open for reading only.
pub(crate) fn read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// What must be true of a file before it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Its size cannot change.
    FixedSize,
    /// Its size cannot change, and nobody can newly map it for writing.
    Owned,
}

/// Checks a peer's file, and says how long it is.
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

/// Checks that a file is on ordinary memory, as memory files are unless they were made with huge pages.
pub(crate) fn is_plain(fd: BorrowedFd<'_>) -> Result<(), SegmentFault> {
    let kind = fstatfs(fd).map_err(|_| SegmentFault::NotSealed)?.filesystem_type();
    if kind == TMPFS_MAGIC { Ok(()) } else { Err(SegmentFault::NotPlain { magic: kind.0 }) }
}

/// Checks that a peer's file is as long as it has to be, exactly.
pub(crate) fn check_len(fd: BorrowedFd<'_>, demand: Demand, len: usize) -> Result<(), SegmentFault> {
    let expected = round_up(len) as u64;
    match check(fd, demand)? {
        found if found == expected => Ok(()),
        found => Err(SegmentFault::Size { found, expected }),
    }
}

//! Open files of other processes: which can be flagged, and descriptors for them.
//!
//! # Invariants
//! 1. The calls get numbers only, and the kernel checks them. A descriptor that they return has no other owner.
#![expect(unsafe_code, reason = "three system calls without a safe wrapper; listed in docs/unsafe.md")]

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::denial::Denial;

/// Reason why the files of a process cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreachable {
    /// There is no such process, or it has ended.
    #[error(
        "process {0} does not exist: check the number (threads have numbers too: use that of their process)"
    )]
    NoProcess(u32),
    /// The kernel does not permit it.
    #[error("the kernel does not permit access to the files of process {0}: {1}")]
    NotPermitted(u32, Denial),
    /// This process has as many open descriptors as it may have. The second number is the limit.
    #[error(
        "process {0} cannot be reached, because this program may have only {1} open files (RLIMIT_NOFILE): {RAISE_LIMIT}"
    )]
    TooManyDescriptors(u32, u64),
    /// Anything else.
    #[error("the files of process {0} cannot be reached: {1}")]
    System(u32, Errno),
}

/// Action if this process has too many open descriptors.
pub(crate) const RAISE_LIMIT: &str = "raise the hard limit (as root: prlimit --nofile=N COMMAND; in a unit of systemd: LimitNOFILE=N), or \
                                      flag fewer processes";

/// The kind of an open file that can be flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A socket; not every family can be flagged.
    Socket,
    /// A pipe; its reading end can be flagged.
    Pipe,
    /// An eventfd.
    Eventfd,
    /// A completion channel of RDMA, or another event file of its devices.
    RdmaEvents,
}

impl Unreachable {
    /// Returns the reason for an error of a system call that opens something of a process.
    pub(crate) fn of(pid: u32, errno: Errno) -> Self {
        match errno {
            Errno::ESRCH | Errno::ENOENT => Self::NoProcess(pid),
            Errno::EACCES | Errno::EPERM | Errno::ENOSYS => Self::NotPermitted(pid, Denial::of(pid, errno)),
            Errno::EMFILE => Self::TooManyDescriptors(pid, descriptor_limit()),
            other => Self::System(pid, other),
        }
    }

    /// Returns the number of the process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        match self {
            Self::NoProcess(pid)
            | Self::NotPermitted(pid, _)
            | Self::TooManyDescriptors(pid, _)
            | Self::System(pid, _) => *pid,
        }
    }
}

impl Kind {
    /// Returns whether [`OpenFile::number`] distinguishes files of this kind.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        match self {
            Self::Socket | Self::Pipe => true,
            // The kernel gives the number of a closed eventfd to the next one, and none to event files of RDMA.
            Self::Eventfd | Self::RdmaEvents => false,
        }
    }

    /// Returns the kind of a file by its link in `/proc/PID/fd`; `None` if it cannot be flagged.
    fn of(link: &str) -> Option<Self> {
        match link {
            "anon_inode:[eventfd]" => Some(Self::Eventfd),
            "anon_inode:[infinibandevent]" => Some(Self::RdmaEvents),
            _ if link.starts_with("socket:[") => Some(Self::Socket),
            _ if link.starts_with("pipe:[") => Some(Self::Pipe),
            _ => None,
        }
    }

    /// Returns the name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::Eventfd => "eventfd",
            Self::RdmaEvents => "RDMA events",
        }
    }
}

/// An open file of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenFile {
    /// Number of the descriptor in the process.
    pub fd: i32,
    /// Kind of the file.
    pub kind: Kind,
    /// Number that identifies a socket or a pipe among those of its kind, also among closed ones; zero for the kinds without
    /// such a number: see [`Kind::has_numbers`].
    pub number: u64,
}

/// Returns the open files of a process that can be flagged, in the order of their descriptors, without the eventfds of virtual
/// machines. Files that are opened or closed meanwhile may be missing.
///
/// # Errors
/// The process does not exist, or its files are not visible to this user.
pub fn open_files(pid: u32) -> Result<Vec<OpenFile>, Unreachable> {
    let folder = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&folder).map_err(|error| unreachable_of(pid, &error))?;
    let mut has_virtual_machine = false;
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let link = fs::read_link(entry.path()).ok()?;
            let link = link.to_str()?;
            has_virtual_machine |= link == "anon_inode:kvm-vm";
            let kind = Kind::of(link)?;
            let number = if kind.has_numbers() {
                link.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')?.parse().ok())
            } else {
                None
            };
            Some(OpenFile { fd, kind, number: number.unwrap_or(0) })
        })
        .collect();
    // A virtual machine may use its eventfds for interrupts, for which the kernel accepts no flagged ones.
    if has_virtual_machine {
        files.retain(|file| file.kind != Kind::Eventfd);
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns whether the kernel lists the children of processes (`CONFIG_PROC_CHILDREN`).
#[must_use]
pub fn has_children_lists() -> bool {
    std::path::Path::new("/proc/thread-self/children").exists()
}

/// Returns the processes that `pid` has started, directly or indirectly, without those whose parents have ended. Returns none if the
/// kernel does not list them: see [`has_children_lists`].
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    try_descendants(pid).unwrap_or_default()
}

/// Returns the same as [`descendants`].
///
/// # Errors
/// The kernel cannot list them now, for example because this process has too many open files. The end of a process is no error.
pub fn try_descendants(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut unseen = vec![pid];
    while let Some(parent) = unseen.pop() {
        let children = children(parent)?;
        found.extend(&children);
        unseen.extend(children);
    }
    Ok(found)
}

/// Returns the children of all threads of a process.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let Some(threads) = unless_ended(fs::read_dir(format!("/proc/{pid}/task")))? else { return Ok(found) };
    for thread in threads {
        let Some(thread) = unless_ended(thread)? else { break };
        let list = unless_ended(fs::read_to_string(thread.path().join("children")))?.unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Separates the end of a process, or the lack of permission to see it, from errors that say nothing about it.
///
/// # Errors
/// Those errors.
pub fn unless_ended<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ESRCH | Errno::EACCES | Errno::EPERM) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Another process. It is identified by a descriptor, so that another process that gets the same number later is not mistaken
/// for it.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// Finds a process by its number.
    ///
    /// # Errors
    /// There is none.
    pub fn find(pid: u32) -> Result<Self, Unreachable> {
        // SAFETY: I1.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = Errno::result(result).map_err(|errno| match errno {
            // The result for a thread, on older kernels.
            Errno::EINVAL => Unreachable::NoProcess(pid),
            // The kernel permits the call for each process.
            Errno::EPERM | Errno::ENOSYS => Unreachable::NotPermitted(pid, Denial::Filtered(errno)),
            other => Unreachable::of(pid, other),
        })?;
        Ok(Self { pid, descriptor: owned(fd) })
    }

    /// Tries to duplicate a descriptor of this process, which the kernel always permits.
    ///
    /// # Errors
    /// A filter of system calls rejects it, or this process has too many open descriptors.
    pub(crate) fn try_own_files() -> Result<(), Errno> {
        // SAFETY: I1.
        let own = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
        let own = owned(Errno::result(own)?);
        // SAFETY: I1.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, own.as_raw_fd(), own.as_raw_fd(), 0) };
        drop(owned(Errno::result(copy)?));
        Ok(())
    }

    /// Returns whether fewer descriptors than `reserve` are left to this process beyond that of this value. The kernel gives out the
    /// lowest free number.
    pub(crate) fn is_among_the_last(&self, reserve: u64) -> bool {
        let number = u64::try_from(self.descriptor.as_raw_fd()).unwrap_or(0);
        number.saturating_add(reserve) >= descriptor_limit()
    }

    /// Returns the number of the process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether the process has ended, also if its parent has not waited for it yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(1)
    }

    /// Checks that the kernel permits to duplicate descriptors of the process, which may have none yet that is of interest.
    ///
    /// # Errors
    /// The process has ended, or the kernel does not permit it.
    pub fn check_access(&self) -> Result<(), Unreachable> {
        // The kernel checks the permission first, and no process has this descriptor.
        self.duplicate(i32::MAX).map(drop)
    }

    /// Duplicates a descriptor of the process: the result is of the same open file.
    ///
    /// # Errors
    /// The descriptor is not open any more (`Ok(None)`), the process has ended, or the kernel does not permit it.
    pub fn duplicate(&self, fd: i32) -> Result<Option<OwnedFd>, Unreachable> {
        // SAFETY: I1.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.descriptor.as_raw_fd(), fd, 0) };
        match Errno::result(result) {
            Ok(fd) => Ok(Some(owned(fd))),
            Err(Errno::EBADF) => Ok(None),
            Err(other) => Err(Unreachable::of(self.pid, other)),
        }
    }
}

/// Returns a descriptor that names a thread of this process, by its number.
///
/// # Errors
/// `EINVAL` on a kernel before Linux 6.9, `ESRCH` or `ENOENT` if there is no such thread.
pub fn thread_descriptor(tid: i32) -> Result<OwnedFd, Errno> {
    // PIDFD_THREAD, which the C library's headers may lack, has the number of O_EXCL.
    // SAFETY: I1.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, libc::O_EXCL) };
    Errno::result(result).map(owned)
}

/// Takes ownership of a descriptor that the kernel has returned.
fn owned(fd: i64) -> OwnedFd {
    let fd = i32::try_from(fd).unwrap_or(-1);
    // SAFETY: I1: the kernel has just created it for this caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn unreachable_of(pid: u32, error: &io::Error) -> Unreachable {
    Unreachable::of(pid, error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))
}

/// Returns whether the main thread of a process ends now, or has ended while others go on.
pub(crate) fn is_ending(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/stat")).is_ok_and(|text| says_ending(&String::from_utf8_lossy(&text)))
}

/// Returns the same from the text of `/proc/PID/stat`: by the state, and by the flag `PF_EXITING` (include/linux/sched.h).
fn says_ending(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let state = fields.next();
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    matches!(state, Some("Z" | "X")) || flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Returns how many descriptors this process may have open.
pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// Raises the number of descriptors that this process may have open to the maximum that its hard limit permits. A program that it
/// starts afterwards inherits the limit, which programs that call `select` do not expect.
///
/// # Errors
/// The kernel refused it.
pub fn raise_descriptor_limit() -> Result<(), Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_ending_process_is_recognised_by_its_state_or_its_flags() {
        let stat = |state: &str, flags: u32| format!("7 (a) b) {state} 3 7 7 0 -1 {flags} 1 2 3");
        assert!(!says_ending(&stat("S", 4_194_304)) && !says_ending("") && !is_ending(std::process::id()));
        assert!(says_ending(&stat("Z", 0)) && says_ending(&stat("R", 4_194_308)));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let process = Process::find(pid).unwrap();
        while !process.has_ended() {}
        assert!(is_ending(pid), "nobody has waited for it");
        child.wait().unwrap();
        assert!(!is_ending(pid), "there is none");
    }

    #[test]
    fn only_an_end_or_a_missing_permission_means_that_there_is_no_process() {
        let of = |errno: Errno| unless_ended::<()>(Err(errno.into()));
        for errno in [Errno::ENOENT, Errno::ESRCH, Errno::EACCES, Errno::EPERM] {
            assert_eq!(of(errno).unwrap(), None, "{errno}");
        }
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            of(errno).unwrap_err();
        }
        assert!(try_descendants(u32::MAX).unwrap().is_empty());
    }

    #[test]
    fn own_files_are_found_by_kind() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        let event = nix::sys::eventfd::EventFd::new().unwrap();
        let files = open_files(std::process::id()).unwrap();
        let kind = |fd: i32| files.iter().find(|file| file.fd == fd).map(|file| (file.kind, file.number > 0));
        assert_eq!(kind(one.as_raw_fd()), Some((Kind::Socket, true)));
        assert_eq!(kind(reader.as_raw_fd()), Some((Kind::Pipe, true)));
        assert_eq!(kind(std::os::fd::AsFd::as_fd(&event).as_raw_fd()), Some((Kind::Eventfd, false)));
        assert!(files.is_sorted());
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(kind(file.as_raw_fd()), None);
    }

    #[test]
    fn a_missing_process_is_reported() {
        let none = u32::try_from(i32::MAX).unwrap();
        assert_eq!(open_files(none), Err(Unreachable::NoProcess(none)));
        assert_eq!(Process::find(none).unwrap_err(), Unreachable::NoProcess(none));
    }

    #[test]
    fn the_socket_of_another_process_is_duplicated() {
        let (one, other) = UnixStream::pair().unwrap();
        // `cat` starts as a child of the shell, which waits for it.
        let mut shell = Command::new("sh")
            .args(["-c", "cat; true"])
            .stdin(OwnedFd::from(one))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if !has_children_lists() {
            shell.kill().unwrap();
            shell.wait().unwrap();
            return pronto_skip::because("the kernel does not list the children of processes");
        }
        let mut tries = 0;
        let cat = loop {
            if let Some(cat) = descendants(shell.id()).first() {
                break *cat;
            }
            tries += 1;
            assert!(tries < 30_000, "the shell has not started a program");
            poll(&mut [], PollTimeout::from(1_u8)).unwrap();
        };
        assert!(descendants(std::process::id()).contains(&cat));
        let process = Process::find(cat).unwrap();
        assert!(!process.has_ended());
        assert_eq!(process.check_access(), Ok(()));
        let files = open_files(cat).unwrap();
        let input = files.iter().find(|file| file.fd == 0).unwrap();
        assert_eq!(input.kind, Kind::Socket);
        let copy = process.duplicate(0).unwrap().expect("cat reads it");
        assert_eq!(process.duplicate(1_000_000).map(|fd| fd.is_none()), Ok(true));
        // The copy keeps the connection open after the process has ended.
        shell.kill().unwrap();
        shell.wait().unwrap();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(cat.cast_signed()),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        // This process is not its parent, which has ended without waiting.
        tries = 0;
        while !process.has_ended() {
            tries += 1;
            assert!(tries < 30_000, "the process has not ended");
            poll(&mut [], PollTimeout::from(1_u8)).unwrap();
        }
        nix::unistd::write(&copy, b"x").unwrap();
        assert_eq!(nix::unistd::read(&other, &mut [0; 8]), Ok(1));
    }
}

//! The `scx` tier: threads flagged at the loader of the BPF scheduler in `kernel/scx`, and the messages between both.
//!
//! The loader listens on a Unix socket of packets. A request is one byte, followed by the descriptor of a thread if it needs one. Each
//! request has one [`Reply`]. The flags that were set through a connection last until the connection is closed.

use core::time::Duration;
use std::io::IoSlice;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::gettid;
use pronto_core::boost::{BoostError, Booster, Tier};

use crate::process::thread_descriptor;

/// Path of the loader's socket.
pub const SOCKET: &str = "/run/pronto-scx.sock";

/// Folder in which the kernel describes its BPF scheduler. It exists if the kernel supports one.
pub const KERNEL: &str = "/sys/kernel/sched_ext";

/// Longest wait for a reply. The loader replies within microseconds, unless it does not get a CPU.
const LIMIT: i64 = 5;

/// Reason why threads cannot be flagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The kernel is older than Linux 6.12, or was built without BPF schedulers.
    #[error("this kernel was built without sched_ext (CONFIG_SCHED_CLASS_EXT, since Linux 6.12)")]
    NoSchedExt,
    /// The loader does not run.
    #[error("the scheduler is not loaded: start `pronto expedite scx` as root")]
    NotRunning,
    /// This user may not connect to the loader.
    #[error("no permission for the socket {SOCKET}: start `pronto expedite scx` with --group")]
    NotPermitted,
    /// The thread belongs to another user, or to another user namespace than the loader.
    #[error("the thread belongs to another user or user namespace")]
    NotOwned,
    /// The loader has reached its maximum of connections or flagged threads.
    #[error("the loader accepts no more connections or threads")]
    Full,
    /// The loader sent a reply of another length: it has another version.
    #[error("the loader of the scheduler has another version")]
    OtherVersion,
    /// Anything else.
    #[error("system error: {0}")]
    System(Errno),
}

/// A request to the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Flag the thread whose descriptor follows.
    Flag,
    /// Remove the flag of the thread whose descriptor follows.
    Unflag,
    /// Return the counters.
    Counters,
}

impl Request {
    /// Returns the byte that stands for the request.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Flag => 1,
            Self::Unflag => 2,
            Self::Counters => 3,
        }
    }

    /// Returns the request for which a byte stands.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Flag),
            2 => Some(Self::Unflag),
            3 => Some(Self::Counters),
            _ => None,
        }
    }
}

/// Wake-ups of flagged threads since the scheduler was loaded, by result: `struct counters` of `kernel/scx/pronto_scx.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Boosts.
    pub boosts: u64,
    /// No boost: a CPU was idle.
    pub idle: u64,
    /// No boost: the thread has a positive nice value or the class `SCHED_IDLE`, or is in a group with `cpu.idle`.
    pub behind: u64,
    /// No boost: the thread's own budget was spent.
    pub denied_thread: u64,
    /// No boost: its user's budget on that CPU was spent.
    pub denied_user: u64,
    /// No boost: the CPU's budget was spent.
    pub denied_cpu: u64,
    /// No boost: the scheduler stores too many accounts.
    pub denied_memory: u64,
    /// Slices that ended because another thread waited for the CPU.
    pub preempted: u64,
    /// Time that threads ran boosted, in nanoseconds.
    pub boosted_ns: u64,
}

/// Reply to each request: the result, and the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Result of the request; an error number of the system.
    pub result: Result<(), Errno>,
    /// Counters of the scheduler.
    pub counters: Counters,
}

impl Reply {
    /// Number of bytes of a reply.
    pub const LENGTH: usize = (1 + Counters::NUMBER) * size_of::<u64>();

    /// Returns the bytes of the reply, in the byte order of the machine.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let result = self.result.err().map_or(0, |errno| u64::from((errno as i32).unsigned_abs()));
        let words = core::iter::once(result).chain(self.counters.values());
        for (place, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns the reply in these bytes, unless their number is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        let mut words = bytes
            .chunks_exact(size_of::<u64>())
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let result = match i32::try_from(words.next()?).ok()? {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        };
        let mut values = [0; Counters::NUMBER];
        values.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        Some(Self { result, counters: Counters::from_values(values) })
    }
}

impl Counters {
    /// Number of counters.
    pub const NUMBER: usize = 9;

    /// Returns the counters with these values, in the order of [`Counters::by_name`].
    #[must_use]
    pub const fn from_values(values: [u64; Self::NUMBER]) -> Self {
        let [
            boosts,
            idle,
            behind,
            denied_thread,
            denied_user,
            denied_cpu,
            denied_memory,
            preempted,
            boosted_ns,
        ] = values;
        Self {
            boosts,
            idle,
            behind,
            denied_thread,
            denied_user,
            denied_cpu,
            denied_memory,
            preempted,
            boosted_ns,
        }
    }

    fn values(&self) -> [u64; Self::NUMBER] {
        self.by_name().map(|(_, value)| value)
    }

    /// Returns all counters by their names in `pronto_scx.h`.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, u64); Self::NUMBER] {
        [
            ("boosts", self.boosts),
            ("idle", self.idle),
            ("behind", self.behind),
            ("denied_thread", self.denied_thread),
            ("denied_user", self.denied_user),
            ("denied_cpu", self.denied_cpu),
            ("denied_memory", self.denied_memory),
            ("preempted", self.preempted),
            ("boosted_ns", self.boosted_ns),
        ]
    }

    /// Returns the number of wake-ups without a boost because a budget was spent, or memory was short.
    #[must_use]
    pub const fn denied(&self) -> u64 {
        self.denied_thread + self.denied_user + self.denied_cpu + self.denied_memory
    }

    /// Returns the time that threads ran boosted.
    #[must_use]
    pub const fn boosted_time(&self) -> Duration {
        Duration::from_nanos(self.boosted_ns)
    }
}

/// A connection to the loader. The flags that were set through it end with it.
#[derive(Debug)]
pub struct Scheduler {
    /// The lock keeps a request and its reply together.
    socket: Mutex<OwnedFd>,
}

impl Scheduler {
    /// Connects to the loader at [`SOCKET`].
    ///
    /// # Errors
    /// The loader does not run, or this user may not connect.
    pub fn connect() -> Result<Self, Refused> {
        Self::connect_to(Path::new(SOCKET))
    }

    /// Connects to the loader that listens at another path.
    ///
    /// # Errors
    /// The loader does not run, or this user may not connect.
    pub fn connect_to(path: &Path) -> Result<Self, Refused> {
        let result = Self::try_to_connect(path);
        result.map_err(|errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED if !PathBuf::from(KERNEL).exists() => Refused::NoSchedExt,
            Errno::ENOENT | Errno::ECONNREFUSED => Refused::NotRunning,
            Errno::EACCES | Errno::EPERM => Refused::NotPermitted,
            errno => Refused::System(errno),
        })
    }

    fn try_to_connect(path: &Path) -> Result<Self, Errno> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(LIMIT, 0))?;
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(LIMIT, 0))?;
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Flags the calling thread: it is boosted when it is woken, until it ends or this connection does.
    ///
    /// # Errors
    /// The loader does not accept the thread, or has ended.
    pub fn flag_this_thread(&self) -> Result<(), Refused> {
        self.flag(gettid().as_raw())
    }

    /// Flags a thread of this user, by its number.
    ///
    /// # Errors
    /// The loader does not accept the thread, or has ended.
    pub fn flag(&self, tid: i32) -> Result<(), Refused> {
        self.request_for(Request::Flag, tid)
    }

    /// Removes the flag of a thread.
    ///
    /// # Errors
    /// The loader has ended, or `ENOENT`: the thread has no flag of this connection.
    pub fn unflag(&self, tid: i32) -> Result<(), Refused> {
        self.request_for(Request::Unflag, tid)
    }

    /// Returns the counters of the scheduler.
    ///
    /// # Errors
    /// The loader has ended.
    pub fn counters(&self) -> Result<Counters, Refused> {
        Ok(self.request(Request::Counters, None)?.counters)
    }

    fn request_for(&self, request: Request, tid: i32) -> Result<(), Refused> {
        use std::os::fd::AsFd as _;
        let thread = thread_descriptor(tid).map_err(Refused::System)?;
        self.request(request, Some(thread.as_fd()))?.result.map_err(|errno| match errno {
            Errno::EPERM => Refused::NotOwned,
            Errno::ENOSPC => Refused::Full,
            errno => Refused::System(errno),
        })
    }

    fn request(&self, request: Request, thread: Option<BorrowedFd<'_>>) -> Result<Reply, Refused> {
        // A thread that panicked here has left a request without its reply at most, which the length check of a reply tolerates.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let byte = [request.byte()];
        let numbers = thread.map(|thread| [thread.as_raw_fd()]);
        let rights: Vec<_> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
        let broken = |errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => Refused::NotRunning,
            errno => Refused::System(errno),
        };
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(&byte)], &rights, flags, None)
            .map_err(broken)?;
        let mut bytes = [0; Reply::LENGTH + 1];
        let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).map_err(broken)?;
        match bytes.get(..length) {
            // The loader has closed the connection: it has ended, or has no room.
            None | Some([]) => Err(Refused::NotRunning),
            Some(bytes) => Reply::from_bytes(bytes).ok_or(Refused::OtherVersion),
        }
    }
}

impl Booster for Scheduler {
    fn tier(&self) -> Tier {
        Tier::Scx
    }

    fn adopt(&self) -> Result<(), BoostError> {
        self.flag_this_thread().map_err(|refused| {
            BoostError::System(match refused {
                Refused::NotOwned | Refused::NotPermitted => libc::EPERM,
                Refused::Full => libc::ENOSPC,
                Refused::NotRunning => libc::ENOENT,
                Refused::System(errno) => errno as i32,
                Refused::NoSchedExt | Refused::OtherVersion => libc::EIO,
            })
        })
    }

    fn watch(&self, _: i32) -> Result<(), BoostError> {
        Ok(())
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_the_socket() {
        let values = core::array::from_fn(|index| u64::try_from(index).unwrap() * 10);
        for result in [Ok(()), Err(Errno::EPERM)] {
            let reply = Reply { result, counters: Counters::from_values(values) };
            assert_eq!(Reply::from_bytes(&reply.to_bytes()), Some(reply));
            assert_eq!(Reply::from_bytes(&reply.to_bytes()[1..]), None);
        }
    }

    #[test]
    fn requests_have_their_own_bytes() {
        for request in [Request::Flag, Request::Unflag, Request::Counters] {
            assert_eq!(Request::from_byte(request.byte()), Some(request));
        }
        assert_eq!(Request::from_byte(0), None);
    }

    /// Shows: operations.scx-missing
    #[test]
    fn a_missing_loader_is_reported() {
        let refused = Scheduler::connect_to(Path::new("/nowhere/pronto-scx.sock")).unwrap_err();
        let expected = if Path::new(KERNEL).exists() { Refused::NotRunning } else { Refused::NoSchedExt };
        assert_eq!(refused, expected);
    }
}

//! A connection to the loader.

use core::time::Duration;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    setsockopt, shutdown, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::gettid;

use super::counters::Counters;
use super::message::{Reply, Request};
use super::prediction::{Prediction, PredictionTerms};
use super::{KERNEL, Refused, SOCKET};
use crate::process::thread_descriptor;

/// Longest wait for a reply. The loader replies within microseconds, unless it does not get a CPU.
const LIMIT: Duration = Duration::from_secs(5);

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
        Self::connect_within(path, LIMIT)
    }

    /// Connects to a loader that accepts the connection within `limit`, which is also the longest wait for a reply.
    pub(super) fn connect_within(path: &Path, limit: Duration) -> Result<Self, Refused> {
        let result = Self::try_to_connect(path, limit);
        result.map_err(|errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED if !PathBuf::from(KERNEL).exists() => Refused::NoSchedExt,
            Errno::ENOENT | Errno::ECONNREFUSED => Refused::NotRunning,
            Errno::EACCES | Errno::EPERM => Refused::NotPermitted,
            // Too many connections wait for a loader that accepts none.
            Errno::EAGAIN => Refused::Silent,
            errno => Refused::System(errno),
        })
    }

    fn try_to_connect(path: &Path, limit: Duration) -> Result<Self, Errno> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        // A connection waits, too, if the loader does not accept it.
        limit_replies(&socket, limit)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Sets the longest wait for a reply, which is 5 s for a new connection. Zero waits without a limit.
    ///
    /// # Errors
    /// The kernel does not accept it.
    pub fn limit_replies(&self, limit: Duration) -> Result<(), Refused> {
        limit_replies(&self.socket.lock().unwrap_or_else(PoisonError::into_inner), limit)
            .map_err(Refused::System)
    }

    /// Returns whether the loader has closed the connection. Between a request and its reply, the result is undefined.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // The loader sends nothing but replies, so any event is the end of the connection.
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
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

    /// Gives a process a weight, in hundredths of the one that the nice values of its threads give, until it ends or this connection does.
    /// `main_thread` is the descriptor of its main thread. 100 removes the weight.
    ///
    /// # Errors
    /// This process is not root, another connection has given the process a weight, the loader does not accept this one, or has ended.
    pub fn weigh(&self, main_thread: BorrowedFd<'_>, hundredths: u16) -> Result<(), Refused> {
        self.done(Request::Weigh(hundredths), Some(main_thread))?.map(drop).map_err(of_process)
    }

    /// Lets the weight of a process follow its queues, until it ends or this connection does. `main_thread` is the descriptor of its main
    /// thread. [`Self::weigh`] ends it.
    ///
    /// # Errors
    /// This process is not root, another connection has given the process a weight, the loader does not accept the terms (`ERANGE`), runs
    /// outside of the first namespace of processes, has an older version, or has ended.
    pub fn predict(&self, main_thread: BorrowedFd<'_>, terms: PredictionTerms) -> Result<(), Refused> {
        self.done(Request::Predict(terms), Some(main_thread))?.map(drop).map_err(of_process)
    }

    /// Returns the prediction for a process.
    ///
    /// # Errors
    /// `ENOENT`: this connection has not asked for it, or the process has ended. The loader has ended.
    pub fn prediction(&self, main_thread: BorrowedFd<'_>) -> Result<Prediction, Refused> {
        match self.request(Request::Prediction, Some(main_thread))? {
            Reply::Prediction(prediction) => Ok(prediction),
            Reply::Done(result, _) => Err(result.map_or_else(of_process, |()| Refused::OtherVersion)),
        }
    }

    /// Returns the counters of the scheduler.
    ///
    /// # Errors
    /// The loader has ended.
    pub fn counters(&self) -> Result<Counters, Refused> {
        self.done(Request::Counters, None)?.map_err(Refused::System)
    }

    fn request_for(&self, request: Request, tid: i32) -> Result<(), Refused> {
        use std::os::fd::AsFd as _;
        let thread = thread_descriptor(tid).map_err(Refused::System)?;
        self.done(request, Some(thread.as_fd()))?.map(drop).map_err(Refused::of_thread)
    }

    /// Makes a request whose reply has counters. Returns them, or the error of the request.
    pub(super) fn done(
        &self,
        request: Request,
        thread: Option<BorrowedFd<'_>>,
    ) -> Result<Result<Counters, Errno>, Refused> {
        match self.request(request, thread)? {
            Reply::Done(result, counters) => Ok(result.map(|()| counters)),
            Reply::Prediction(_) => Err(Refused::OtherVersion),
        }
    }

    /// Sends a request and waits for the reply. An error concerns the connection, and the result in the reply the thread.
    fn request(&self, request: Request, thread: Option<BorrowedFd<'_>>) -> Result<Reply, Refused> {
        // A thread that panicked here has left a request without its reply at most, which the length check of a reply tolerates.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = request.to_bytes();
        let numbers = thread.map(|thread| [thread.as_raw_fd()]);
        let rights: Vec<_> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
        let broken = |errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => Refused::Ended,
            Errno::EAGAIN => Refused::Silent,
            errno => Refused::System(errno),
        };
        let flags = MsgFlags::MSG_NOSIGNAL;
        let send = || sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], &rights, flags, None);
        uninterrupted(send).map_err(broken)?;
        let mut reply = [0; Reply::LENGTH + 1];
        let receive = || recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty());
        let length = uninterrupted(receive).map_err(|errno| {
            // A late reply would be taken for that to the next request.
            let _closed = shutdown(socket.as_raw_fd(), Shutdown::Both);
            broken(errno)
        })?;
        match reply.get(..length) {
            None | Some([]) => Err(Refused::Ended),
            Some(bytes) => Reply::from_bytes(bytes).ok_or(Refused::OtherVersion),
        }
    }
}

/// Returns the reason for which the loader refused a process.
const fn of_process(errno: Errno) -> Refused {
    match errno {
        Errno::EPERM => Refused::NotRoot,
        Errno::EBUSY => Refused::Busy,
        Errno::EOPNOTSUPP => Refused::OtherNamespace,
        Errno::E2BIG => Refused::Full,
        Errno::EINVAL => Refused::OtherVersion,
        errno => Refused::of_thread(errno),
    }
}

/// Repeats a call that a signal has interrupted, as that of a debugger does in spite of `SA_RESTART` (`man 7 signal`).
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

fn limit_replies(socket: &OwnedFd, limit: Duration) -> Result<(), Errno> {
    let limit = TimeVal::milliseconds(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    setsockopt(socket, sockopt::ReceiveTimeout, &limit)?;
    setsockopt(socket, sockopt::SendTimeout, &limit)
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    /// Shows: operations.scx-silent
    #[test]
    fn a_loader_that_accepts_no_connection_is_silent() {
        let path = std::env::temp_dir().join(format!("pronto-scx-silent-{}", std::process::id()));
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let limit = Duration::from_millis(5);
        let waiting = Scheduler::connect_within(&path, limit).unwrap();
        assert_eq!(waiting.counters(), Err(Refused::Silent), "it does not reply");
        // The queue of connections is full now.
        assert_eq!(Scheduler::connect_within(&path, limit).unwrap_err(), Refused::Silent);
        std::fs::remove_file(path).unwrap();
    }

    /// Shows: operations.scx-missing
    #[test]
    fn a_missing_loader_is_reported() {
        let refused = Scheduler::connect_to(Path::new("/nowhere/pronto-scx.sock")).unwrap_err();
        let expected = if Path::new(KERNEL).exists() { Refused::NotRunning } else { Refused::NoSchedExt };
        assert_eq!(refused, expected);
    }
}

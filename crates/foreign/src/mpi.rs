//! The open requests of an MPI process as a source.
//!
//! MPI has no function to wait for its next event in an epoll. While there are open requests, a timer therefore ends the sleeps of the
//! node, and each sleep sets it anew. Without open requests the source costs a load per poll, and no wake-up.
//!
//! # Invariants
//! 1. MPI was initialised once, for several threads, and is not finalised while `Table::is_open`.
//! 2. The C half is called under the table's lock.
//! 3. The memory of an open request is in the table at the request's slot, and is neither accessed nor freed.

use core::ffi::{c_int, c_void};
use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use pronto::progress::{Cost, Manager, Notifier, Priority, Registration, Sleep, Source, Spec, Triggers};
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// Maximum number of open requests: the size of the table in `c/mpi.c`.
const SLOTS: usize = 64;
/// Maximum length of the text of a version, bytes.
const VERSION: usize = 128;

/// Number of a process among those that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank(pub i32);

/// Tag that a send and its receive share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub i32);

/// Callback that gets the memory of a completed request. It runs on the thread whose poll found the completion.
type Then = Box<dyn FnOnce(Vec<u8>) + Send>;

/// The process's MPI. Any thread may use it.
pub struct Mpi {
    table: Mutex<Table>,
    /// Wakes the node that progresses the requests.
    notifier: OnceLock<Notifier>,
}

/// The open requests, by slot.
struct Table {
    requests: [Option<(Vec<u8>, Then)>; SLOTS],
    is_open: bool,
}

/// Reason for which a function of MPI could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI was initialised before in this process.
    Twice,
    /// The library cannot be called by several threads at a time (`MPI_THREAD_MULTIPLE`).
    OneThread,
    /// The message is too long, or there are 64 open requests.
    Refused,
    /// There are open requests.
    Busy,
    /// The node has no room for a source, or the system none for a timer.
    NoSource,
}

impl Mpi {
    /// Initialises MPI for several threads.
    ///
    /// # Errors
    /// MPI was initialised before, or the library cannot be called by several threads at a time.
    pub fn open() -> Result<Self, MpiError> {
        static OPENED: OnceLock<()> = OnceLock::new();
        OPENED.set(()).map_err(|()| MpiError::Twice)?;
        // SAFETY: this is the first call in this process (1).
        if unsafe { foreign_mpi_open() } != 0 {
            return Err(MpiError::OneThread);
        }
        let table = Table { requests: [const { None }; SLOTS], is_open: true };
        Ok(Self { table: Mutex::new(table), notifier: OnceLock::new() })
    }

    /// Finalises MPI, which the thread that opened it must do. Later calls find no events.
    ///
    /// # Errors
    /// There are open requests.
    pub fn close(&self) -> Result<(), MpiError> {
        let mut table = self.table();
        if table.has_requests() {
            return Err(MpiError::Busy);
        }
        if core::mem::take(&mut table.is_open) {
            // SAFETY: MPI is open and has no open request (1, 2).
            unsafe { foreign_mpi_close() }
        }
        Ok(())
    }

    /// Returns the number of this process, or `None` if MPI is closed.
    pub fn rank(&self) -> Option<Rank> {
        // SAFETY: MPI is open (1, 2).
        self.table().is_open.then(|| Rank(unsafe { foreign_mpi_rank() }))
    }

    /// Returns the name and version of the library.
    pub fn version(&self) -> String {
        let mut text = [0_u8; VERSION];
        let room = c_int::try_from(VERSION).expect("a small constant");
        let _table = self.table();
        // SAFETY: the call writes up to `room` bytes (2), and MPI allows it at any time.
        let length = unsafe { foreign_mpi_version(text.as_mut_ptr(), room) };
        String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0)]).into_owned()
    }

    /// Starts to send `bytes`. Passes them to `then` when they have left.
    ///
    /// # Errors
    /// The message is too long, there are too many open requests, or MPI is closed.
    pub fn send(
        &self,
        bytes: Vec<u8>,
        to: Rank,
        tag: Tag,
        then: impl FnOnce(Vec<u8>) + Send + 'static,
    ) -> Result<(), MpiError> {
        self.start(bytes, Box::new(then), |bytes, length| {
            // SAFETY: MPI is open (1, 2), and the bytes stay until the request has completed (3).
            unsafe { foreign_mpi_send(bytes.as_ptr().cast(), length, to.0, tag.0) }
        })
    }

    /// Starts to receive a message of up to `room` bytes. Passes the memory to `then` when the message is there.
    ///
    /// # Errors
    /// The message is too long, there are too many open requests, or MPI is closed.
    pub fn receive(
        &self,
        room: usize,
        from: Rank,
        tag: Tag,
        then: impl FnOnce(Vec<u8>) + Send + 'static,
    ) -> Result<(), MpiError> {
        self.start(vec![0; room], Box::new(then), |bytes, length| {
            // SAFETY: MPI is open (1, 2), and nothing else accesses the memory until the request has completed (3).
            unsafe { foreign_mpi_receive(bytes.as_mut_ptr().cast(), length, from.0, tag.0) }
        })
    }

    fn start(
        &self,
        mut bytes: Vec<u8>,
        then: Then,
        request: impl FnOnce(&mut [u8], c_int) -> c_int,
    ) -> Result<(), MpiError> {
        let length = c_int::try_from(bytes.len()).map_err(|_| MpiError::Refused)?;
        let mut table = self.table();
        if !table.is_open {
            return Err(MpiError::Refused);
        }
        let slot = usize::try_from(request(&mut bytes, length)).map_err(|_| MpiError::Refused)?;
        let before = table.requests[slot].replace((bytes, then));
        assert!(before.is_none(), "MPI used slot {slot} for two open requests");
        drop(table);
        // A node that sleeps has set no timer if there was no request.
        if let Some(notifier) = self.notifier.get() {
            notifier.notify();
        }
        Ok(())
    }

    /// Lets MPI make progress, and runs the callbacks of completed requests. Returns their number, which is 0 if another thread has the
    /// table: MPI makes progress in its call too.
    pub fn poll(&self) -> usize {
        let Some(mut table) = self.try_table() else { return 0 };
        let completed = table.poll();
        drop(table);
        let count = completed.len();
        for (bytes, then) in completed {
            then(bytes);
        }
        count
    }

    /// Lets a node progress the open requests. While there are any, the node sleeps for `interval` at most.
    ///
    /// # Errors
    /// The node has no room for a source, or the system none for a timer.
    pub fn register(self: &Arc<Self>, node: &Manager, interval: Duration) -> Result<Registration, MpiError> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(|_| MpiError::NoSource)?;
        // A poll without requests is a load. With requests it is a call of MPI, of about a microsecond.
        let spec = Spec {
            name: "mpi",
            cost: Cost::Memory,
            priority: Priority::Normal,
            triggers: Triggers::ALL,
            sleep: Sleep::Asked,
        };
        let source = Requests { mpi: Arc::clone(self), timer, interval, is_set: false, expired: 0 };
        let registration = node.register(spec, source).map_err(|_| MpiError::NoSource)?;
        // Only the first node is notified of new requests; another would find them at its next poll.
        let _other = self.notifier.set(registration.notifier());
        Ok(registration)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics")
    }

    fn try_table(&self) -> Option<MutexGuard<'_, Table>> {
        match self.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("a holder of the table panicked"),
        }
    }
}

impl Table {
    fn has_requests(&self) -> bool {
        self.requests.iter().any(Option::is_some)
    }

    /// Removes the requests that have completed.
    fn poll(&mut self) -> Vec<(Vec<u8>, Then)> {
        if !self.is_open || !self.has_requests() {
            return Vec::new();
        }
        let mut slots: [c_int; SLOTS] = [0; SLOTS];
        // SAFETY: MPI is open (1, 2), and `slots` has room for every slot. The memory of open requests is in place (3).
        let count = unsafe { foreign_mpi_poll(slots.as_mut_ptr()) };
        let count = usize::try_from(count).expect("MPI ends the process after an error");
        let taken = slots[..count].iter().map(|slot| {
            let request = self.requests[usize::try_from(*slot).expect("a slot")].take();
            request.expect("MPI completes open requests only")
        });
        taken.collect()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // MPI may still access the memory of open requests, so it is never freed (3).
        self.requests.iter_mut().for_each(|request| core::mem::forget(request.take()));
    }
}

/// The source.
struct Requests {
    mpi: Arc<Mpi>,
    timer: TimerFd,
    interval: Duration,
    /// The timer was set for the present sleep.
    is_set: bool,
    /// 1 if the timer has expired, which counts as an event. The node would otherwise leave the timer out of its next sleep.
    expired: usize,
}

impl Source for Requests {
    fn poll(&mut self) -> usize {
        core::mem::take(&mut self.expired) + self.mpi.poll()
    }

    fn arm(&mut self) {
        // A thread that has the table may be starting a request.
        self.is_set = self.mpi.try_table().is_none_or(|table| table.has_requests());
        if self.is_set {
            let once = Expiration::OneShot(TimeSpec::from_duration(self.interval));
            // Without a timer the sleep would last until its limit.
            self.timer.set(once, TimerSetTimeFlags::empty()).expect("the interval is valid");
        }
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        let fd = self.timer.as_fd().as_raw_fd();
        [self.is_set.then_some(Channel { fd, interest: Interest::READABLE }), None]
    }

    fn disarm(&mut self) {
        if core::mem::take(&mut self.is_set) && self.timer.wait().is_ok() {
            self.expired = 1;
        }
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").finish_non_exhaustive()
    }
}

impl fmt::Display for MpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Twice => "MPI was initialised before in this process",
            Self::OneThread => "this MPI cannot be called by several threads at a time (MPI_THREAD_MULTIPLE)",
            Self::Refused => "the message is too long, there are 64 open requests, or MPI is closed",
            Self::Busy => "MPI has open requests; complete them before closing it",
            Self::NoSource => "no room for a source or its timer",
        })
    }
}

impl core::error::Error for MpiError {}

unsafe extern "C" {
    fn foreign_mpi_open() -> c_int;
    fn foreign_mpi_close();
    fn foreign_mpi_rank() -> c_int;
    fn foreign_mpi_version(text: *mut u8, room: c_int) -> c_int;
    fn foreign_mpi_send(bytes: *const c_void, length: c_int, peer: c_int, tag: c_int) -> c_int;
    fn foreign_mpi_receive(bytes: *mut c_void, length: c_int, peer: c_int, tag: c_int) -> c_int;
    fn foreign_mpi_poll(slots: *mut c_int) -> c_int;
}

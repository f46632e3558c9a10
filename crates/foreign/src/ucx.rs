//! A UCX worker as a source.
//!
//! # Invariants
//! 1. The worker is open from `open` to the drop of its only [`Worker`], and UCX made it for several threads.
//! 2. The handler stays in its box, at the address that the worker has, until the worker is closed.
//! 3. The C half of this adapter is called as `c/ucx.c` defines it.

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::slice;
use std::sync::Arc;

use pronto::progress::{Cost, Priority, Sleep, Source, Spec, Triggers};
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;

/// A message of the peer, valid during the call of the handler.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Content.
    pub bytes: &'a [u8],
    /// Protocol by which UCX transferred the message.
    pub protocol: Protocol,
}

/// Protocol of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The content came with the announcement.
    Eager,
    /// The receiver fetched the content after the announcement.
    Rendezvous,
}

/// Callback that gets each message. It runs on the thread that progresses the worker.
type Handler = Box<dyn Fn(Arrived<'_>) + Send + Sync>;

/// A UCX worker with one peer. Any thread may use it.
pub struct Worker {
    raw: NonNull<Raw>,
    /// Never read here: the worker refers to it.
    _handler: Box<Handler>,
}

/// A call of UCX that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UcxError {
    /// The function of the adapter.
    pub function: &'static str,
}

/// Result of arming a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// The next event makes the descriptor readable.
    Yes,
    /// There is an event already (`UCS_ERR_BUSY`). The descriptor does not report it.
    Busy,
}

impl Worker {
    /// Creates a worker that passes each message to `handler`.
    ///
    /// # Errors
    /// UCX cannot create a worker for several threads with a descriptor.
    pub fn open(handler: impl Fn(Arrived<'_>) + Send + Sync + 'static) -> Result<Self, UcxError> {
        let handler: Box<Handler> = Box::new(Box::new(handler));
        let user = (&raw const *handler).cast_mut().cast();
        // SAFETY: the returned value holds the handler until it closes the worker (2).
        let raw = unsafe { foreign_ucx_open(on_message, user) };
        let raw = NonNull::new(raw).ok_or(UcxError { function: "open" })?;
        Ok(Self { raw, _handler: handler })
    }

    /// Returns the worker's address, which its peer connects to.
    #[must_use]
    pub fn address(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the worker is open (1).
        let bytes = unsafe { foreign_ucx_address(self.raw.as_ptr(), &raw mut length) };
        // SAFETY: the address belongs to the open worker and does not change (1, 3).
        unsafe { slice::from_raw_parts(bytes, length) }
    }

    /// Connects to the only peer.
    ///
    /// # Errors
    /// UCX refuses the address.
    ///
    /// # Panics
    /// The address is empty.
    pub fn connect(&mut self, address: &[u8]) -> Result<(), UcxError> {
        assert!(!address.is_empty(), "an address of a worker is not empty");
        // SAFETY: the worker is open (1), and no other thread has a reference to it. UCX reads the address during this call.
        let result = unsafe { foreign_ucx_connect(self.raw.as_ptr(), address.as_ptr()) };
        if result == 0 { Ok(()) } else { Err(UcxError { function: "connect" }) }
    }

    /// Sends a copy of `bytes` to the peer. The message may need progress of this worker to leave; see [`Self::unsent`].
    ///
    /// # Errors
    /// UCX refuses the message, for example because the worker has no peer.
    pub fn send(&self, bytes: &[u8]) -> Result<(), UcxError> {
        // SAFETY: the worker is open (1), and copies the bytes during this call.
        let result = unsafe { foreign_ucx_send(self.raw.as_ptr(), bytes.as_ptr(), bytes.len()) };
        if result < 0 { Err(UcxError { function: "send" }) } else { Ok(()) }
    }

    /// Returns the number of messages that need more progress to leave.
    #[must_use]
    pub fn unsent(&self) -> u32 {
        // SAFETY: the worker is open (1).
        unsafe { foreign_ucx_unsent(self.raw.as_ptr()) }
    }

    /// Processes the available events, and runs the handler for messages. Returns the number of events.
    pub fn progress(&self) -> usize {
        // SAFETY: the worker is open (1), and its handler is in place (2).
        unsafe { foreign_ucx_progress(self.raw.as_ptr()) as usize }
    }

    /// Wakes a thread that sleeps on the worker's descriptor.
    ///
    /// # Errors
    /// UCX cannot write to the descriptor.
    pub fn signal(&self) -> Result<(), UcxError> {
        // SAFETY: the worker is open (1).
        let result = unsafe { foreign_ucx_signal(self.raw.as_ptr()) };
        if result == 0 { Ok(()) } else { Err(UcxError { function: "signal" }) }
    }

    /// Returns the source that progresses this worker, and its description.
    ///
    /// # Errors
    /// UCX has no descriptor for the worker.
    pub fn source(self: &Arc<Self>) -> Result<(Spec, impl Source + use<>), UcxError> {
        // SAFETY: the worker is open (1).
        let fd = unsafe { foreign_ucx_descriptor(self.raw.as_ptr()) };
        if fd < 0 {
            return Err(UcxError { function: "descriptor" });
        }
        // A poll is a few loads as long as the worker has no transport that needs system calls.
        let spec = Spec {
            name: "ucx",
            cost: Cost::Memory,
            priority: Priority::Normal,
            triggers: Triggers::ALL,
            sleep: Sleep::Asked,
        };
        Ok((spec, Progress { worker: Arc::clone(self), fd, is_busy: false }))
    }

    fn arm(&self) -> Armed {
        // SAFETY: the worker is open (1).
        match unsafe { foreign_ucx_arm(self.raw.as_ptr()) } {
            0 => Armed::Yes,
            1 => Armed::Busy,
            failed => panic!("ucp_worker_arm failed: {failed}"),
        }
    }
}

/// The source.
struct Progress {
    worker: Arc<Worker>,
    /// Descriptor of the worker, which is open as long as the worker.
    fd: i32,
    /// The worker could not be armed, because it has an event.
    is_busy: bool,
}

impl Source for Progress {
    fn poll(&mut self) -> usize {
        // The descriptor of a busy worker does not report the next event. The poll after `arm` must find one, so that the node does not
        // sleep, and UCX does not count all of its events.
        usize::from(core::mem::take(&mut self.is_busy)) + self.worker.progress()
    }

    fn arm(&mut self) {
        self.is_busy = self.worker.arm() == Armed::Busy;
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        [Some(Channel { fd: self.fd, interest: Interest::READABLE }), None]
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("unsent", &self.unsent()).finish_non_exhaustive()
    }
}

impl fmt::Display for UcxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UCX failed in `{}`; UCX_LOG_LEVEL=info prints why", self.function)
    }
}

impl core::error::Error for UcxError {}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: this is the only value of the worker (1), and the handler is dropped after this call (2).
        unsafe { foreign_ucx_close(self.raw.as_ptr()) }
    }
}

// SAFETY: UCX made the worker for several threads (1), and the handler is `Send` and `Sync`.
unsafe impl Send for Worker {}
// SAFETY: as above.
unsafe impl Sync for Worker {}

/// Passes a message to the handler. A panic of the handler aborts, because it must not unwind through UCX.
extern "C" fn on_message(user: *mut c_void, bytes: *const u8, length: usize, rendezvous: c_int) {
    // SAFETY: `user` is the handler that `open` passed, which is in place (2).
    let handler = unsafe { &*user.cast::<Handler>() };
    let bytes = match length {
        0 => &[][..],
        // SAFETY: the C half passes a message that is valid during this call (3).
        _ => unsafe { slice::from_raw_parts(bytes, length) },
    };
    let protocol = if rendezvous == 0 { Protocol::Eager } else { Protocol::Rendezvous };
    handler(Arrived { bytes, protocol });
}

/// The worker of the C half.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn foreign_ucx_open(
        arrived: extern "C" fn(*mut c_void, *const u8, usize, c_int),
        user: *mut c_void,
    ) -> *mut Raw;
    fn foreign_ucx_close(worker: *mut Raw);
    fn foreign_ucx_address(worker: *mut Raw, length: *mut usize) -> *const u8;
    fn foreign_ucx_connect(worker: *mut Raw, address: *const u8) -> c_int;
    fn foreign_ucx_send(worker: *mut Raw, bytes: *const u8, length: usize) -> c_int;
    fn foreign_ucx_unsent(worker: *mut Raw) -> c_uint;
    fn foreign_ucx_progress(worker: *mut Raw) -> c_uint;
    fn foreign_ucx_signal(worker: *mut Raw) -> c_int;
    fn foreign_ucx_arm(worker: *mut Raw) -> c_int;
    fn foreign_ucx_descriptor(worker: *mut Raw) -> c_int;
}

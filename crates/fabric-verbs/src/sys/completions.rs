//! Completion queues and their completion channel.

use core::cell::RefCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use pronto_core::fabric::Armed;

use super::context::Context;
use crate::device::Place;
use crate::error::{VerbsError, last};
use crate::ffi::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq, ibv_wc,
    ibv_wc_opcode,
};

/// Maximum number of completions taken from a queue at a time.
const BATCH: usize = 16;

/// A completion channel, which becomes readable when an armed completion queue has an event.
pub(crate) struct Channel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: as for Context.
unsafe impl Send for Channel {}
// SAFETY: as for Context.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open device.
        let raw = NonNull::new(unsafe { ibv_create_comp_channel(context.raw()) });
        let raw = raw.ok_or_else(|| last("ibv_create_comp_channel"))?;
        let this = Self { raw, context: Arc::clone(context) };
        let flags = fcntl(this.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        flags
            .and_then(|flags| fcntl(this.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)))
            .map_err(|errno| VerbsError::System { what: "fcntl", errno })?;
        Ok(Arc::new(this))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        // SAFETY: the library keeps the descriptor open as long as the channel, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_fd().fmt(f)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: invariant 1: its completion queues hold it.
        let _destroyed = unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// A work completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Name of the request.
    pub(crate) id: u64,
    /// `ibv_wc_status`, 0 for success.
    pub(crate) status: u32,
    /// Bytes received.
    pub(crate) len: u32,
    /// True if a write with an immediate has taken this receive: nothing was written to its buffer.
    pub(crate) is_immediate: bool,
}

/// A completion queue, polled in batches.
pub(crate) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    /// In a cell, so that a query with a shared reference may fill it.
    batch: RefCell<Batch>,
    /// Events taken from the channel and not acknowledged yet; all must be acknowledged before the end.
    unacknowledged: u32,
    /// The requested event, if it has not come yet.
    armed: Armed,
    /// Number of requests for an event made to the device.
    pub(crate) events_asked: u64,
    channel: Arc<Channel>,
}

/// Completions that were taken from the device together.
struct Batch {
    taken: [ibv_wc; BATCH],
    /// Index of the next completion to return.
    next: usize,
    filled: usize,
}

impl Batch {
    /// Returns whether there is a completion. Takes completions from the device if the batch is empty.
    #[inline]
    fn fill(&mut self, queue: NonNull<ibv_cq>) -> Result<bool, Errno> {
        if self.next != self.filled {
            return Ok(true);
        }
        const MOST: i32 = 16;
        const _: () = assert!(MOST as usize == BATCH);
        // SAFETY: a live queue, polled by its owner alone; the batch has room for that many.
        let polled = unsafe { ibv_poll_cq(queue.as_ptr(), MOST, self.taken.as_mut_ptr()) };
        self.next = 0;
        self.filled = usize::try_from(polled).map_or(0, |filled| filled.min(BATCH));
        if polled < 0 { Err(Errno::EIO) } else { Ok(polled > 0) }
    }
}

// SAFETY: as for Context; completions hold no pointers.
unsafe impl Send for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.batch.borrow();
        f.debug_struct("CompletionQueue")
            .field("batched", &(batch.filled - batch.next))
            .finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Creates a queue for at least `entries` completions, with the completion vector of `place`.
    pub(crate) fn new(channel: &Arc<Channel>, entries: u32, place: Place) -> Result<Self, VerbsError> {
        let has = channel.context.limits().max_cqe;
        if entries > has {
            let (has, needs) = (has.into(), entries.into());
            return Err(VerbsError::Device { what: "completion queue entries", has, needs });
        }
        let wanted = i32::try_from(entries).unwrap_or(i32::MAX);
        let vector =
            Some(place.completion_vector).filter(|vector| *vector < channel.context.completion_vectors());
        let vector = vector.and_then(|vector| i32::try_from(vector).ok()).unwrap_or(0);
        // SAFETY: an open device and a channel of it, which the value holds.
        let raw = unsafe {
            ibv_create_cq(channel.context.raw(), wanted, ptr::null_mut(), channel.raw.as_ptr(), vector)
        };
        let raw = NonNull::new(raw).ok_or_else(|| last("ibv_create_cq"))?;
        // SAFETY: every field of a completion is a number.
        let taken = unsafe { MaybeUninit::<[ibv_wc; BATCH]>::zeroed().assume_init() };
        Ok(Self {
            raw,
            batch: RefCell::new(Batch { taken, next: 0, filled: 0 }),
            unacknowledged: 0,
            armed: Armed::Nothing,
            events_asked: 0,
            channel: Arc::clone(channel),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Returns the next completion, or an error if the queue has failed.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<Done>, Errno> {
        let batch = self.batch.get_mut();
        if !batch.fill(self.raw)? {
            return Ok(None);
        }
        let found = &batch.taken[batch.next];
        batch.next += 1;
        let is_immediate = found.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        Ok(Some(Done { id: found.wr_id, status: found.status, len: found.byte_len, is_immediate }))
    }

    /// Returns whether there is nothing to poll. Completions of the device are taken into the batch, for the next poll.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // A failed queue must be polled.
        self.batch.borrow_mut().fill(self.raw) == Ok(false)
    }

    /// Returns whether a completion was already taken from the device.
    #[inline]
    pub(crate) fn has_batched(&self) -> bool {
        let batch = self.batch.borrow();
        batch.next != batch.filled
    }

    /// Requests one event on the channel, for the next completion, or for the next solicited or failed one. Does
    /// nothing if such an event is already requested: it comes in any case.
    pub(crate) fn request_event(&mut self, wanted: Armed) -> Result<(), Errno> {
        if self.armed >= wanted {
            return Ok(());
        }
        self.events_asked += 1;
        // SAFETY: a live queue.
        match unsafe { ibv_req_notify_cq(self.raw.as_ptr(), (wanted == Armed::Solicited).into()) } {
            0 => {
                self.armed = wanted;
                Ok(())
            }
            errno => Err(Errno::from_raw(errno)),
        }
    }

    /// Consumes an event on the channel of these two queues. Returns false if there was none. If there is another one,
    /// the channel stays readable.
    pub(crate) fn take_event(queues: [&mut Self; 2]) -> bool {
        let [one, two] = queues;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel, which does not block; both results outlive the call.
        if unsafe { ibv_get_cq_event(one.channel.raw.as_ptr(), &raw mut queue, &raw mut context) } != 0 {
            return false;
        }
        let of = if queue == one.raw() { one } else { two };
        of.armed = Armed::Nothing;
        of.unacknowledged += 1;
        if of.unacknowledged >= 64 {
            of.acknowledge();
        }
        true
    }

    fn acknowledge(&mut self) {
        // SAFETY: as many events as were taken and not acknowledged.
        unsafe { ibv_ack_cq_events(self.raw.as_ptr(), self.unacknowledged) };
        self.unacknowledged = 0;
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.acknowledge();
        // SAFETY: invariant 1: the queue pair that used it is gone, because its owner drops it first; no event is
        // unacknowledged, for which the library would wait.
        let destroyed = unsafe { ibv_destroy_cq(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "ibv_destroy_cq");
    }
}

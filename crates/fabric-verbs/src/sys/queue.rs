//! A reliable connected queue pair, with the requests that wait for its doorbell.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use nix::errno::Errno;
use pronto_core::fabric::{DoorbellEvent, SHORT_PAYLOAD, SendMemory as _};
use pronto_mapping::Mapping;
use pronto_wire::HEADER_LEN;

use super::completions::CompletionQueue;
use super::context::{Domain, Gid, PortAddress};
use super::memory::{Access, MemoryRegion, MemoryWindow, PinnedBytes};
use super::receive::SharedReceives;
use crate::error::{VerbsError, last};
use crate::ffi::{
    atomic_t, bind_mw_t, ibv_access_flags, ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_mw,
    ibv_mw_bind_info, ibv_post_send, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state,
    ibv_qp_type, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t, wr_t,
};

/// Length of a line, bytes: a header and its inline payload, or the result of an atomic.
pub(crate) const LINE: usize = 64;
/// Maximum length of a message that the device copies when it is posted: a header, and the payload of a short message.
pub(crate) const COPY: u32 = 256;
/// Lengths requested for inline data, bytes: the second one if the device refuses the first.
const INLINE: [u32; 2] = [COPY, 64];
const _: () = assert!(HEADER_LEN + SHORT_PAYLOAD == COPY_LEN);
const COPY_LEN: usize = COPY as usize;
/// Local acknowledgement timeout, 4.096 us x 2^14 = 67 ms (InfiniBand specification, 9.7.6.1.3).
const TIMEOUT: u8 = 14;
/// Number of retries before a connection that does not acknowledge is given up: about half a second in all. Not 7,
/// which soft-RoCE interprets as "forever" (drivers/infiniband/sw/rxe/rxe_comp.c).
const RETRIES: u8 = 6;

/// Size of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSizes {
    /// Maximum number of outstanding requests.
    pub(crate) depth: u32,
}

/// Data to connect to the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connect {
    pub(crate) number: u32,
    pub(crate) first_sequence: u32,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    /// Path MTU (`ibv_mtu`), the smaller one of both ends.
    pub(crate) mtu: u32,
    /// Maximum number of outstanding reads and atomics of the other end.
    pub(crate) their_reads: u8,
    /// Maximum number of outstanding reads and atomics of this end.
    pub(crate) our_reads: u8,
}

/// Operation of a request.
#[derive(Debug)]
pub(crate) enum Verb<'a> {
    /// Sends a message.
    Send,
    /// Ends the binding of a window of this queue pair under this key.
    Invalidate(u32),
    /// Accesses the peer's memory at an address under a key.
    Read(u64, u32),
    Write(u64, u32),
    CompareSwap {
        at: (u64, u32),
        expected: u64,
        desired: u64,
    },
    FetchAdd {
        at: (u64, u32),
        add: u64,
    },
    /// Lets the other end access a piece of memory, with offsets from its start, under the window's next key.
    Bind {
        window: &'a mut MemoryWindow,
        memory: &'a MemoryRegion,
        offset: usize,
        len: u64,
        rights: Rights,
    },
}

/// Access that a window permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

impl Rights {
    /// Returns the flags of the library. Offsets in a window count from its start.
    fn flags(self) -> u32 {
        let mut allowed = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
        for (right, flag) in [
            (self.read, ibv_access_flags::IBV_ACCESS_REMOTE_READ),
            (self.write, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
            (self.atomic, ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            allowed |= if right { flag.0 } else { 0 };
        }
        allowed
    }
}

/// Returns an empty request.
fn empty_request() -> ibv_send_wr {
    // SAFETY: numbers and pointers, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A request to be pushed.
#[derive(Debug)]
pub(crate) struct SendRequest<'a> {
    pub(crate) verb: Verb<'a>,
    /// Length of the message in the request's own line, or in its [`Queue::next_copy`] if it is longer than a line.
    pub(crate) line: u32,
    /// A further piece of registered memory: address, key, length.
    pub(crate) gathered: Option<((u64, u32), u32)>,
    /// True if the request generates its own completion.
    pub(crate) signalled: bool,
}

/// A queue pair with its lines, and its requests until they are posted.
pub(crate) struct Queue {
    raw: NonNull<ibv_qp>,
    requests: Box<[ibv_send_wr]>,
    pieces: Box<[[ibv_sge; 2]]>,
    /// Windows of unposted requests, with their next keys: the library reads the old key when posting.
    binding: Vec<(NonNull<ibv_mw>, u32)>,
    lines: Arc<MemoryRegion>,
    line_bytes: Arc<Mapping>,
    /// Copy slots, one for each request, if the device copies that many bytes. The device does not access them after
    /// the post.
    copies: Box<[[u8; COPY_LEN]]>,
    max_inline: u32,
    /// Numbers of the first incomplete request, of the first unposted one, and of the next one.
    oldest: u64,
    unposted: u64,
    next: u64,
    port: PortAddress,
    _receives: Arc<SharedReceives>,
}

// SAFETY: as for Context; the pointers in requests and pieces point into the value's own boxes and lines.
unsafe impl Send for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, unposted, next, .. } = self;
        f.debug_struct("Queue").field("requests", &(oldest, unposted, next)).finish_non_exhaustive()
    }
}

impl Queue {
    /// Creates a queue pair in the state INIT. The completion queues must outlive it.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        port: PortAddress,
        (sends, receives): (&CompletionQueue, &CompletionQueue),
        shared: &Arc<SharedReceives>,
        sizes: QueueSizes,
    ) -> Result<Self, VerbsError> {
        let has = domain.context().limits().max_qp_wr;
        if sizes.depth > has {
            let (has, needs) = (has.into(), sizes.depth.into());
            return Err(VerbsError::Device { what: "requests per queue pair", has, needs });
        }
        let depth = sizes.depth as usize;
        let line_bytes = domain.memory(sizes.depth * 64)?;
        const _: () = assert!(LINE == 64);
        let pinned = PinnedBytes::Mapped(Arc::clone(&line_bytes));
        let lines = MemoryRegion::register(domain, pinned, 0..depth * LINE, Access::Local)?;
        // SAFETY: plain numbers and pointers, for which zero is a value; every field that must not be zero is set
        // below.
        let mut wanted = unsafe { MaybeUninit::<ibv_qp_init_attr>::zeroed().assume_init() };
        wanted.send_cq = sends.raw();
        wanted.recv_cq = receives.raw();
        wanted.srq = shared.raw();
        wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
        wanted.cap.max_send_wr = sizes.depth;
        wanted.cap.max_send_sge = 2;
        // Not every device copies the longer length; every device copies some bytes.
        let created = INLINE.into_iter().find_map(|inline| {
            wanted.cap.max_inline_data = inline;
            // SAFETY: live objects of one device; the attributes outlive the call.
            NonNull::new(unsafe { ibv_create_qp(domain.raw(), &raw mut wanted) })
        });
        let raw = created.ok_or_else(|| last("ibv_create_qp"))?;
        let requests = (0..depth).map(|_| empty_request()).collect();
        let pieces = vec![[ibv_sge { addr: 0, length: 0, lkey: 0 }; 2]; depth].into_boxed_slice();
        let max_inline = wanted.cap.max_inline_data;
        let copying = if max_inline >= COPY { depth } else { 0 };
        let copies = vec![[0; COPY_LEN]; copying].into_boxed_slice();
        let (oldest, unposted, next) = (0, 0, 0);
        let _receives = Arc::clone(shared);
        let mut this = Self {
            raw,
            requests,
            pieces,
            binding: Vec::with_capacity(depth),
            lines,
            line_bytes,
            copies,
            max_inline,
            oldest,
            unposted,
            next,
            port,
            _receives,
        };
        this.initialise()?;
        Ok(this)
    }

    /// Returns the queue pair's number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    fn modify(
        &mut self,
        what: &'static str,
        set: impl FnOnce(&mut ibv_qp_attr) -> ibv_qp_attr_mask,
    ) -> Result<(), VerbsError> {
        // SAFETY: numbers only (an address is numbers, too), for which zero is a value.
        let mut attributes = unsafe { MaybeUninit::<ibv_qp_attr>::zeroed().assume_init() };
        let mask = i32::try_from(set(&mut attributes).0).unwrap_or(0);
        // SAFETY: a live queue pair; the attributes outlive the call.
        match unsafe { ibv_modify_qp(self.raw.as_ptr(), &raw mut attributes, mask) } {
            0 => Ok(()),
            errno => Err(VerbsError::System { what, errno: Errno::from_raw(errno) }),
        }
    }

    fn initialise(&mut self) -> Result<(), VerbsError> {
        let port = self.port.port;
        self.modify("ibv_modify_qp to INIT", |to| {
            to.qp_state = ibv_qp_state::IBV_QPS_INIT;
            to.port_num = port;
            // Allows windows to be bound with these rights; by itself it permits no access.
            to.qp_access_flags = (ibv_access_flags::IBV_ACCESS_REMOTE_READ
                | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC)
                .0;
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
                | ibv_qp_attr_mask::IBV_QP_PORT
                | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS
        })
    }

    /// Connects the queue pair: from INIT to ready to send.
    pub(crate) fn connect(&mut self, our_first_sequence: u32, to: &Connect) -> Result<(), VerbsError> {
        let port = self.port;
        self.modify("ibv_modify_qp to RTR", |set| {
            set.qp_state = ibv_qp_state::IBV_QPS_RTR;
            set.path_mtu = to.mtu;
            set.dest_qp_num = to.number;
            set.rq_psn = to.first_sequence;
            set.max_dest_rd_atomic = to.their_reads;
            set.min_rnr_timer = 1;
            set.ah_attr.dlid = to.lid;
            set.ah_attr.port_num = port.port;
            set.ah_attr.is_global = 1;
            set.ah_attr.grh.dgid.raw = to.gid.0;
            set.ah_attr.grh.sgid_index = port.gid_index;
            set.ah_attr.grh.hop_limit = 64;
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_AV
                | ibv_qp_attr_mask::IBV_QP_PATH_MTU
                | ibv_qp_attr_mask::IBV_QP_DEST_QPN
                | ibv_qp_attr_mask::IBV_QP_RQ_PSN
                | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER
        })?;
        self.modify("ibv_modify_qp to RTS", |set| {
            set.qp_state = ibv_qp_state::IBV_QPS_RTS;
            set.sq_psn = our_first_sequence;
            set.timeout = TIMEOUT;
            set.retry_cnt = RETRIES;
            // Credits guarantee that a receive is posted. A missing one is a fault, which is reported immediately.
            set.rnr_retry = 0;
            set.max_rd_atomic = to.our_reads;
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_SQ_PSN
                | ibv_qp_attr_mask::IBV_QP_TIMEOUT
                | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
                | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
                | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC
        })
    }

    /// Moves the queue pair to the error state. After this call the other end can access nothing any more, and
    /// outstanding requests complete as flushed.
    pub(crate) fn abort(&mut self) -> Result<(), VerbsError> {
        self.modify("ibv_modify_qp to ERR", |to| {
            to.qp_state = ibv_qp_state::IBV_QPS_ERR;
            ibv_qp_attr_mask::IBV_QP_STATE
        })
    }

    /// Returns the number of requests that can be pushed now.
    pub(crate) fn room(&self) -> usize {
        self.requests.len() - usize::try_from(self.next - self.oldest).unwrap_or(usize::MAX)
    }

    /// Returns the number of the next request, which is the name of its completion.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the number of the first unposted request.
    pub(crate) fn first_unposted(&self) -> u64 {
        self.unposted
    }

    /// Returns the number of the first incomplete request.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Forgets the unposted requests.
    pub(crate) fn forget_unposted(&mut self) {
        self.next = self.unposted;
        self.binding.clear();
    }

    /// Notes that all requests before this number have completed.
    pub(crate) fn completed_before(&mut self, number: u64) {
        debug_assert!(self.oldest <= number && number <= self.next);
        self.oldest = number;
    }

    fn place(&self, number: u64) -> usize {
        // The remainder is less than a length of usize.
        usize::try_from(number % self.requests.len() as u64).unwrap_or(0)
    }

    /// Returns the line of the next request, to be written.
    pub(crate) fn next_line(&mut self) -> &mut [u8; LINE] {
        let at = self.place(self.next) * LINE;
        debug_assert!(self.room() > 0);
        // SAFETY: a line lies within the mapping.
        let line = unsafe { self.line_bytes.base().add(at) };
        // SAFETY: the mapping is this value's alone; the line's former request has completed, because there is room, so
        // no device reads it.
        unsafe { line.cast::<[u8; LINE]>().as_mut() }
    }

    /// Returns the copy slot of the next request, for a message without a further piece that is copied when it is
    /// posted. Returns `None` if the device copies fewer bytes.
    pub(crate) fn next_copy(&mut self) -> Option<&mut [u8; COPY_LEN]> {
        let at = self.place(self.next);
        self.copies.get_mut(at)
    }

    /// Returns the first eight bytes of a request's line: the result of an atomic. Valid once the request has
    /// completed.
    pub(crate) fn result_of(&self, number: u64) -> u64 {
        let at = self.place(number) * LINE;
        // SAFETY: a line lies within the mapping.
        let line = unsafe { self.line_bytes.base().add(at) };
        // SAFETY: aligned to 64; volatile, since the device has written it.
        unsafe { line.cast::<u64>().as_ptr().read_volatile() }
    }

    /// Returns whether a message of `len` bytes is copied when it is posted, so that its memory is free from then on.
    pub(crate) fn copies(&self, len: u32) -> bool {
        len <= self.max_inline
    }

    /// Pushes one request; there must be room. Returns the key of the binding for a `Bind`.
    ///
    /// # Safety
    /// The window of a `Bind` must live until the request was posted or forgotten. Memory in `gathered` must be
    /// registered, stay so, and not be written to, until the request has completed.
    pub(crate) unsafe fn push(&mut self, request: SendRequest<'_>) -> u32 {
        assert!(self.room() > 0, "pushed without room");
        let at = self.place(self.next);
        let mut made = empty_request();
        made.wr_id = self.next;
        let (line, gathered) = (request.line, request.gathered);
        let pieces = &mut self.pieces[at];
        if line > 0 {
            let (addr, lkey) = match self.copies.get(at) {
                // The key is ignored for inline data (ibv_post_send(3)).
                Some(copy) if line as usize > LINE => (copy.as_ptr().expose_provenance() as u64, 0),
                _ => self.lines.local(at * LINE),
            };
            pieces[0] = ibv_sge { addr, length: line, lkey };
            made.num_sge = 1;
        }
        if let Some(((addr, lkey), length)) = gathered {
            pieces[usize::from(line > 0)] = ibv_sge { addr, length, lkey };
            made.num_sge += 1;
        }
        made.sg_list = pieces.as_mut_ptr();
        if request.signalled {
            made.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let key = self.describe(&mut made, request.verb);
        let len = line + gathered.map_or(0, |(_, length)| length);
        if made.opcode == ibv_wr_opcode::IBV_WR_SEND && self.copies(len) {
            made.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        }
        self.requests[at] = made;
        self.next += 1;
        key
    }

    /// Fills in the operation of a request. Returns the key of the binding for a `Bind`.
    fn describe(&mut self, made: &mut ibv_send_wr, verb: Verb<'_>) -> u32 {
        let rdma = |(remote_addr, rkey)| wr_t { rdma: rdma_t { remote_addr, rkey } };
        match verb {
            Verb::Send => made.opcode = ibv_wr_opcode::IBV_WR_SEND,
            Verb::Invalidate(key) => {
                made.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
                made.imm_data_invalidated_rkey_union.invalidated_rkey = key;
            }
            Verb::Read(at, key) => {
                made.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                made.wr = rdma((at, key));
            }
            Verb::Write(at, key) => {
                made.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                made.wr = rdma((at, key));
            }
            Verb::CompareSwap { at: (remote_addr, rkey), expected, desired } => {
                made.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
                made.wr.atomic = atomic_t { remote_addr, compare_add: expected, swap: desired, rkey };
            }
            Verb::FetchAdd { at: (remote_addr, rkey), add } => {
                made.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
                made.wr.atomic = atomic_t { remote_addr, compare_add: add, swap: 0, rkey };
            }
            Verb::Bind { window, memory, offset, len, rights } => {
                made.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                let key = window.next_key();
                self.binding.push((window.raw(), key));
                let mw_access_flags = rights.flags();
                let bind_info = ibv_mw_bind_info {
                    mr: memory.raw(),
                    addr: memory.local(offset).0,
                    length: len,
                    mw_access_flags,
                };
                made.bind_mw_tso_union.bind_mw =
                    bind_mw_t { mw: window.raw().as_ptr(), rkey: key, bind_info };
                return key;
            }
        }
        0
    }

    /// Posts everything that was pushed as one list, with one doorbell.
    pub(crate) fn post(&mut self, event: DoorbellEvent) -> Result<(), Errno> {
        if self.unposted == self.next {
            return Ok(());
        }
        let first = self.place(self.unposted);
        for number in self.unposted..self.next {
            let at = self.place(number);
            let follows = (number + 1 < self.next).then(|| self.place(number + 1));
            let next = follows.map_or(ptr::null_mut(), |at| &raw mut self.requests[at]);
            let request = &mut self.requests[at];
            request.next = next;
            if event == DoorbellEvent::Solicited && request.opcode == ibv_wr_opcode::IBV_WR_SEND {
                request.send_flags |= ibv_send_flags::IBV_SEND_SOLICITED.0;
            }
        }
        self.unposted = self.next;
        let mut refused = ptr::null_mut();
        // SAFETY: a live queue pair; the list ends with a null pointer and its members lie in this value's box, as do
        // their pieces; the caller of `push` has guaranteed the memory.
        let posted =
            unsafe { ibv_post_send(self.raw.as_ptr(), &raw mut self.requests[first], &raw mut refused) };
        for (window, key) in self.binding.drain(..) {
            // SAFETY: the caller of `push` has guaranteed that the window lives. Its key is the base of the next
            // binding's key.
            unsafe { (*window.as_ptr()).rkey = key };
        }
        match posted {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: invariant 1. When it returns no device reads or writes what was outstanding.
        let destroyed = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "ibv_destroy_qp");
    }
}

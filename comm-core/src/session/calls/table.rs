//! Call slots, in which a thread waits for the end of a call, of a synchronous send, of a one-sided operation or of a posted receive.
//!
//! # Invariants
//! 1. A slot belongs to its claimant from [`CallTable::claim`] until both sides are done with it: the waiter has taken the end or has left,
//!    and the engine expects nothing more for the slot. The side that is done last frees the slot.
//! 2. The engine writes the end once per use of the slot, before it sets `ENDED`. The waiter reads the end after it has seen `ENDED`.
//! 3. Each claim changes the generation. A late response has the old generation and is therefore dropped.
#![expect(clippy::cast_possible_truncation, reason = "fields of a packed word are taken at their width")]

use core::fmt;
use core::task::Waker;

use pronto_ring::{Growing, Slots};
use pronto_sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use pronto_sync::{FlagWaker, TryLock, WakeWord};
use pronto_wire::{CallId, FailureCode, INLINE_PAYLOAD, InlinePayload};

use crate::executor::Executor;
use crate::fabric::{Arrived, Payload};
use crate::session::end::{End, Executed};

const ENDED: u32 = 1;
const WAITER_GONE: u32 = 2;
const ENGINE_DONE: u32 = 4;
const BOTH_DONE: u32 = WAITER_GONE | ENGINE_DONE;

const _: () = assert!(ENDED ^ WAITER_GONE ^ ENGINE_DONE == 7, "each mark has a bit of its own");

/// Number of slots for which memory is allocated from the beginning. The others are slower by a call.
const FEW: u16 = 48;

/// Maximum number of call slots or credits in the engine reserve.
pub(in crate::session) const MAX_RESERVE: u8 = 8;

/// Returns the maximum size of the engine reserve for `of` call slots or credits. The rest is left to senders without the engine lock.
pub(in crate::session) fn max_reserve(of: u16) -> u32 {
    u32::from(of).div_ceil(4).min(MAX_RESERVE.into())
}

const INLINE_WORDS: usize = INLINE_PAYLOAD / 8;

/// The slots of all open calls to one peer.
pub struct CallTable<L> {
    slots: Growing<CallSlot<L>>,
    free: Slots,
    /// Engine reserve: free slots that are not in the free list. The last one is taken first. Only the holder of the engine writes it.
    reserve: [AtomicU16; MAX_RESERVE as usize],
    /// Number of slots in the engine reserve.
    reserve_count: AtomicU32,
    /// Maximum of `reserve_count`.
    max_reserve: u32,
}

struct CallSlot<L> {
    state: AtomicU32,
    generation: AtomicU32,
    /// Kind and parameters of the end, packed by [`Self::pack`].
    end: AtomicU64,
    /// The payload, if it is inline.
    words: [AtomicU64; INLINE_WORDS],
    /// The payload, if it is not inline.
    lease: TryLock<Option<L>>,
    /// The word on which a blocked waiter sleeps.
    sleeper: WakeWord,
    /// The waker of a future.
    waker: FlagWaker,
}

impl<L: Payload> CallTable<L> {
    /// Returns a table of `capacity` slots. Memory for those after the first [`FEW`] is allocated when they are needed.
    pub fn new(capacity: u16) -> Self {
        let slot = || CallSlot {
            state: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            end: AtomicU64::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            lease: TryLock::new(None),
            sleeper: WakeWord::new(),
            waker: FlagWaker::new(),
        };
        let (slots, free) = (Growing::new(FEW.into(), capacity.into(), slot), Slots::growing(FEW, capacity));
        let max_reserve = max_reserve(capacity);
        let reserve = core::array::from_fn(|_| AtomicU16::new(0));
        Self { slots, free, reserve, reserve_count: AtomicU32::new(0), max_reserve }
    }

    /// Claims a free slot. Returns `None` if all slots are in use.
    pub fn claim(&self) -> Option<CallId> {
        loop {
            if let Some(index) = self.free.claim() {
                return Some(self.begin(index));
            }
            if !self.free.grow() {
                return None;
            }
        }
    }

    /// Starts a new use of a slot.
    #[inline(always)]
    fn begin(&self, index: u16) -> CallId {
        let slot = self.slots.at(index.into());
        debug_assert!(
            slot.state.load(Ordering::Relaxed) & (ENDED | ENGINE_DONE) != ENDED,
            "a slot is used again when no response is outstanding"
        );
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Relaxed);
        slot.state.store(0, Ordering::Relaxed);
        CallId { slot: index, generation }
    }

    /// Frees a slot that the engine has never seen.
    pub fn unclaim(&self, call: CallId) {
        debug_assert!(self.is_current(call), "a claimed slot keeps its call until it is given back");
        self.free.release(call.slot);
    }

    /// Engine only: claims a slot of the engine reserve, or else a free one.
    #[inline(always)]
    pub(in crate::session) fn claim_in_engine(&self) -> Option<CallId> {
        let last = self.reserve_count.load(Ordering::Relaxed).wrapping_sub(1);
        match self.reserve.get(last as usize) {
            Some(reserve) => {
                debug_assert!(last < self.max_reserve, "the number of slots that are set aside has a limit");
                self.reserve_count.store(last, Ordering::Relaxed);
                Some(self.begin(reserve.load(Ordering::Relaxed)))
            }
            None => self.claim(),
        }
    }

    /// Engine only: moves a slot, with which waiter and engine are done, to the engine reserve for the next call of a thread that holds the
    /// engine. This avoids the atomic change of the free list, which drains the store buffer.
    #[inline(always)]
    pub(in crate::session) fn put_in_reserve(&self, index: u16) {
        let count = self.reserve_count.load(Ordering::Relaxed);
        debug_assert!(count <= self.max_reserve, "the number of slots that are set aside has a limit");
        debug_assert!(
            self.free.is_claimed(index) && !self.is_reserved(index),
            "a slot in use is set aside once"
        );
        match self.reserve.get(count as usize) {
            Some(reserve) if count < self.max_reserve => {
                reserve.store(index, Ordering::Relaxed);
                self.reserve_count.store(count + 1, Ordering::Relaxed);
            }
            _ => self.free.release(index),
        }
    }

    /// Returns the number of slots in use.
    pub fn in_use(&self) -> u16 {
        let reserve = self.reserve_count.load(Ordering::Relaxed) as u16;
        self.free.in_use().saturating_sub(reserve)
    }

    /// Returns whether any slot was ever used.
    pub fn was_used(&self) -> bool {
        self.slots.made().any(|(_, slot)| slot.generation.load(Ordering::Relaxed) != 0)
    }

    /// Returns whether the call has ended.
    pub fn has_ended(&self, call: CallId) -> bool {
        // SYNC: pairs with the release in `end`, whose earlier writes are visible after this.
        self.slots.at(call.slot.into()).state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Takes the end of a call that has ended. The waiter is then done with the slot.
    pub fn take(&self, call: CallId) -> End<L> {
        debug_assert!(
            self.is_current(call) && self.has_ended(call),
            "a waiter takes the end of its own call"
        );
        let slot = self.slots.at(call.slot.into());
        let end = slot.unpack();
        self.leave(call);
        end
    }

    /// Called when the waiter leaves without the end. Returns whether the engine still expects a response, so that a cancellation is worth
    /// sending.
    pub fn leave(&self, call: CallId) -> bool {
        let slot = self.slots.at(call.slot.into());
        // SYNC: releases what the waiter read; pairs with the claim of the slot's next user through the free list.
        let before = slot.state.fetch_or(WAITER_GONE, Ordering::AcqRel);
        debug_assert!(before & WAITER_GONE == 0, "a waiter leaves its slot once");
        if before & ENGINE_DONE != 0 {
            self.recycle(call.slot);
        }
        before & ENGINE_DONE == 0
    }

    /// Returns whether the waiter has left without the end of this call.
    pub(in crate::session) fn was_left(&self, call: CallId) -> bool {
        let slot = self.slots.at(call.slot.into());
        slot.generation.load(Ordering::Relaxed) == call.generation
            && slot.state.load(Ordering::Relaxed) & WAITER_GONE != 0
    }

    /// Stores the end of a call and wakes its waiter. `expects` tells whether a response may still arrive. Returns whether a waiter takes
    /// the end.
    pub fn end(&self, call: CallId, end: End<L>, expects: Expects, executor: &impl Executor) -> bool {
        let slot = self.slots.at(call.slot.into());
        debug_assert!(slot.state.load(Ordering::Relaxed) & (ENDED | ENGINE_DONE) == 0, "a call ends once");
        slot.pack(end);
        let bits = if matches!(expects, Expects::Nothing) { ENDED | ENGINE_DONE } else { ENDED };
        // SYNC: publishes the end; pairs with `has_ended`.
        let before = slot.state.fetch_or(bits, Ordering::AcqRel);
        if before & WAITER_GONE != 0 {
            if bits & ENGINE_DONE != 0 {
                self.recycle(call.slot);
            }
            return false;
        }
        if slot.sleeper.needs_wake() {
            executor.wake(slot.sleeper.by_ref().0);
        }
        if let Some(waker) = slot.waker.take() {
            executor.foreign(|| waker.wake());
        }
        true
    }

    /// Frees the slot of a call whose end the waiter took directly from the engine, and with which the engine is done.
    #[inline]
    pub(in crate::session) fn settle_caught(&self, call: CallId) {
        debug_assert!(self.is_current(call), "a claimed slot keeps its call until it is given back");
        self.free.release(call.slot);
    }

    /// Records that no response is expected any more for a call that has already ended.
    pub fn settle(&self, call: CallId) {
        let before = self.slots.at(call.slot.into()).state.fetch_or(ENGINE_DONE, Ordering::AcqRel);
        debug_assert!(before & ENGINE_DONE == 0, "a slot is settled once");
        debug_assert!(before & (ENDED | WAITER_GONE) != 0, "a slot is settled after its waiter's end");
        if before & WAITER_GONE != 0 {
            self.recycle(call.slot);
        }
    }

    /// Returns whether the slot still belongs to this call, ended or not.
    pub(in crate::session) fn is_current(&self, call: CallId) -> bool {
        self.slots.at(call.slot.into()).generation.load(Ordering::Relaxed) == call.generation
    }

    /// Returns whether the slot still belongs to this call, and its waiter is not known to have left.
    pub(in crate::session) fn is_unleft(&self, call: CallId) -> bool {
        self.is_current(call) && !self.was_left(call)
    }

    /// Returns whether the slot belongs to this call, and the call has not ended. After a failed session the engine may find references to
    /// a call that [`Self::end_claimed`] has ended.
    pub(in crate::session) fn is_unended(&self, call: CallId) -> bool {
        self.is_current(call) && !self.has_ended(call)
    }

    /// Returns whether the slot belongs to this call, and a response to it may still arrive.
    pub(in crate::session) fn is_expected(&self, call: CallId) -> bool {
        let slot = self.slots.at(call.slot.into());
        self.is_current(call) && slot.state.load(Ordering::Relaxed) & ENGINE_DONE == 0
    }

    /// Engine only: ends the calls of all claimed slots with `PeerDown`, and expects nothing more for any slot. Does not use the engine's
    /// state of the calls. A call that has already ended keeps its end. Returns the number of calls that it ended.
    ///
    /// If a panic interrupted [`Self::end`] between storing the end and publishing it, the call counts as not ended. A slot that another
    /// thread is claiming or freeing at the same time may be ended, too: that thread finds the end later, or frees the slot without reading
    /// it.
    pub(in crate::session) fn end_claimed(&self, executor: &impl Executor) -> usize {
        let mut ended = 0;
        for call in self.claimed() {
            let state = self.slots.at(call.slot.into()).state.load(Ordering::Acquire);
            if state & ENGINE_DONE != 0 {
                continue;
            }
            if state & ENDED != 0 {
                self.settle(call);
            } else {
                self.end(call, End::PeerDown { executed: Executed::Maybe }, Expects::Nothing, executor);
                ended += 1;
            }
        }
        ended
    }

    /// Returns every claimed slot outside of the engine reserve, with its current generation.
    fn claimed(&self) -> impl Iterator<Item = CallId> {
        let slots = self.slots.made().map(|(index, slot)| (index as u16, slot));
        let claimed =
            slots.filter(move |(index, _)| self.free.is_claimed(*index) && !self.is_reserved(*index));
        claimed.map(|(slot, state)| CallId { slot, generation: state.generation.load(Ordering::Relaxed) })
    }

    /// Engine only: returns whether a slot is in the engine reserve.
    fn is_reserved(&self, index: u16) -> bool {
        let count = self.reserve_count.load(Ordering::Relaxed) as usize;
        let reserve = &self.reserve[..count.min(self.reserve.len())];
        reserve.iter().any(|reserve| reserve.load(Ordering::Relaxed) == index)
    }

    /// Ends and frees every claimed slot of a table that only the calling thread uses, so that no waiter exists.
    pub(in crate::session) fn clear(&self, executor: &impl Executor) {
        self.end_claimed(executor);
        for call in self.claimed() {
            self.leave(call);
        }
    }

    /// Returns the word on which a blocked waiter of this call sleeps.
    pub fn sleeper(&self, slot: u16) -> &WakeWord {
        &self.slots.at(slot.into()).sleeper
    }

    /// Registers a future's waker. Check [`CallTable::has_ended`] afterwards.
    pub fn register(&self, call: CallId, waker: &Waker) {
        self.slots.at(call.slot.into()).waker.register(waker);
    }

    /// Engine only: wakes the tasks that await the end of a call, because the link has changed.
    pub(in crate::session) fn wake_tasks(&self, executor: &impl Executor) {
        for call in self.claimed() {
            if let Some(waker) = self.slots.at(call.slot.into()).waker.take() {
                executor.foreign(|| waker.wake());
            }
        }
    }

    fn recycle(&self, index: u16) {
        debug_assert!(
            self.slots.at(index.into()).state.load(Ordering::Relaxed) & BOTH_DONE == BOTH_DONE,
            "a slot is free when its waiter and the engine are done with it"
        );
        if let Some(mut lease) = self.slots.at(index.into()).lease.try_lock() {
            *lease = None;
        }
        self.free.release(index);
    }
}

impl<L> fmt::Debug for CallTable<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTable")
            .field("capacity", &self.slots.len())
            .field("in_use", &self.free.in_use())
            .finish()
    }
}

/// The engine's expectation of a response to a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// No response will arrive: it has arrived already, or never will.
    Nothing,
    /// A response may still arrive. Until then the slot is not reused.
    Response,
}

const TAG_REPLY: u64 = 0;
const TAG_FAILURE: u64 = 1;
const TAG_PEER_DOWN: u64 = 2;
const TAG_DEADLINE: u64 = 3;
const TAG_DONE: u64 = 4;
const TAG_FLUSHED: u64 = 5;
const TAG_ACCESS_REFUSED: u64 = 6;
const TAG_UNSUPPORTED: u64 = 7;
const TAG_UNREADABLE: u64 = 8;
const IN_LEASE: u64 = 1 << 8;

impl<L: Payload> CallSlot<L> {
    /// Packs the end into the slot. Layout of the word: tag 8 bits | place of the payload 8 | inline length 16 | failure code 16 | executed
    /// 16.
    fn pack(&self, end: End<L>) {
        let mut word = match &end {
            End::Reply(_) => TAG_REPLY,
            End::Failure { code, .. } => TAG_FAILURE | (*code as u64) << 32,
            End::PeerDown { executed } => TAG_PEER_DOWN | (*executed as u64) << 48,
            End::Deadline { executed } => TAG_DEADLINE | (*executed as u64) << 48,
            End::Done(_) => TAG_DONE,
            End::Flushed => TAG_FLUSHED,
            End::AccessRefused => TAG_ACCESS_REFUSED,
            End::Unreadable => TAG_UNREADABLE,
            End::Unsupported => TAG_UNSUPPORTED,
        };
        if let End::Done(value) = &end {
            self.words[0].store(*value, Ordering::Relaxed);
        }
        if let End::Reply(payload) | End::Failure { payload, .. } = end {
            match payload {
                Arrived::Inline(payload) => {
                    word |= u64::from(payload.len()) << 16;
                    for (word, chunk) in self.words.iter().zip(payload.line().chunks_exact(8)) {
                        word.store(
                            u64::from_le_bytes(chunk.try_into().expect("chunks of eight")),
                            Ordering::Relaxed,
                        );
                    }
                }
                Arrived::Buffer(lease) => {
                    word |= IN_LEASE;
                    *self.lease.try_lock().expect("invariant 2: the engine alone touches an unended slot") =
                        Some(lease);
                }
            }
        }
        self.end.store(word, Ordering::Relaxed);
    }

    fn unpack(&self) -> End<L> {
        let word = self.end.load(Ordering::Relaxed);
        let executed = Executed::from_bits(word >> 48);
        match word & 0xff {
            TAG_REPLY => End::Reply(self.payload(word)),
            TAG_FAILURE => {
                let code = FailureCode::from_wire((word >> 32) as u16);
                End::Failure { code: code.expect("packed by this module"), payload: self.payload(word) }
            }
            TAG_PEER_DOWN => End::PeerDown { executed },
            TAG_DEADLINE => End::Deadline { executed },
            TAG_DONE => End::Done(self.words[0].load(Ordering::Relaxed)),
            TAG_ACCESS_REFUSED => End::AccessRefused,
            TAG_UNREADABLE => End::Unreadable,
            TAG_UNSUPPORTED => End::Unsupported,
            _ => End::Flushed,
        }
    }

    fn payload(&self, word: u64) -> Arrived<L> {
        if word & IN_LEASE != 0 {
            let mut lease =
                self.lease.try_lock().expect("invariant 2: the waiter alone touches an ended slot");
            return Arrived::Buffer(lease.take().expect("packed with a lease, taken once"));
        }
        let mut bytes = [0; INLINE_PAYLOAD];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Arrived::Inline(InlinePayload::first(bytes, (word >> 16) as u8))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;

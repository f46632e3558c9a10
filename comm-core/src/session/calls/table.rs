//! Call slots: where a caller waits for the end of its call, or a sender for its completion.
//!
//! # Invariants
//! 1. A slot belongs to its claimant from [`CallTable::claim`] until both sides are done with it: the waiter has taken
//!    the end or gone, and the engine expects nothing more for it. Whoever is last gives the slot back.
//! 2. The engine writes the end once per use, before it sets `ENDED`; the waiter reads it after it saw `ENDED`.
//! 3. The generation changes at every claim, so that a late answer finds another number and is dropped.
#![expect(clippy::cast_possible_truncation, reason = "fields of a packed word are taken at their width")]

use alloc::boxed::Box;
use core::fmt;
use core::task::Waker;

use pronto_ring::slots::Slots;
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

/// Slots or credits that are set aside at most.
pub(in crate::session) const MAX_RESERVE: u8 = 8;

/// Of so many, how many are set aside for whoever holds the engine, at most: senders without it have the others.
pub(in crate::session) fn max_reserve(of: u16) -> u32 {
    u32::from(of).div_ceil(4).min(MAX_RESERVE.into())
}

const INLINE_WORDS: usize = INLINE_PAYLOAD / 8;

/// All calls to one peer that may be open at a time.
pub struct CallTable<L> {
    slots: Box<[CallSlot<L>]>,
    free: Slots,
    /// Free slots that are not in the free list, the last one first. Written by the engine's holder alone.
    reserve: [AtomicU16; MAX_RESERVE as usize],
    /// How many.
    reserve_count: AtomicU32,
    /// How many at most.
    max_reserve: u32,
}

struct CallSlot<L> {
    state: AtomicU32,
    generation: AtomicU32,
    /// What the end is, packed; see [`Self::pack`].
    end: AtomicU64,
    /// An inline payload.
    words: [AtomicU64; INLINE_WORDS],
    /// Any other payload.
    lease: TryLock<Option<L>>,
    /// A blocked waiter sleeps on this word.
    sleeper: WakeWord,
    /// A future's waker.
    waker: FlagWaker,
}

impl<L: Payload> CallTable<L> {
    /// A table of `capacity` slots.
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
        let slots = (0..capacity).map(|_| slot()).collect();
        let max_reserve = max_reserve(capacity);
        let reserve = core::array::from_fn(|_| AtomicU16::new(0));
        Self { slots, free: Slots::new(capacity), reserve, reserve_count: AtomicU32::new(0), max_reserve }
    }

    /// Takes a free slot, or none if every one is in use.
    pub fn claim(&self) -> Option<CallId> {
        self.free.claim().map(|index| self.begin(index))
    }

    /// Another use of a slot.
    #[inline(always)]
    fn begin(&self, index: u16) -> CallId {
        let slot = &self.slots[usize::from(index)];
        debug_assert!(
            slot.state.load(Ordering::Relaxed) & (ENDED | ENGINE_DONE) != ENDED,
            "a slot is used again when no response is outstanding"
        );
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Relaxed);
        slot.state.store(0, Ordering::Relaxed);
        CallId { slot: index, generation }
    }

    /// Gives back a slot of which the engine has never heard.
    pub fn unclaim(&self, call: CallId) {
        debug_assert!(self.is_current(call), "a claimed slot keeps its call until it is given back");
        self.free.release(call.slot);
    }

    /// Engine only: takes a slot that was set aside, else a free one.
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

    /// Engine only: gives a slot back, whose waiter and engine are done with it, for the next call of a thread that holds
    /// the engine anyway. The free list is for those who do not, and changing it empties the store buffer.
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

    /// Slots in use.
    pub fn in_use(&self) -> u16 {
        let reserve = self.reserve_count.load(Ordering::Relaxed) as u16;
        self.free.in_use().saturating_sub(reserve)
    }

    /// Whether there was ever a call.
    pub fn was_used(&self) -> bool {
        self.slots.iter().any(|slot| slot.generation.load(Ordering::Relaxed) != 0)
    }

    /// Whether the call has ended.
    pub fn has_ended(&self, call: CallId) -> bool {
        // SYNC: pairs with the release in `end`; what it wrote is visible after this.
        self.slots[usize::from(call.slot)].state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Takes the end of a call that has ended, and with it the waiter's half of the slot.
    pub fn take(&self, call: CallId) -> End<L> {
        debug_assert!(
            self.is_current(call) && self.has_ended(call),
            "a waiter takes the end of its own call"
        );
        let slot = &self.slots[usize::from(call.slot)];
        let end = slot.unpack();
        self.leave(call);
        end
    }

    /// The waiter goes without the end. Returns whether the engine still expects an answer, so that it is worth telling
    /// the callee.
    pub fn leave(&self, call: CallId) -> bool {
        let slot = &self.slots[usize::from(call.slot)];
        // SYNC: releases what the waiter read; pairs with the claim of the slot's next user through the free list.
        let before = slot.state.fetch_or(WAITER_GONE, Ordering::AcqRel);
        debug_assert!(before & WAITER_GONE == 0, "a waiter leaves its slot once");
        if before & ENGINE_DONE != 0 {
            self.recycle(call.slot);
        }
        before & ENGINE_DONE == 0
    }

    /// Whether the waiter has left without the end of this call.
    pub(in crate::session) fn was_left(&self, call: CallId) -> bool {
        let slot = &self.slots[usize::from(call.slot)];
        slot.generation.load(Ordering::Relaxed) == call.generation
            && slot.state.load(Ordering::Relaxed) & WAITER_GONE != 0
    }

    /// The engine's word on how a call ended; `expects` says whether an answer may still come. Returns whether there is
    /// still somebody to take it.
    pub fn end(&self, call: CallId, end: End<L>, expects: Expects, executor: &impl Executor) -> bool {
        let slot = &self.slots[usize::from(call.slot)];
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

    /// The waiter has taken its answer straight from the engine, which is done with the call: nothing went through the
    /// slot.
    #[inline]
    pub(in crate::session) fn settle_caught(&self, call: CallId) {
        debug_assert!(self.is_current(call), "a claimed slot keeps its call until it is given back");
        self.free.release(call.slot);
    }

    /// No answer is expected any more for a call that had ended before.
    pub fn settle(&self, call: CallId) {
        let before = self.slots[usize::from(call.slot)].state.fetch_or(ENGINE_DONE, Ordering::AcqRel);
        debug_assert!(before & ENGINE_DONE == 0, "a slot is settled once");
        debug_assert!(before & (ENDED | WAITER_GONE) != 0, "a slot is settled after its waiter's end");
        if before & WAITER_GONE != 0 {
            self.recycle(call.slot);
        }
    }

    /// Returns whether the slot still belongs to this call, ended or not.
    pub(in crate::session) fn is_current(&self, call: CallId) -> bool {
        self.slots[usize::from(call.slot)].generation.load(Ordering::Relaxed) == call.generation
    }

    /// Returns whether the slot still belongs to this call, and its waiter is not known to have left.
    pub(in crate::session) fn is_unleft(&self, call: CallId) -> bool {
        self.is_current(call) && !self.was_left(call)
    }

    /// Returns whether the slot belongs to this call, and the call has not ended. After a failed session the engine may hear of a call
    /// that [`Self::end_claimed`] has ended.
    pub(in crate::session) fn is_unended(&self, call: CallId) -> bool {
        self.is_current(call) && !self.has_ended(call)
    }

    /// Engine only: ends every call whose slot is claimed with `PeerDown`, whatever the engine knew of it, and expects nothing more for
    /// any slot. A call that has ended keeps its end. Returns how many calls ended.
    ///
    /// A slot whose end was packed but not published counts as not ended. A slot that is being claimed or given back may be ended, too:
    /// its thread then finds that when it goes on, or gives the slot back without a look at its end.
    pub(in crate::session) fn end_claimed(&self, executor: &impl Executor) -> usize {
        let mut ended = 0;
        for call in self.claimed() {
            let state = self.slots[usize::from(call.slot)].state.load(Ordering::Acquire);
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

    /// Every claimed slot, with its present generation; not those that are set aside.
    fn claimed(&self) -> impl Iterator<Item = CallId> {
        let indices = (0u16..).zip(&self.slots);
        let claimed =
            indices.filter(move |(index, _)| self.free.is_claimed(*index) && !self.is_reserved(*index));
        claimed.map(|(slot, state)| CallId { slot, generation: state.generation.load(Ordering::Relaxed) })
    }

    /// Engine only: returns whether a slot is set aside.
    fn is_reserved(&self, index: u16) -> bool {
        let count = self.reserve_count.load(Ordering::Relaxed) as usize;
        let reserve = &self.reserve[..count.min(self.reserve.len())];
        reserve.iter().any(|reserve| reserve.load(Ordering::Relaxed) == index)
    }

    /// Ends and gives back every claimed slot, for a table of which the calling thread is the only user: nobody waits for the ends.
    pub(in crate::session) fn clear(&self, executor: &impl Executor) {
        self.end_claimed(executor);
        for call in self.claimed() {
            self.leave(call);
        }
    }

    /// The word that a blocked waiter of this call sleeps on.
    pub fn sleeper(&self, slot: u16) -> &WakeWord {
        &self.slots[usize::from(slot)].sleeper
    }

    /// Registers a future's waker; check [`CallTable::has_ended`] after it.
    pub fn register(&self, call: CallId, waker: &Waker) {
        self.slots[usize::from(call.slot)].waker.register(waker);
    }

    fn recycle(&self, index: u16) {
        debug_assert!(
            self.slots[usize::from(index)].state.load(Ordering::Relaxed) & BOTH_DONE == BOTH_DONE,
            "a slot is free when its waiter and the engine are done with it"
        );
        if let Some(mut lease) = self.slots[usize::from(index)].lease.try_lock() {
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

/// Whether the engine still expects an answer to a call that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// The callee has answered, or never will.
    Nothing,
    /// The callee may still answer; until then the slot is not used again.
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
const IN_LEASE: u64 = 1 << 8;

impl<L: Payload> CallSlot<L> {
    /// Layout of `end`: tag 8 bits | place 8 | inline length 16 | failure code 16 | executed 16.
    fn pack(&self, end: End<L>) {
        let mut word = match &end {
            End::Reply(_) => TAG_REPLY,
            End::Failure { code, .. } => TAG_FAILURE | (*code as u64) << 32,
            End::PeerDown { executed } => TAG_PEER_DOWN | (*executed as u64) << 48,
            End::Deadline { executed } => TAG_DEADLINE | (*executed as u64) << 48,
            End::Done(_) => TAG_DONE,
            End::Flushed => TAG_FLUSHED,
            End::AccessRefused => TAG_ACCESS_REFUSED,
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

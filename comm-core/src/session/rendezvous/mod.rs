//! Rendezvous: long messages, which are transferred into a receive buffer that their receiver has posted, while both sides compute.
//!
//! The sender grants access to its bytes and makes a call that names the grant: the *offer*. The receiver posts receives. Offers and
//! receives with the same tag match in the order of their arrival. The receiver reads the bytes of a matched offer with one-sided
//! operations, chunk by chunk, and responds to the call after the last chunk. A rendezvous therefore ends in the same ways as a call. A
//! short message is *eager*: the call carries its bytes, and the response is sent as soon as they have arrived.
//!
//! No thread waits in this module. The thread that runs the engine also makes progress with the transfers, one chunk per turn: the serving
//! thread while the application computes, or any thread that waits for this peer. [`table`] matches messages and receives, and [`transfer`]
//! selects the next chunk; neither depends on the engine. This module executes their decisions.
//!
//! # Invariants
//! 1. Posters and the holder of the engine lock the table only for moments. No thread waits for the engine while it holds the table.
//! 2. The state is written under the table's lock. As an exception, the holder of the engine may set it to `DUE` without the lock. `DUE`:
//!    progress is possible now. `OPEN`: progress is possible after other progress. `CLOSED`: there is no message and no receive.
//! 3. Every offer gets one response, unless its session has ended. Every posted receive ends once.

mod pieces;

pub(super) mod table;

pub(super) mod transfer;

pub(super) mod unmatched;

#[cfg(all(test, not(loom)))]
mod tests;

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pronto_sync::{TryLock, TryLockGuard};
use pronto_wire::{CallId, Class};

pub use pieces::{MAX_PIECES, Pieces};
pub use table::{LeftSend, Lent, MAX_PARKED_LEN, MAX_UNEXPECTED, Offer};
pub use transfer::Chunking;

use super::calls::{CallTable, Expects};
use super::end::End;
use super::outgoing::OutgoingPayload;
use super::response::Response;
use crate::executor::Executor;
use crate::fabric::Payload;
use crate::wait::back_off::BackOff;
use crate::wait::wanted::Wanted;
use table::Table;

/// Maximum number of posted receives per peer. Each has a call slot.
pub const MAX_RECEIVES: usize = 16;

/// Maximum number of rendezvous sends in progress per peer. Each has a call slot, and an eager one also a request credit. A send that the
/// program has given up counts until it has its response, for which the windows have room.
pub const MAX_SENDS: u32 = 16;

/// Maximum number of chunks in flight per peer, over all transfers. They use a separate table of slots, so that calls which wait for
/// transfers cannot block the transfers.
pub(super) const MAX_CHUNKS: u16 = 8;

pub(super) const CLOSED: u32 = 0;

pub(super) const OPEN: u32 = 1;

pub(super) const DUE: u32 = 2;

/// The location of an offer's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The bytes are in the sender's memory, which is granted for reading.
    ByReference(Pieces),
    /// The message is eager: its payload carries the bytes, after the first `skip` bytes.
    Eager {
        /// Number of payload bytes before the message's bytes.
        skip: usize,
    },
}

/// The reason why a rendezvous failed. It travels to the sender as one byte, the payload of a
/// [`FailureCode::HandlerError`](pronto_wire::FailureCode::HandlerError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NotReceived {
    /// The receiver cancelled its receive.
    Cancelled = 1,
    /// The receive's buffer is shorter than the message.
    TooLong = 2,
    /// The connection has no one-sided operations, or cannot use the receive's memory for them, for example because it cannot be locked.
    Unsupported = 3,
    /// The sender's memory has lost its bytes: it was unmapped, or the file that it maps was truncated.
    Unreadable = 4,
}

impl NotReceived {
    /// Returns the reason for a byte of a failure's payload.
    pub const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Cancelled),
            2 => Some(Self::TooLong),
            3 => Some(Self::Unsupported),
            4 => Some(Self::Unreadable),
            _ => None,
        }
    }

    pub(super) fn payload(self) -> OutgoingPayload {
        OutgoingPayload::inline(&[self as u8]).expect("one byte fits an inline payload")
    }
}

/// The rendezvous state of a session.
pub(super) struct Rendezvous<L> {
    pub(super) table: TryLock<Table<L>>,
    pub(super) state: AtomicU32,
    /// True if a call was cancelled while a poster held the table. The next turn then checks the calls of all messages.
    pub(super) missed_cancel: AtomicBool,
    /// The slots of chunks. Their numbers begin after those of the call slots.
    chunks: CallTable<L>,
    first_chunk: u16,
    /// Number of sends of this side in progress.
    pub(super) sends: AtomicU32,
}

impl<L: Payload> Rendezvous<L> {
    /// Returns the state for a session with `calls` call slots.
    pub(super) fn new(calls: u16) -> Self {
        Self {
            table: TryLock::new(Table::default()),
            state: AtomicU32::new(CLOSED),
            missed_cancel: AtomicBool::new(false),
            chunks: CallTable::new(MAX_CHUNKS),
            first_chunk: calls,
            sends: AtomicU32::new(0),
        }
    }

    /// Returns a chunk's slot in the table of chunks, or `None` for the slot of a call.
    fn chunk(&self, slot: CallId) -> Option<CallId> {
        let CallId { slot, generation } = slot;
        slot.checked_sub(self.first_chunk).map(|slot| CallId { slot, generation })
    }

    pub(super) fn claim_chunk(&self) -> Option<CallId> {
        let CallId { slot, generation } = self.chunks.claim()?;
        Some(CallId { slot: slot + self.first_chunk, generation })
    }

    pub(super) fn unclaim_chunk(&self, slot: CallId) {
        if let Some(chunk) = self.chunk(slot) {
            self.chunks.unclaim(chunk);
        }
    }

    /// Ends the operation of a chunk. Returns the end as an error if the slot is that of a call.
    pub(super) fn end_chunk(
        &self,
        slot: CallId,
        end: End<L>,
        executor: &impl Executor,
    ) -> Result<(), End<L>> {
        let Some(chunk) = self.chunk(slot) else { return Err(end) };
        self.chunks.end(chunk, end, Expects::Nothing, executor);
        Ok(())
    }

    /// Returns whether a chunk's slot waits for its end, or `None` for the slot of a call.
    pub(super) fn chunk_is_unended(&self, slot: CallId) -> Option<bool> {
        self.chunk(slot).map(|chunk| self.chunks.is_unended(chunk))
    }

    /// Resets the state after the session has failed: drops receives, offers and grants, and frees the slots of all chunks. The call slots
    /// of the receives are ended with those of all calls.
    pub(super) fn fail(&self, wanted: &Wanted, executor: &impl Executor) {
        let mut table = self.lock(wanted, executor);
        let dropped = core::mem::take(&mut *table);
        self.uncount(&dropped.left);
        self.state.store(CLOSED, Ordering::Relaxed);
        self.missed_cancel.store(false, Ordering::Relaxed);
        drop(table);
        drop(dropped);
        self.chunks.clear(executor);
    }

    /// Ends the sends that the program has left with the session.
    pub(super) fn uncount(&self, left: &[LeftSend]) {
        for _ in left.iter().filter(|left| left.is_counted && left.call.is_some()) {
            self.sends.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the end of a chunk, if it has ended.
    pub(super) fn chunk_end(&self, slot: CallId) -> Option<End<L>> {
        let chunk = self.chunk(slot).filter(|chunk| self.chunks.has_ended(*chunk))?;
        Some(self.chunks.take(chunk))
    }

    /// Engine only: called when the peer has cancelled a call, after `Shared::is_cancelled` is true for it. If the call is an offer that
    /// waits for a receive, the next turn responds to it.
    pub(super) fn offer_cancelled(&self, call: CallId) {
        match self.table.try_lock() {
            Some(mut table) => {
                table.cancel(call);
                if !table.given_up.is_empty() {
                    self.state.store(DUE, Ordering::Relaxed);
                }
            }
            None => {
                self.missed_cancel.store(true, Ordering::Relaxed);
                // This is safe without the lock: the engine's holder is the calling thread, and posters store no other value.
                self.state.store(DUE, Ordering::Relaxed);
            }
        }
    }

    /// Makes the next turn look at the table, if there is anything in it. Engine only.
    pub(super) fn look_again(&self) {
        // Fails if progress is possible already, or if there is nothing.
        let _looks = self.state.compare_exchange(OPEN, DUE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether progress is possible now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DUE
    }

    /// Returns whether a turn should process transfers. `moved` is the turn's progress so far.
    #[inline]
    pub(super) fn wants(&self, moved: usize) -> bool {
        match self.state.load(Ordering::Relaxed) {
            CLOSED => false,
            OPEN => moved != 0,
            _ => true,
        }
    }

    pub(super) fn lock(&self, wanted: &Wanted, executor: &impl Executor) -> TryLockGuard<'_, Table<L>> {
        let mut back_off = BackOff::default();
        loop {
            if let Some(table) = self.table.try_lock() {
                return table;
            }
            // The holder of the engine holds the table while it copies a chunk, and for moments in between.
            wanted.wait_for_holder(&mut back_off, executor);
        }
    }
}

pub(super) fn received() -> Response {
    Response::Reply { class: Class::Control, payload: OutgoingPayload::EMPTY }
}

impl<L> core::fmt::Debug for Rendezvous<L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rendezvous").field("state", &self.state).finish_non_exhaustive()
    }
}

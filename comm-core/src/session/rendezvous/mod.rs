//! Rendezvous: long messages that move into a buffer which their receiver has posted, while both sides compute.
//!
//! A sender grants its bytes and makes a call that says so (the *offer*); the call takes its place among the messages with its
//! tag when it arrives. The receiver posts receives. When an offer and a receive have met, the receiver reads the bytes by
//! one-sided operations, chunk by chunk, and answers the call when the last one is there: so a rendezvous ends in exactly the
//! ways in which calls end. Short messages are carried along in the call, and answered when they have arrived.
//!
//! There is nobody who waits in here. Whoever turns the session's engine moves the transfers, one chunk a turn: the serving
//! thread while the application computes, or a thread that waits for anything of this peer. Decisions are in [`table`] (who
//! meets whom) and [`transfer`] (what is asked for next), which know no engine; this module carries them out.
//!
//! # Invariants
//! 1. The table is locked for moments, by posters and by the engine's holder; nobody who holds it waits for the engine.
//! 2. The state is written under the table's lock, or to `DUE` by the engine's holder: `DUE` when something can be moved at once, `OPEN` when something can be moved
//!    after something else has moved, `CLOSED` when there is nothing.
//! 3. Every offer is answered once, unless its session has ended; every receive that was posted ends once.

pub(super) mod table;

pub(super) mod transfer;

pub(super) mod unmatched;

#[cfg(all(test, not(loom)))]
mod tests;

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pronto_sync::{TryLock, TryLockGuard};
use pronto_wire::{CallId, Class};

pub use table::{Lent, MAX_UNEXPECTED, Offer};
pub use transfer::Chunking;

use super::calls::{CallTable, Expects};
use super::end::End;
use super::outgoing::OutgoingPayload;
use super::response::Response;
use crate::executor::Executor;
use crate::fabric::{Payload, RemoteRange};
use crate::wait::back_off::BackOff;
use crate::wait::wanted::Wanted;
use table::Table;

/// Receives posted to one peer at a time, at most; each has a call slot.
pub const MAX_RECEIVES: usize = 16;

/// Sends to one peer under way at a time, at most; each has a call slot and, if it is carried, a request credit.
pub const MAX_SENDS: u32 = 16;

/// Chunks of all transfers of one peer under way at a time. They end in a table of their own: calls that wait for each other's
/// transfers cannot keep the transfers from moving.
pub(super) const MAX_CHUNKS: u16 = 8;

pub(super) const CLOSED: u32 = 0;

pub(super) const OPEN: u32 = 1;

pub(super) const DUE: u32 = 2;

/// What an offer brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The sender's memory, granted for reading.
    ByReference(RemoteRange),
    /// The message's own bytes, behind the first `skip` of its payload.
    Eager {
        /// Bytes before them.
        skip: usize,
    },
}

/// How a rendezvous failed, as it travels to the sender: one byte, the payload of a [`FailureCode::HandlerError`](pronto_wire::FailureCode::HandlerError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NotReceived {
    /// The receiver cancelled its receive.
    Cancelled = 1,
    /// The receive's buffer is shorter than the message.
    TooLong = 2,
    /// The connection has no one-sided operations, or cannot use the receive's memory for them: it may not be locked.
    Unsupported = 3,
}

impl NotReceived {
    /// The reason that a byte stands for.
    pub const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Cancelled),
            2 => Some(Self::TooLong),
            3 => Some(Self::Unsupported),
            _ => None,
        }
    }

    pub(super) fn payload(self) -> OutgoingPayload {
        OutgoingPayload::inline(&[self as u8]).expect("one byte fits a line")
    }
}

/// What a session keeps for it.
pub(super) struct Rendezvous<L> {
    pub(super) table: TryLock<Table<L>>,
    pub(super) state: AtomicU32,
    /// A call was cancelled while a poster held the table: the messages of all calls are looked through once.
    pub(super) missed_cancel: AtomicBool,
    /// Where chunks end. Their slots are numbered on from those of calls.
    chunks: CallTable<L>,
    first_chunk: u16,
    /// Sends of this side that are under way.
    pub(super) sends: AtomicU32,
}

impl<L: Payload> Rendezvous<L> {
    /// Beside a table of so many call slots.
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

    /// A chunk's slot, in its table; none for a call's.
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

    /// Ends the operation of a chunk; gives the end of a call's slot back.
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

    /// Whether a chunk's slot waits for its end; none for a call's.
    pub(super) fn chunk_is_unended(&self, slot: CallId) -> Option<bool> {
        self.chunk(slot).map(|chunk| self.chunks.is_unended(chunk))
    }

    /// The session has failed: drops its receives, its offers and what it had granted, and gives the slots of all chunks back. The
    /// receives' own slots are ended with those of all calls.
    pub(super) fn fail(&self, wanted: &Wanted, executor: &impl Executor) {
        let mut table = self.lock(wanted, executor);
        let dropped = core::mem::take(&mut *table);
        self.state.store(CLOSED, Ordering::Relaxed);
        self.missed_cancel.store(false, Ordering::Relaxed);
        drop(table);
        drop(dropped);
        self.chunks.clear(executor);
    }

    /// The end of a chunk, if it has ended.
    pub(super) fn chunk_end(&self, slot: CallId) -> Option<End<L>> {
        let chunk = self.chunk(slot).filter(|chunk| self.chunks.has_ended(*chunk))?;
        Some(self.chunks.take(chunk))
    }

    /// Engine only: the peer has cancelled a call, and `Shared::is_cancelled` says so. If it is an offer that waits for a
    /// receive, it is answered by the next turn.
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
                // Without the lock: posters write nothing but this, and the engine's holder is the calling thread.
                self.state.store(DUE, Ordering::Relaxed);
            }
        }
    }

    /// Whether something can be moved now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DUE
    }

    /// Whether a turn that moved something, or nothing, has to look here.
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
            // Held by whoever turns the engine for as long as a chunk is copied, and for moments between two.
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

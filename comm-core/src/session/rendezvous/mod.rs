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

mod table;
mod transfer;
mod unmatched;

#[cfg(all(test, not(loom)))]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pronto_sync::{TryLock, TryLockGuard};
use pronto_wire::{CallId, Class, FailureCode};

pub use table::{Lent, Offer, PARKED};
pub use transfer::Chunking;

use super::Session;
use super::arming::Armed;
use super::calls::{CallTable, Expects};
use super::end::{End, Executed};
use super::engine::Engine;
use super::entering::{EngineGuard, Wanted};
use super::inbound::{Answer, Inbound};
use super::one_sided::{CLASS, OneSided};
use super::outgoing::{OutgoingPayload, Submitted};
use super::refusal::Refused;
use super::token::Duties;
use crate::executor::Executor;
use crate::fabric::{Arrived, Payload, QueuePair, Region, RemoteRange};
use table::{Body, Met, Posted, Table, Waiting};
use transfer::{GivenUp, Source, Transfer};

/// Receives posted to one peer at a time, at most; each has a call slot.
pub const MAX_RECEIVES: usize = 16;
/// Sends to one peer under way at a time, at most; each has a call slot and, if it is carried, a request credit.
pub const MAX_SENDS: u32 = 16;
/// Chunks of all transfers of one peer under way at a time. They end in a table of their own: calls that wait for each other's
/// transfers cannot keep the transfers from moving.
const MAX_CHUNKS: u16 = 8;
/// Bytes that are copied at a time out of a message that carries them.
const PIECE: usize = 4096;

const CLOSED: u32 = 0;
const OPEN: u32 = 1;
const DUE: u32 = 2;

/// What an offer brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The sender's memory, granted for reading.
    ByReference(RemoteRange),
    /// The message's own bytes, behind the first `skip` of its payload.
    Carried {
        /// Bytes before them.
        skip: usize,
    },
}

/// How a rendezvous failed, as it travels to the sender: one byte, the payload of a [`FailureCode::HandlerError`].
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

    fn payload(self) -> OutgoingPayload {
        OutgoingPayload::inline(&[self as u8]).expect("one byte fits a line")
    }
}

/// What a session keeps for it.
pub(super) struct Rendezvous<L> {
    table: TryLock<Table<L>>,
    state: AtomicU32,
    /// A call was cancelled while a poster held the table: the messages of all calls are looked through once.
    missed_cancel: AtomicBool,
    /// Where chunks end. Their slots are numbered on from those of calls.
    chunks: CallTable<L>,
    first_chunk: u16,
    /// Sends of this side that are under way.
    sends: AtomicU32,
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

    fn claim_chunk(&self) -> Option<CallId> {
        let CallId { slot, generation } = self.chunks.claim()?;
        Some(CallId { slot: slot + self.first_chunk, generation })
    }

    fn unclaim_chunk(&self, slot: CallId) {
        if let Some(chunk) = self.chunk(slot) {
            self.chunks.unclaim(chunk);
        }
    }

    /// The end of a chunk, if it has ended.
    fn chunk_end(&self, slot: CallId) -> Option<End<L>> {
        let chunk = self.chunk(slot).filter(|chunk| self.chunks.has_ended(*chunk))?;
        Some(self.chunks.take(chunk))
    }

    /// Engine only: the peer has cancelled a call, and [`Session::is_cancelled`] says so. If it is an offer that waits for a
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

    fn lock(&self, wanted: &Wanted, executor: &impl Executor) -> TryLockGuard<'_, Table<L>> {
        loop {
            if let Some(table) = self.table.try_lock() {
                return table;
            }
            // Held by whoever turns the engine for as long as a chunk is copied, and for moments between two.
            wanted.after_you(executor);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Ends a one-sided operation in the slot that waits for it: a call's, or a chunk's.
    pub(super) fn end_access(&self, slot: CallId, end: End<Q::Lease>, executor: &impl Executor) {
        match self.rendezvous.chunk(slot) {
            Some(chunk) => self.rendezvous.chunks.end(chunk, end, Expects::Nothing, executor),
            None => self.calls.end(slot, end, Expects::Nothing, executor),
        };
    }

    /// Whether a one-sided operation's slot, a call's or a chunk's, waits for its end. A session that failed has ended all slots.
    pub(super) fn is_unended(&self, slot: CallId) -> bool {
        match self.rendezvous.chunk(slot) {
            Some(chunk) => self.rendezvous.chunks.is_unended(chunk),
            None => self.calls.is_unended(slot),
        }
    }

    /// The session has failed: drops its receives, its offers and what it had granted, and gives the slots of all chunks back. The
    /// receives' own slots are ended with those of all calls.
    pub(super) fn fail_rendezvous(&self, executor: &impl Executor) {
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let dropped = core::mem::take(&mut *table);
        self.rendezvous.state.store(CLOSED, Ordering::Relaxed);
        self.rendezvous.missed_cancel.store(false, Ordering::Relaxed);
        drop(table);
        drop(dropped);
        self.rendezvous.chunks.clear(executor);
    }

    /// Posts a receive: the next message with this tag goes to `len` bytes of the region from `offset`. Wait for the returned
    /// slot: it ends with [`End::Done`] and the message's length, with a failure whose code is `ReplyTooLarge` if the
    /// message was longer or `Cancelled` if the receive was cancelled, or with [`End::PeerDown`].
    pub fn post_receive(
        &self,
        tag: u64,
        region: &Region,
        (offset, len): (u64, u64),
        executor: &impl Executor,
    ) -> Result<CallId, Refused> {
        if offset.checked_add(len).is_none_or(|end| end > region.len() as u64) {
            return Err(Refused::OutOfRegion);
        }
        let slot = self.claim(executor)?;
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let refused = if table.posted.len() + table.transfers.len() >= MAX_RECEIVES {
            Some(Refused::TooManyTransfers { max: MAX_RECEIVES })
        } else {
            // Under the table's lock: the end of a session takes what is posted before it, and this sees it after. A session that
            // failed has ended the slot as well.
            let gone = !self.is_up() || self.calls.has_ended(slot);
            gone.then_some(Refused::NotConnected { peer: self.peer })
        };
        if let Some(refused) = refused {
            drop(table);
            self.calls.unclaim(slot);
            return Err(refused);
        }
        table.posted.push_back(Posted { slot, tag, region: region.clone(), offset, len });
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        self.move_soon(executor);
        Ok(slot)
    }

    /// Cancels a receive. It has ended when its slot has: until then chunks that are under way may still be written to its
    /// buffer. Its sender, if there is one already, is told.
    pub fn cancel_receive(&self, slot: CallId, executor: &impl Executor) {
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let withdrawn = table.withdraw(slot);
        if withdrawn.is_none() {
            let found = table.transfers.iter_mut().find(|transfer| transfer.posted.slot == slot);
            let Some(transfer) = found else { return };
            transfer.give_up(GivenUp::ByReceiver);
            self.rendezvous.state.store(DUE, Ordering::Relaxed);
        }
        drop(table);
        if let Some(posted) = withdrawn {
            let payload = Arrived::Inline(pronto_wire::InlinePayload::EMPTY);
            let end = End::Failure { code: FailureCode::Cancelled, payload };
            self.calls.end(posted.slot, end, Expects::Nothing, executor);
        } else {
            self.move_soon(executor);
        }
    }

    /// An offer has arrived: for sinks, in place of a handler. It is answered when its bytes have arrived, or its sender need
    /// not wait for that.
    pub fn take_offer(
        &self,
        inbound: Inbound<'_, Arrived<Q::Lease>>,
        tag: u64,
        offered: Offered,
        executor: &impl Executor,
    ) {
        let Inbound { token, resent, payload, .. } = inbound;
        let Some(call) = token.call() else { return token.finish() };
        let Duties { link, class, .. } = token.take();
        let offer = Offer { call, link, class, tag };
        let body = match offered {
            // One that was sent before names a grant of another link; the present one's comes behind it.
            Offered::ByReference(remote) if resent => {
                Body::Source(Source { remote, link: link.wrapping_sub(1) })
            }
            Offered::ByReference(remote) => Body::Source(Source { remote, link }),
            Offered::Carried { skip } => Body::Carried { payload, skip },
        };
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        let parks = !table.is_awaited(tag) && table.waiting.has_room_to_park();
        let body = match body {
            Body::Carried { payload, skip } if parks => park(&payload, skip),
            body => body,
        };
        let (parked, carried) = (matches!(body, Body::Parked(_)), matches!(body, Body::Carried { .. }));
        let ended = table.add(Waiting { offer, body });
        if self.is_cancelled(call) {
            // The cancellation was looked for before the offer was here.
            table.cancel(call);
        }
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        if let Some(Waiting { offer, body }) = ended {
            let carried = matches!(body, Body::Carried { .. });
            drop(body);
            if carried {
                // The receive buffer is free again. No response: its caller has ended the call.
                self.return_credit(offer.class, offer.link, executor);
            }
        }
        if !carried {
            // It holds no receive buffer any more.
            self.return_credit(class, link, executor);
        }
        if parked {
            self.respond(call, link, Class::Control, received(), executor);
        }
    }

    /// The sender of an offer has granted its bytes again, on the present link: grants end with their link, calls do not.
    pub fn take_regrant(&self, call: CallId, remote: RemoteRange, link: u16, executor: &impl Executor) {
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        table.regrant(call, Source { remote, link });
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
    }

    /// Counts a send, if there may be one more; [`Self::leave_send`] when it has ended.
    pub fn enter_send(&self) -> Result<(), Refused> {
        let sends = &self.rendezvous.sends;
        if sends.fetch_add(1, Ordering::Relaxed) >= MAX_SENDS {
            sends.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::TooManyTransfers { max: MAX_SENDS as usize });
        }
        Ok(())
    }

    /// A send has ended, or was given up: what was lent for it is taken back as soon as its call is answered. Until then the
    /// peer may be reading, and where a refused access ends the connection it must not be refused.
    pub fn leave_send(&self, lent: Option<Lent>, executor: &impl Executor) {
        self.rendezvous.sends.fetch_sub(1, Ordering::Relaxed);
        let Some(lent) = lent else { return };
        let mut table = self.rendezvous.lock(&self.wanted, executor);
        table.lent.push(lent);
        self.rendezvous.state.store(DUE, Ordering::Relaxed);
        drop(table);
        self.move_soon(executor);
    }

    /// The present link, or the last one: what is granted ends with it.
    pub fn link_generation(&self) -> u16 {
        self.credits[CLASS.index()].link()
    }

    /// Messages that wait for a receive, receives that wait for a message, and transfers under way.
    pub fn transfers(&self, executor: &impl Executor) -> [usize; 3] {
        let table = self.rendezvous.lock(&self.wanted, executor);
        [table.waiting.len() + table.given_up.len(), table.posted.len(), table.transfers.len()]
    }

    /// Whether a turn would move a transfer on although nothing has arrived.
    pub fn is_due(&self) -> bool {
        self.rendezvous.is_due()
    }

    /// A thread that has turned the engine goes: what can be moved is the serving thread's from now on.
    #[inline]
    pub(super) fn leave_transfers(&self, executor: &impl Executor) {
        if self.rendezvous.is_due() {
            executor.attend();
        }
    }

    /// A turn while a caller sleeps on the channels: what arrives is the caller's to take, but chunks are not, and nothing wakes
    /// the caller for them where they are done as soon as they are asked for.
    pub(super) fn move_for_sleeper(&self, mut engine: EngineGuard<'_, Q>, executor: &impl Executor) -> usize {
        if !self.rendezvous.is_due() {
            engine.release();
            return 0;
        }
        if engine.phase.is_linked() {
            while let Some(completion) = engine.lane(CLASS).qp.poll_send() {
                let known = engine.completed(completion, self, executor);
                engine.lane(CLASS).failed |= !known;
            }
        }
        let moved = engine.move_rendezvous(self, executor);
        engine.ring_doorbells(self);
        engine.release();
        moved
    }

    /// Has whoever holds the engine look, this thread if it is free; what is left then is the serving thread's.
    fn move_soon(&self, executor: &impl Executor) {
        // Refused when the queue is full: then its holder is awake, and finds it due.
        let _refused = self.submit(Submitted::Move, executor);
        if self.rendezvous.is_due() {
            executor.attend();
        }
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// Moves what can be moved: one chunk at most is asked for. Says how much that was.
    #[inline(never)]
    pub(super) fn move_rendezvous(&mut self, session: &Session<Q>, executor: &impl Executor) -> usize {
        // Held by a poster, who comes here next.
        let Some(mut guard) = session.rendezvous.table.try_lock() else { return 0 };
        let table = &mut *guard;
        let linked = self.phase.is_linked();
        let mut moved = 0;
        for transfer in &mut table.transfers {
            moved += transfer.take_ended(|slot| session.rendezvous.chunk_end(slot));
            if session.is_cancelled(transfer.offer.call) {
                transfer.give_up(GivenUp::BySender);
            }
            if linked {
                transfer.go_on(self.generation);
            }
        }
        if session.rendezvous.missed_cancel.swap(false, Ordering::Relaxed) {
            table.cancel_where(|call| session.is_cancelled(call));
        }
        while let Some(gone) = table.given_up.pop_front() {
            let carried = matches!(gone.body, Body::Carried { .. });
            answer(&gone.offer, Answer::failure(FailureCode::Cancelled), carried, session, executor);
            moved += 1;
        }
        moved += end_transfers(table, session, executor);
        moved += self.take_back(table);
        while let Some(met) = table.meet() {
            begin(met, table, session, executor);
            moved += 1;
        }
        let asked = linked && self.ask_for_chunk(table, session, executor);
        moved += usize::from(asked);
        let more = asked || table.transfers.iter().any(|transfer| transfer.is_over().is_some());
        let state = match (more, table.is_empty()) {
            (true, _) => DUE,
            (false, true) => CLOSED,
            (false, false) => OPEN,
        };
        session.rendezvous.state.store(state, Ordering::Relaxed);
        drop(guard);
        if asked && session.arming.armed() == Armed::Solicited {
            // Whoever sleeps must hear of the completion, too.
            self.arm(Armed::All, session);
        }
        moved
    }

    /// Ends the grants of sends whose calls have been answered. Says how many.
    fn take_back(&mut self, table: &mut Table<Q::Lease>) -> usize {
        let before = table.lent.len();
        let (calls, present) = (&self.calls, self.generation);
        let mut link = self.phase.link_mut();
        table.lent.retain(|lent| {
            let Some(link) = link.as_mut().filter(|_| lent.link == present) else { return false };
            if lent.call.is_some_and(|call| calls.is_open(call)) {
                return true;
            }
            // Refused only if it has ended before.
            let _ended = link.lanes[CLASS.index()].qp.revoke(lent.grant);
            false
        });
        before - table.lent.len()
    }

    /// Asks for the next chunk of the transfer whose turn it is.
    fn ask_for_chunk(
        &mut self,
        table: &mut Table<Q::Lease>,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> bool {
        let chunking = Chunking::of(self.lane(CLASS).qp.capabilities());
        let link = self.generation;
        let turn = table.transfers.iter().position(|transfer| transfer.next_chunk(chunking, link).is_some());
        let Some(mut transfer) = turn.and_then(|at| table.transfers.remove(at)) else { return false };
        let asked = transfer.next_chunk(chunking, link).is_some_and(|(end, access)| {
            let Some(completes) = session.rendezvous.claim_chunk() else { return false };
            let posted = self.try_access(OneSided { access, link, completes }, session, executor).is_ok();
            if posted {
                transfer.started(completes, end);
            } else {
                session.rendezvous.unclaim_chunk(completes);
            }
            posted
        });
        // The others' turn comes first next time.
        table.transfers.push_back(transfer);
        asked
    }

    /// The session has ended: so have its receives, and what its peer offered. Called when no chunk is under way any more.
    pub(super) fn end_rendezvous(&mut self, session: &Session<Q>, executor: &impl Executor) {
        let mut table = session.rendezvous.lock(&session.wanted, executor);
        let Table { posted, waiting, given_up, transfers, lent } = core::mem::take(&mut *table);
        session.rendezvous.state.store(CLOSED, Ordering::Relaxed);
        drop(table);
        drop((waiting, given_up, lent));
        let mut slots: Vec<_> = posted.iter().map(|posted| posted.slot).collect();
        for mut transfer in transfers {
            transfer.take_ended(|slot| session.rendezvous.chunk_end(slot));
            slots.push(transfer.posted.slot);
        }
        for slot in slots {
            let end = End::PeerDown { executed: Executed::Maybe };
            session.calls.end(slot, end, Expects::Nothing, executor);
        }
    }
}

/// A message and a receive have met.
fn begin<Q: QueuePair>(
    met: Met<Q::Lease>,
    table: &mut Table<Q::Lease>,
    session: &Session<Q>,
    executor: &impl Executor,
) {
    let Met { posted, waiting: Waiting { offer, body } } = met;
    let len = match &body {
        Body::Source(source) => source.remote.len,
        Body::Carried { payload, skip } => payload.len().saturating_sub(*skip) as u64,
        Body::Parked(bytes) => bytes.len() as u64,
    };
    let fits = len <= posted.len;
    match body {
        Body::Source(source) if fits => {
            table.transfers.push_back(Transfer::new(posted, offer, source));
            return;
        }
        Body::Source(_) => answer(&offer, not_received(NotReceived::TooLong), false, session, executor),
        Body::Carried { payload, skip } => {
            let fits = fits && copy(&payload, skip, &posted);
            drop(payload);
            let said = if fits { received() } else { not_received(NotReceived::TooLong) };
            answer(&offer, said, true, session, executor);
        }
        Body::Parked(bytes) if fits => {
            let at = usize::try_from(posted.offset).unwrap_or(usize::MAX);
            // The bounds were checked when the receive was posted.
            let _within = posted.region.write(at, &bytes);
        }
        Body::Parked(_) => {}
    }
    let end = if fits { End::Done(len) } else { too_long(len) };
    session.calls.end(posted.slot, end, Expects::Nothing, executor);
}

/// Ends the transfers that are over. Says how many.
fn end_transfers<Q: QueuePair>(
    table: &mut Table<Q::Lease>,
    session: &Session<Q>,
    executor: &impl Executor,
) -> usize {
    let mut ended = 0;
    while let Some(at) = table.transfers.iter().position(|transfer| transfer.is_over().is_some()) {
        let Some(transfer) = table.transfers.remove(at) else { break };
        ended += 1;
        let (offer, posted, over) = (transfer.offer, &transfer.posted, transfer.is_over());
        let unsupported = || End::Unsupported;
        let (said, end) = match over {
            Some(Ok(len)) => (received(), End::Done(len)),
            Some(Err(GivenUp::BySender)) => {
                answer(&offer, Answer::failure(FailureCode::Cancelled), false, session, executor);
                table.post_again(transfer.posted);
                continue;
            }
            Some(Err(GivenUp::ByReceiver)) => {
                let payload = Arrived::Inline(pronto_wire::InlinePayload::EMPTY);
                let end = End::Failure { code: FailureCode::Cancelled, payload };
                (not_received(NotReceived::Cancelled), end)
            }
            Some(Err(GivenUp::Unsupported)) | None => (not_received(NotReceived::Unsupported), unsupported()),
        };
        session.calls.end(posted.slot, end, Expects::Nothing, executor);
        answer(&offer, said, false, session, executor);
    }
    ended
}

/// Answers an offer; one that was carried along gives its credit back only now.
fn answer<Q: QueuePair>(
    offer: &Offer,
    said: Answer,
    carried: bool,
    session: &Session<Q>,
    executor: &impl Executor,
) {
    if carried {
        session.return_credit(offer.class, offer.link, executor);
    }
    session.respond(offer.call, offer.link, Class::Control, said, executor);
}

/// Copies the bytes of a message that carries them, so that it needs no receive buffer.
fn park<L: Payload>(payload: &Arrived<L>, skip: usize) -> Body<L> {
    let mut bytes = vec![0; payload.len().saturating_sub(skip)];
    // Cannot fail: as long as the payload behind `skip`.
    let _whole = payload.copy_to(skip, &mut bytes);
    Body::Parked(bytes.into())
}

/// Copies the bytes of a message that carries them.
fn copy<L: Payload>(payload: &Arrived<L>, skip: usize, posted: &Posted) -> bool {
    let mut piece = [0; PIECE];
    let (mut from, mut to) = (skip, usize::try_from(posted.offset).unwrap_or(usize::MAX));
    while from < payload.len() {
        let len = PIECE.min(payload.len() - from);
        let piece = &mut piece[..len];
        if payload.copy_to(from, piece).is_err() || posted.region.write(to, piece).is_err() {
            return false;
        }
        from += len;
        to = to.saturating_add(len);
    }
    true
}

fn received() -> Answer {
    Answer::Reply { class: Class::Control, payload: OutgoingPayload::EMPTY }
}

fn not_received(why: NotReceived) -> Answer {
    Answer::Failure { code: FailureCode::HandlerError, payload: why.payload() }
}

/// The end of a receive whose buffer is too short: the payload is the message's length.
fn too_long<L>(len: u64) -> End<L> {
    let payload = pronto_wire::InlinePayload::new(&len.to_le_bytes()).expect("eight bytes fit a line");
    End::Failure { code: FailureCode::ReplyTooLarge, payload: Arrived::Inline(payload) }
}

impl<L> core::fmt::Debug for Rendezvous<L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rendezvous").field("state", &self.state).finish_non_exhaustive()
    }
}

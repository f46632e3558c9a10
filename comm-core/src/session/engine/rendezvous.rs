//! The engine's part of a rendezvous: reads chunks, ends transfers, and responds to offers. The decisions are in
//! [`table`](crate::session::rendezvous) and `transfer`, which do not depend on the engine.

use alloc::vec::Vec;

use pronto_sync::atomic::Ordering;
use pronto_wire::{Class, FailureCode};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::{Arrived, Payload, QueuePair};
use crate::session::calls::Expects;
use crate::session::end::{End, Executed};
use crate::session::one_sided::{CLASS, OneSided};
use crate::session::outgoing::{Carrier, Outgoing};
use crate::session::rendezvous::table::{Body, Lent, Met, Offer, Posted, Table, UnmatchedMessage};
use crate::session::rendezvous::transfer::{Chunking, GivenUp, Transfer};
use crate::session::rendezvous::{CLOSED, DUE, NotReceived, OPEN, received};
use crate::session::response::Response;
use crate::session::shared::{Shared, Turn};
use crate::time::Nanos;

impl<Q: QueuePair> Engine<Q> {
    /// Makes progress with all transfers, and starts at most one chunk. Returns the amount of progress.
    #[inline(never)]
    pub(in crate::session) fn move_rendezvous(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) -> usize {
        // The table is locked by a poster, which takes the engine next.
        let Some(mut guard) = turn.shared.rendezvous.table.try_lock() else { return 0 };
        let table = &mut *guard;
        let linked = self.phase.is_linked();
        let mut moved = 0;
        for transfer in &mut table.transfers {
            moved += transfer.take_ended(|slot| turn.shared.rendezvous.chunk_end(slot));
            if turn.shared.is_cancelled(transfer.offer.call) {
                transfer.give_up(GivenUp::BySender);
            }
            if linked {
                transfer.go_on(self.generation);
            }
        }
        if turn.shared.rendezvous.missed_cancel.swap(false, Ordering::Relaxed) {
            table.cancel_where(|call| turn.shared.is_cancelled(call));
        }
        while let Some(UnmatchedMessage { offer, body }) = table.given_up.pop_front() {
            let eager = matches!(body, Body::Eager { .. });
            drop(body);
            self.respond_to_offer(&offer, Response::failure(FailureCode::Cancelled), eager, turn);
            moved += 1;
        }
        moved += self.end_transfers(table, turn);
        moved += self.end_left_sends(table, turn.shared);
        while let Some(met) = table.meet() {
            self.begin(met, table, turn);
            moved += 1;
        }
        let asked = linked && self.ask_for_chunk(table, turn);
        moved += usize::from(asked);
        let more = asked || table.transfers.iter().any(|transfer| transfer.is_over().is_some());
        let state = match (more, table.is_empty()) {
            (true, _) => DUE,
            (false, true) => CLOSED,
            (false, false) => OPEN,
        };
        turn.shared.rendezvous.state.store(state, Ordering::Relaxed);
        drop(guard);
        if asked && turn.shared.arming.armed() == Armed::Solicited {
            // A sleeping thread must be woken by the completion, too.
            self.arm(Armed::All, turn.shared);
        }
        moved
    }

    /// Ends the sends that the program has left and whose calls have a response, and revokes their grants. Returns their number.
    fn end_left_sends(&mut self, table: &mut Table<Q::Lease>, shared: &Shared<Q::Lease>) -> usize {
        let before = table.left.len();
        let present = self.generation;
        let mut link = self.phase.link_mut();
        table.left.retain_mut(|left| {
            let is_open = left.call.is_some_and(|call| shared.calls.is_expected(call));
            let granted = |lent: &mut Lent| link.is_some() && lent.link == present;
            if let Some(lent) = left.lent.take_if(|lent| !is_open || !granted(lent))
                && let Some(link) = link.as_mut().filter(|_| lent.link == present)
            {
                // This fails only if the grant has already ended.
                let _ended = link.revoke(lent.grant);
            }
            if !is_open && left.is_counted && left.call.is_some() {
                shared.rendezvous.sends.fetch_sub(1, Ordering::Relaxed);
            }
            is_open
        });
        before - table.left.len()
    }

    /// Starts the next chunk of the transfer whose turn it is. Returns whether one was started.
    fn ask_for_chunk(
        &mut self,
        table: &mut Table<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> bool {
        let chunking = Chunking::of(self.connection(CLASS).qp.capabilities());
        let link = self.generation;
        let Some(at) = table.turn(chunking, link) else { return false };
        let transfer = &mut table.transfers[at];
        let Some((end, access)) = transfer.next_chunk(chunking, link) else { return false };
        let Some(completes) = turn.shared.rendezvous.claim_chunk() else { return false };
        if self.try_access(OneSided { access, link, completes }, turn).is_err() {
            turn.shared.rendezvous.unclaim_chunk(completes);
            return false;
        }
        if transfer.started(completes, end) {
            table.end_turn(at);
        }
        true
    }

    /// Ends all receives with the session, and drops the peer's offers. Called when no chunk is in flight any more.
    pub(in crate::session) fn end_rendezvous(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) {
        let mut table = turn.shared.rendezvous.lock(&turn.shared.wanted, turn.executor);
        let Table { posted, waiting, given_up, transfers, left } = core::mem::take(&mut *table);
        turn.shared.rendezvous.uncount(&left);
        turn.shared.rendezvous.state.store(CLOSED, Ordering::Relaxed);
        drop(table);
        drop((waiting, given_up, left));
        let mut slots: Vec<_> = posted.iter().map(|posted| posted.slot).collect();
        for mut transfer in transfers {
            transfer.take_ended(|slot| turn.shared.rendezvous.chunk_end(slot));
            slots.push(transfer.posted.slot);
        }
        for slot in slots {
            let end = End::PeerDown { executed: Executed::Maybe };
            turn.shared.calls.end(slot, end, Expects::Nothing, turn.executor);
        }
    }

    /// Starts the transfer of a message to its receive, or completes both if the message carries its bytes.
    fn begin(
        &mut self,
        met: Met<Q::Lease>,
        table: &mut Table<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let Met { posted, waiting: UnmatchedMessage { offer, body } } = met;
        let len = match &body {
            Body::Source(source) => source.pieces.len(),
            Body::Eager { payload, skip } => payload.len().saturating_sub(*skip) as u64,
            Body::Unexpected(bytes) => bytes.len() as u64,
        };
        let fits = len <= posted.len;
        match body {
            Body::Source(source) if fits => {
                table.transfers.push_back(Transfer::new(posted, offer, source));
                return;
            }
            Body::Source(_) => self.respond_to_offer(&offer, not_received(NotReceived::TooLong), false, turn),
            Body::Eager { payload, skip } => {
                let fits = fits && copy(&payload, skip, &posted);
                drop(payload);
                let said = if fits { received() } else { not_received(NotReceived::TooLong) };
                self.respond_to_offer(&offer, said, true, turn);
            }
            Body::Unexpected(bytes) if fits => {
                let at = usize::try_from(posted.offset).unwrap_or(usize::MAX);
                // This cannot fail: the bounds were checked when the receive was posted.
                let _within = posted.region.write(at, &bytes);
            }
            Body::Unexpected(_) => {}
        }
        let end = if fits { End::Done(len) } else { too_long(len) };
        turn.shared.calls.end(posted.slot, end, Expects::Nothing, turn.executor);
    }

    /// Ends the transfers that are complete or were given up. Returns their number.
    fn end_transfers(
        &mut self,
        table: &mut Table<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> usize {
        let mut ended = 0;
        while let Some(at) = table.transfers.iter().position(|transfer| transfer.is_over().is_some()) {
            let Some(transfer) = table.transfers.remove(at) else { break };
            ended += 1;
            let (offer, posted, over) = (transfer.offer, &transfer.posted, transfer.is_over());
            let (said, end) = match over {
                Some(Ok(len)) => (received(), End::Done(len)),
                Some(Err(GivenUp::BySender)) => {
                    self.respond_to_offer(&offer, Response::failure(FailureCode::Cancelled), false, turn);
                    table.post_again(transfer.posted);
                    continue;
                }
                Some(Err(GivenUp::ByReceiver)) => {
                    let payload = Arrived::Inline(pronto_wire::InlinePayload::EMPTY);
                    let end = End::Failure { code: FailureCode::Cancelled, payload };
                    (not_received(NotReceived::Cancelled), end)
                }
                Some(Err(GivenUp::Unreadable)) => (not_received(NotReceived::Unreadable), End::Unreadable),
                Some(Err(GivenUp::Unsupported)) | None => {
                    (not_received(NotReceived::Unsupported), End::Unsupported)
                }
            };
            turn.shared.calls.end(posted.slot, end, Expects::Nothing, turn.executor);
            self.respond_to_offer(&offer, said, false, turn);
        }
        ended
    }

    /// Responds to an offer, and returns the credit of an eager one, whose payload has been dropped.
    fn respond_to_offer(
        &mut self,
        offer: &Offer,
        said: Response,
        eager: bool,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let Offer { call, link, class, .. } = *offer;
        if eager && turn.shared.credit_returned(class, link) {
            turn.shared.wanted.credit();
        }
        let (class, kind, payload) = said.into_message(call, Class::Control, &turn.shared.max_payload);
        self.post(
            Outgoing {
                class,
                link,
                kind,
                payload,
                carrier: Carrier::AnyLink,
                completes: None,
                timeout: Nanos::NEVER,
            },
            turn,
        );
    }
}

/// Copies the bytes of an eager message to its receive. Returns false if they do not fit.
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

/// Number of bytes that are copied at a time out of an eager message.
const PIECE: usize = 4096;

fn not_received(why: NotReceived) -> Response {
    Response::Failure { code: FailureCode::HandlerError, payload: why.payload() }
}

/// Returns the end of a receive whose buffer is too short. Its payload is the message's length.
fn too_long<L>(len: u64) -> End<L> {
    let payload =
        pronto_wire::InlinePayload::new(&len.to_le_bytes()).expect("eight bytes fit an inline payload");
    End::Failure { code: FailureCode::ReplyTooLarge, payload: Arrived::Inline(payload) }
}

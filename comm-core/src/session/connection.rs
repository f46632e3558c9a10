//! A link from the view of the engine, and its two connections with their counts.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ops::Range;

use pronto_wire::{Acks, CallId, Class, FirstWords, Kind, Pressure, Windows};

use super::doorbells::PendingDoorbell;
use super::greeting::Agreement;
use super::limits::CONTROL_WINDOW;
use super::link::LinkInfo;
use super::one_sided::CLASS as ONE_SIDED;
use super::pausing::{Pausing, Usage};
use super::stream::Stream;
use crate::buf::SendRing;
use crate::fabric::{FabricError, Grant, GrantError, GrantId, PeerFault, QueuePair, Region, Rights};
use crate::time::Nanos;

/// One link, which the engine drives.
#[derive(Debug)]
pub(super) struct Link<Q> {
    pub(super) connections: [Connection<Q>; 2],
    pub(super) info: LinkInfo,
    pub(super) last_received: Nanos,
    pub(super) last_sent: Nanos,
    /// True if a message was received since the last tick.
    pub(super) has_received: bool,
    /// True if a message was posted since the last tick.
    pub(super) has_sent: bool,
    /// True if the peer takes no new requests.
    pub(super) peer_draining: bool,
    /// True if the session survives the loss of this link.
    pub(super) resumable: bool,
    /// The first words of the headers that this side sends.
    pub(super) first_words: FirstWords,
    /// True if headers may carry the pressure of their sender.
    pub(super) carries_pressure: bool,
    /// True if either side may ask for the end of the link when it is idle.
    pub(super) pauses: bool,
    pub(super) pausing: Pausing,
    /// The traffic as of the last tick, and the time of the tick at which it last changed.
    pub(super) usage: Usage,
    pub(super) last_used: Nanos,
    /// Time before which this side does not ask for a pause again.
    pub(super) asks_again: Nanos,
    /// Number of grants that this side has given and not revoked. They end with the link.
    pub(super) grants: u32,
}

impl<Q: QueuePair> Link<Q> {
    /// Returns a link on which headers have this pressure, if it has that feature.
    pub(super) fn new(pairs: [Q; 2], agreement: &Agreement, pressure: Pressure, now: Nanos) -> Self {
        let info = LinkInfo {
            peer: agreement.peer,
            epoch: agreement.epoch,
            session: agreement.session,
            provider: pairs[0].capabilities().provider,
            local: agreement.local,
            evidence: agreement.evidence,
        };
        let resumable = agreement.resumable;
        let carries_pressure = agreement.carries_pressure;
        let pressure = if carries_pressure { pressure } else { Pressure::NONE };
        let [control, bulk] = pairs;
        let connection = |class: Class, qp: Q| {
            let [window, peer_window] = agreement.windows(class);
            Connection::new(qp, window, peer_window)
        };
        let connections = [connection(Class::Control, control), connection(Class::Bulk, bulk)];
        Self {
            connections,
            info,
            last_received: now,
            last_sent: now,
            has_received: false,
            has_sent: false,
            peer_draining: false,
            resumable,
            first_words: FirstWords::with(pressure),
            carries_pressure,
            pauses: resumable && agreement.pauses,
            pausing: Pausing::No,
            usage: Usage::default(),
            last_used: now,
            asks_again: now,
            grants: 0,
        }
    }
}

impl<Q: QueuePair> Link<Q> {
    /// Grants the peer access to a range of a region while the link lasts, and counts the grant.
    pub(super) fn grant(
        &mut self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
    ) -> Result<Grant, GrantError> {
        let granted = self.connections[ONE_SIDED.index()].qp.grant(region, range, rights)?;
        self.grants += 1;
        Ok(granted)
    }

    /// Ends a grant of this link.
    pub(super) fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.connections[ONE_SIDED.index()].qp.revoke(grant)?;
        self.grants = self.grants.saturating_sub(1);
        Ok(())
    }
}

/// One connection of a link, with its counts.
#[derive(Debug)]
pub(super) struct Connection<Q> {
    pub(super) qp: Q,
    /// The send ring for payloads that are not inline; `None` before the link is installed.
    pub(super) ring: Option<Arc<SendRing>>,
    /// Receive window of the peer.
    pub(super) peer_window: Windows,
    /// Receive window of this side.
    pub(super) window: Windows,
    /// Requests and notifications that the peer has granted so far: they may be in flight at the same time.
    pub(super) peer_granted: u16,
    /// Requests and notifications that this side has granted so far.
    pub(super) granted: u16,
    /// True if the peer does not know of the last growth of `granted`.
    pub(super) grant_is_due: bool,
    /// Number of unacknowledged messages from which the peer is considered faulty.
    too_many: u32,
    /// Messages sent, wrapping.
    pub(super) sent: u16,
    /// Messages sent that the peer has acknowledged, wrapping.
    pub(super) sent_acked: u16,
    /// Messages received, wrapping.
    pub(super) received: u16,
    /// Value of `received` when the queue pair was last armed, after polls that had found nothing.
    pub(super) received_when_armed: u16,
    /// Acks sent: the counts last reported to the peer.
    pub(super) acks_sent: Acks,
    /// Credits that the peer has returned so far, wrapping.
    pub(super) peer_returned: u16,
    /// The latest acknowledgements of the peer. As the counts are cumulative, those of earlier messages need not be processed.
    pub(super) latest: Acks,
    /// Requests and notifications that were finished while they were received, wrapping.
    pub(super) responded_here: u16,
    /// Requests and notifications received on this link, wrapping.
    pub(super) requests_received: u16,
    /// Sequence numbers of unacknowledged control messages.
    pub(super) control: VecDeque<u16>,
    /// Sequence numbers of unacknowledged notifications.
    pub(super) notifications: VecDeque<u16>,
    /// Notifications sent, wrapping.
    pub(super) notified: u16,
    /// Sequence numbers of responses whose payload is kept until they are acknowledged.
    pub(super) responses: VecDeque<(u16, CallId)>,
    /// Acks due: control messages received since the last acknowledgement to the peer.
    pub(super) control_acks_due: u16,
    /// Acks due: responses received since the last acknowledgement to the peer, and the length of their payloads, bytes.
    pub(super) response_acks_due: (u16, usize),
    /// The pending doorbell.
    pub(super) pending: PendingDoorbell,
    /// Notifications that were sent last.
    pub(super) stream: Stream,
    /// While messages are held: the position of the first held request among all requests of this side.
    pub(super) held_from: u64,
    /// True if a post or doorbell failed, so that the queue pair is unusable.
    pub(super) failed: bool,
    /// No memory could be made ready since the last tick. A stream does not try again, as each try may be a system call without result.
    pub(super) lacks_memory: bool,
}

impl<Q: QueuePair> Connection<Q> {
    /// Makes another chunk of send memory ready if one is needed. Returns whether one was needed, even if it could not be made ready.
    #[cold]
    pub(super) fn extend_ring(&mut self) -> bool {
        let Some(ring) = &self.ring else { return false };
        let Some(chunk) = ring.commit_next() else { return false };
        match self.qp.prepare(chunk.range()) {
            Ok(()) => ring.open(chunk),
            Err(_) => {
                ring.close(chunk);
                self.lacks_memory = true;
            }
        }
        true
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn give_back(&mut self) {
        self.control.shrink_to_fit();
        self.notifications.shrink_to_fit();
        self.responses.shrink_to_fit();
        self.qp.give_back();
    }

    /// Returns whether there is nothing to process.
    #[inline(always)]
    pub(super) fn is_quiet(&self) -> bool {
        self.qp.is_quiet() && !self.failed
    }

    /// Returns whether a poll may find a message without a system call. It may if polls of this connection make none, or if a message was
    /// received since the queue pair was armed, as others may have arrived with it.
    pub(super) fn may_hold_message(&self) -> bool {
        self.qp.capabilities().polls_without_syscalls || self.received != self.received_when_armed
    }
}

impl<Q> Connection<Q> {
    pub(super) fn new(qp: Q, window: Windows, peer_window: Windows) -> Self {
        Self {
            qp,
            ring: None,
            peer_window,
            window,
            peer_granted: peer_window.requests,
            granted: window.requests,
            grant_is_due: false,
            too_many: peer_window.depth() * UNACKNOWLEDGED + 1,
            sent: 0,
            sent_acked: 0,
            received: 0,
            received_when_armed: 0,
            acks_sent: Acks::default(),
            peer_returned: 0,
            latest: Acks::default(),
            responded_here: 0,
            requests_received: 0,
            control: VecDeque::new(),
            // As many as may be in flight at first: a sender that was preempted does not find the queue shorter than its window.
            notifications: VecDeque::with_capacity(peer_window.requests.into()),
            notified: 0,
            responses: VecDeque::new(),
            control_acks_due: 0,
            response_acks_due: (0, 0),
            pending: PendingDoorbell::NOTHING,
            stream: Stream::default(),
            held_from: 0,
            failed: false,
            lacks_memory: false,
        }
    }

    /// Grants the peer twice as many requests as before, which it has asked for, as far as this side allows.
    pub(super) fn grant_more(&mut self) {
        let granted = self.granted.saturating_mul(2).min(self.window.grows_to);
        self.grant_is_due |= granted != self.granted;
        self.granted = granted;
    }

    /// Returns whether the peer may grant more requests than it has so far.
    pub(super) const fn may_get_more(&self) -> bool {
        self.peer_granted < self.peer_window.grows_to
    }

    /// Processes a window update of the peer. Returns the number of credits that it adds.
    ///
    /// # Errors
    /// If the peer grants more than it announced, or takes back what it granted.
    pub(super) fn take_window_update(&mut self, granted: u16) -> Result<u16, FabricError> {
        if granted > self.peer_window.grows_to || granted < self.peer_granted {
            return Err(PeerFault::Unasked.into());
        }
        let more = granted - self.peer_granted;
        self.peer_granted = granted;
        Ok(more)
    }

    /// Counts a received message and stores its acknowledgements.
    #[inline(always)]
    pub(super) fn count_received(&mut self, acks: Acks) {
        self.received = self.received.wrapping_add(1);
        self.latest = acks;
    }

    /// Returns whether the latest acknowledgements of the peer have been processed.
    #[inline(always)]
    pub(super) const fn is_settled(&self) -> bool {
        self.latest.received == self.sent_acked && self.latest.returned == self.peer_returned
    }

    /// Returns whether these acknowledgements are possible: the peer cannot have received or returned more than was sent or granted.
    #[inline(always)]
    pub(super) const fn is_credible(&self, acks: Acks) -> bool {
        let Acks { received, returned } = acks;
        received.wrapping_sub(self.sent_acked) <= self.sent.wrapping_sub(self.sent_acked)
            && returned.wrapping_sub(self.peer_returned) <= self.peer_granted
    }

    /// Processes the latest acknowledgements of the peer. Returns the number of request credits that it returned.
    #[inline]
    pub(super) fn acknowledge(&mut self) -> Result<u16, FabricError> {
        let acks = self.latest;
        if !self.is_credible(acks) {
            return Err(PeerFault::Unasked.into());
        }
        if acks.received != self.sent_acked {
            self.sent_acked = acks.received;
            while self.control.front().is_some_and(|first| self.is_acknowledged(*first)) {
                self.control.pop_front();
            }
            while self.notifications.front().is_some_and(|first| self.is_acknowledged(*first)) {
                self.notifications.pop_front();
            }
            debug_assert!(self.keeps_unacknowledged(), "messages that the peer has taken are not kept");
        }
        let given = acks.returned.wrapping_sub(self.peer_returned);
        self.peer_returned = acks.returned;
        debug_assert!(self.is_settled(), "an acknowledgement is processed as a whole");
        Ok(given)
    }

    /// Returns whether any credit was not given back to the peer yet. `returned` is this side's count for the connection.
    pub(super) fn has_credits_due(&self, returned: u16) -> bool {
        self.returned(returned) != self.acks_sent.returned
    }

    /// Returns the acknowledgements for the next header. `returned` is this side's count for the connection.
    #[inline]
    pub(super) const fn acks(&self, returned: u16) -> Acks {
        debug_assert!(self.in_hand(returned) <= self.granted.saturating_add(1), "a credit is returned once");
        Acks { received: self.received, returned: self.returned(returned) }
    }

    /// Returns the number of requests that this side has finished: `elsewhere` plus those finished while they were received.
    #[inline]
    pub(super) const fn returned(&self, elsewhere: u16) -> u16 {
        elsewhere.wrapping_add(self.responded_here)
    }

    /// Returns the number of requests and notifications that were received and are not finished. It may exceed the window by one; the link
    /// then fails.
    #[inline]
    pub(super) const fn in_hand(&self, returned: u16) -> u16 {
        self.requests_received.wrapping_sub(self.returned(returned))
    }

    /// Counts a request or notification that was finished while it was received. `returned` reads this side's count for the connection.
    #[inline]
    pub(super) fn done_here(&mut self, returned: impl FnOnce() -> u16) {
        debug_assert!(self.in_hand(returned()) != 0, "a credit is returned for a request that came");
        self.responded_here = self.responded_here.wrapping_add(1);
    }

    /// Counts a posted message with its acknowledgements; not called for a message that was refused. Returns its sequence number.
    #[inline(always)]
    pub(super) fn posted(&mut self, acks: Acks, rings: PendingDoorbell) -> u16 {
        debug_assert!(acks.received == self.received, "a message acknowledges everything that was received");
        self.acks_sent = acks;
        self.control_acks_due = 0;
        self.response_acks_due = (0, 0);
        self.sent = self.sent.wrapping_add(1);
        self.pending = self.pending.and(rings);
        self.sent
    }

    /// Records the sequence number of a control message or notification, whose acknowledgement frees more than a receive.
    #[inline]
    pub(super) fn was_posted(&mut self, kind: &Kind) {
        match kind {
            Kind::Request { .. } | Kind::Reply { .. } | Kind::Failure { .. } => {}
            Kind::Notification { .. } => {
                self.notified = self.notified.wrapping_add(1);
                self.notifications.push_back(self.sent);
            }
            Kind::Cancel { .. }
            | Kind::Credit
            | Kind::Heartbeat
            | Kind::Goodbye
            | Kind::CreditRequest
            | Kind::WindowUpdate { .. }
            | Kind::Pause
            | Kind::PauseAccepted
            | Kind::PauseDeclined => {
                debug_assert!(self.has_control_credit(), "a control message fits the peer's control window");
                self.control.push_back(self.sent);
            }
        }
    }

    /// Returns whether a separate message with acknowledgements is due. The peer keeps its responses until they are acknowledged, and this
    /// side's next request may travel on the other connection.
    pub(super) const fn owes_credit(&self, returned: u16) -> bool {
        self.returned(returned).wrapping_sub(self.acks_sent.returned) > self.granted / 2
            || self.grant_is_due
            || self.control_acks_due >= CONTROL_WINDOW / 2
            || self.owes_receipts()
    }

    /// Returns whether an acknowledgement of responses is due. Only this part of [`Self::owes_credit`] can become true by another response.
    /// Requests carry acknowledgements, too, so that a caller with a usual number of open calls needs no separate message.
    pub(super) const fn owes_receipts(&self) -> bool {
        let (responses, bytes) = self.response_acks_due;
        let mut open = self.window.replies;
        if open > self.peer_granted {
            open = self.peer_granted;
        }
        responses > open / 4 * 3 || bytes >= MAX_DUE_BYTES
    }

    /// Returns whether responses have arrived that are not acknowledged yet.
    pub(super) const fn has_response_acks_due(&self) -> bool {
        self.response_acks_due.0 != 0
    }

    /// Returns whether the peer leaves more messages unacknowledged than a correct peer does.
    pub(super) const fn is_ignored(&self) -> bool {
        self.sent.wrapping_sub(self.sent_acked) as u32 >= self.too_many
    }

    /// Counts a received response with a payload of `len` bytes.
    pub(super) fn respond_to_received(&mut self, len: usize) {
        let (responses, bytes) = self.response_acks_due;
        self.response_acks_due = (responses.saturating_add(1), bytes + len);
    }

    /// Returns whether the peer has acknowledged the message with this sequence number.
    pub(super) const fn is_acknowledged(&self, sequence: u16) -> bool {
        self.sent.wrapping_sub(sequence) >= self.sent.wrapping_sub(self.sent_acked)
    }

    /// Keeps the response in the call's slot until the peer has acknowledged the message with this sequence number.
    pub(super) fn cache_response(&mut self, sequence: u16, call: CallId) {
        debug_assert!(sequence == self.sent, "responses are kept in the order in which they are sent");
        self.responses.push_back((sequence, call));
    }

    /// Returns whether the oldest kept control message and notification are unacknowledged.
    fn keeps_unacknowledged(&self) -> bool {
        let firsts = [self.control.front(), self.notifications.front()];
        firsts.into_iter().flatten().all(|first| !self.is_acknowledged(*first))
    }

    /// Returns whether another control message fits the peer's control window.
    pub(super) fn has_control_credit(&self) -> bool {
        self.control.len() < usize::from(CONTROL_WINDOW.min(self.peer_window.control))
    }
}

/// Total payload length of unacknowledged responses, bytes, from which an acknowledgement is due immediately. The peer keeps them in its
/// send memory, of which this is a part.
const MAX_DUE_BYTES: usize = 2 << 20;

/// Maximum number of messages that a correct peer leaves unacknowledged, as a multiple of its receive depth.
const UNACKNOWLEDGED: u32 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WINDOW: Windows = Windows { requests: 4, grows_to: 12, replies: 4, control: 2, max_payload: 64 };
    const NOTIFICATION: Kind =
        Kind::Notification { type_id: pronto_wire::TypeId(1), service: pronto_wire::ServiceId(0) };

    fn connection() -> Connection<()> {
        Connection::new((), WINDOW, WINDOW)
    }

    fn post(connection: &mut Connection<()>, kind: &Kind) -> u16 {
        let sequence = connection.posted(connection.acks(0), PendingDoorbell::of(kind));
        connection.was_posted(kind);
        sequence
    }

    fn count_received(connection: &mut Connection<()>, received: u16, returned: u16) -> Option<u16> {
        connection.count_received(Acks { received, returned });
        connection.acknowledge().ok()
    }

    /// Shows: protocol.credit-control
    #[test]
    fn an_acknowledgement_is_processed_once() {
        let mut connection = connection();
        post(&mut connection, &Kind::Heartbeat);
        post(&mut connection, &NOTIFICATION);
        let second = post(&mut connection, &Kind::Credit);
        assert!(!connection.has_control_credit(), "the peer's control window has two messages");
        assert_eq!(count_received(&mut connection, 1, 0), Some(0));
        assert!(
            connection.has_control_credit() && connection.is_settled() && !connection.is_acknowledged(second)
        );
        assert_eq!((connection.control.len(), connection.notifications.len()), (1, 1));
        assert_eq!(count_received(&mut connection, 3, 1), Some(1), "the peer returned one credit");
        assert_eq!(count_received(&mut connection, 3, 1), Some(0), "the peer returned it once");
        assert!(connection.is_acknowledged(second));
        assert_eq!((connection.control.len(), connection.notifications.len()), (0, 0));
        assert_eq!(connection.acks(0).received, 3, "three messages were received");
    }

    #[test]
    fn a_peer_cannot_acknowledge_more_than_was_sent_nor_return_more_than_its_window() {
        let mut connection = connection();
        post(&mut connection, &NOTIFICATION);
        assert!(count_received(&mut connection, 2, 0).is_none(), "one message was sent");
        assert!(count_received(&mut connection, 1, WINDOW.requests + 1).is_none());
        assert_eq!(count_received(&mut connection, 1, WINDOW.requests), Some(WINDOW.requests));
    }

    /// Shows: protocol.window-update
    #[test]
    fn a_window_grows_when_it_is_asked_for_up_to_what_was_announced() {
        let (mut near, mut far) = (connection(), connection());
        for (granted, grows) in [(8, true), (12, true), (12, false)] {
            assert_eq!(near.may_get_more(), grows);
            far.grant_more();
            assert_eq!((far.granted, far.grant_is_due, far.owes_credit(0)), (granted, grows, grows));
            far.grant_is_due = false;
            let more = granted - near.peer_granted;
            assert_eq!(near.take_window_update(granted).ok(), Some(more));
        }
        assert!(near.take_window_update(13).is_err(), "more than the peer announced");
        assert!(near.take_window_update(11).is_err(), "a grant is not taken back");
        assert_eq!(near.peer_granted, 12);
    }

    /// Shows: protocol.returned, protocol.credit-requests, protocol.credit-message
    #[test]
    fn a_request_returns_one_credit() {
        let mut connection = connection();
        for _ in 0..3 {
            connection.requests_received = connection.requests_received.wrapping_add(1);
        }
        connection.done_here(|| 0);
        assert_eq!((connection.in_hand(0), connection.acks(0).returned), (2, 1));
        assert_eq!(
            (connection.in_hand(1), connection.acks(1).returned),
            (1, 2),
            "another request was finished elsewhere"
        );
        assert!(!connection.owes_credit(1), "up to half of the window may be due");
        connection.done_here(|| 1);
        assert!(connection.owes_credit(1));
        let _sequence = connection.posted(connection.acks(1), PendingDoorbell::NOTHING);
        assert!(!connection.owes_credit(1), "the message returned them");
    }

    /// Shows: protocol.received, protocol.credits-carried, protocol.credit-message
    #[test]
    fn each_message_acknowledges_all_received_ones() {
        let mut connection = connection();
        for _ in 0..4 {
            connection.respond_to_received(8);
        }
        connection.control_acks_due = CONTROL_WINDOW;
        assert!(
            connection.owes_receipts() && connection.has_response_acks_due() && connection.owes_credit(0)
        );
        post(&mut connection, &NOTIFICATION);
        assert!(
            !connection.owes_receipts() && !connection.has_response_acks_due() && !connection.owes_credit(0)
        );
    }

    /// Shows: protocol.received
    #[test]
    fn sequence_numbers_wrap() {
        let mut connection = connection();
        (connection.sent, connection.sent_acked) = (u16::MAX, u16::MAX);
        let sequence = post(&mut connection, &NOTIFICATION);
        assert!(
            sequence == 0 && !connection.is_acknowledged(sequence) && connection.is_acknowledged(u16::MAX)
        );
        assert_eq!(count_received(&mut connection, 0, 0), Some(0));
        assert!(connection.is_acknowledged(sequence) && connection.notifications.is_empty());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a credit is returned for a request that came")]
    fn no_credit_is_returned_twice() {
        let mut connection = connection();
        connection.requests_received = 1;
        connection.done_here(|| 0);
        connection.done_here(|| 0);
    }
}

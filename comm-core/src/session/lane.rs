//! A link as the engine drives it, and each of its two connections with its counts.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use pronto_wire::{Acks, CallId, Class, Kind, Windows};

use super::doorbells::Unrung;
use super::greeting::Agreement;
use super::limits::CONTROL_WINDOW;
use super::link::LinkInfo;
use crate::buf::SendRing;
use crate::fabric::{FabricError, PeerFault, QueuePair};
use crate::time::Nanos;

/// One link as the engine drives it.
#[derive(Debug)]
pub(super) struct Link<Q> {
    pub(super) lanes: [Lane<Q>; 2],
    pub(super) info: LinkInfo,
    pub(super) last_heard: Nanos,
    pub(super) last_spoke: Nanos,
    /// Something was received since the last tick.
    pub(super) heard: bool,
    /// Something was posted since the last tick.
    pub(super) spoke: bool,
    /// The peer takes no new requests.
    pub(super) peer_draining: bool,
    /// Whether the session outlives it.
    pub(super) resumable: bool,
}

impl<Q: QueuePair> Link<Q> {
    pub(super) fn new(pairs: [Q; 2], agreement: &Agreement, now: Nanos) -> Self {
        let info = LinkInfo {
            peer: agreement.peer,
            epoch: agreement.epoch,
            session: agreement.session,
            provider: pairs[0].capabilities().provider,
            local: agreement.local,
        };
        let resumable = agreement.resumable;
        let [control, bulk] = pairs;
        let lane = |class: Class, qp: Q| {
            let (window, peer_window) =
                (agreement.windows[class.index()], agreement.peer_windows[class.index()]);
            Lane::new(qp, window, peer_window)
        };
        let lanes = [lane(Class::Control, control), lane(Class::Bulk, bulk)];
        Self {
            lanes,
            info,
            last_heard: now,
            last_spoke: now,
            heard: false,
            spoke: false,
            peer_draining: false,
            resumable,
        }
    }
}

/// One connection of a link, with its counts.
#[derive(Debug)]
pub(super) struct Lane<Q> {
    pub(super) qp: Q,
    /// Where its longer payloads are composed; none before it is installed.
    pub(super) ring: Option<Arc<SendRing>>,
    /// What the peer can receive.
    pub(super) peer_window: Windows,
    /// What this side granted.
    pub(super) window: Windows,
    /// More messages than a correct peer leaves unacknowledged.
    too_many: u32,
    /// Messages sent, wrapping.
    pub(super) sent: u16,
    /// Of these, what the peer says it took.
    pub(super) sent_acked: u16,
    /// Messages received, wrapping.
    pub(super) received: u16,
    /// The messages received when the queue pair was last armed, after polls that had found nothing.
    pub(super) received_when_armed: u16,
    /// What the peer was last told.
    pub(super) told: Acks,
    /// What the peer has given back so far, wrapping.
    pub(super) peer_returned: u16,
    /// What the peer acknowledged last. The counts are cumulative: those of earlier messages need not have been taken in.
    pub(super) latest: Acks,
    /// Requests and notifications that were done with while they were taken in, wrapping.
    pub(super) answered_here: u16,
    /// Requests and notifications received on this link, wrapping.
    pub(super) requests_received: u16,
    /// Sequence numbers of control messages that are not acknowledged.
    pub(super) control: VecDeque<u16>,
    /// Sequence numbers of notifications that are not acknowledged.
    pub(super) notifications: VecDeque<u16>,
    /// Sequence numbers of answers whose payload is kept until they are acknowledged.
    pub(super) answers: VecDeque<(u16, CallId)>,
    /// Control messages received since the peer was last told anything.
    pub(super) control_untold: u16,
    /// Answers received since the peer was last told anything, and their payload in bytes.
    pub(super) answers_untold: (u16, usize),
    /// What was posted since the last doorbell.
    pub(super) unrung: Unrung,
    /// While something is held back: the place, among all requests of this side, of the first request of it.
    pub(super) held_from: u64,
    /// A post or doorbell failed: the queue pair is dead.
    pub(super) failed: bool,
}

impl<Q: QueuePair> Lane<Q> {
    /// Makes another chunk of send memory ready if it is time to. Returns whether it was; it may have failed all the same.
    #[cold]
    pub(super) fn extend_ring(&mut self) -> bool {
        let Some(ring) = &self.ring else { return false };
        let Some(chunk) = ring.commit_next() else { return false };
        match self.qp.prepare(chunk.range()) {
            Ok(()) => ring.open(chunk),
            Err(_) => ring.close(chunk),
        }
        true
    }

    /// Whether there is nothing to take in.
    #[inline(always)]
    pub(super) fn is_quiet(&self) -> bool {
        self.qp.is_quiet() && !self.failed
    }

    /// Returns whether a poll may find a message without a system call: always where polls make none, and otherwise if messages have come
    /// since the queue pair was armed, as others may have come with them.
    pub(super) fn may_hold_message(&self) -> bool {
        self.qp.capabilities().polls_without_syscalls || self.received != self.received_when_armed
    }
}

impl<Q> Lane<Q> {
    pub(super) fn new(qp: Q, window: Windows, peer_window: Windows) -> Self {
        Self {
            qp,
            ring: None,
            peer_window,
            window,
            too_many: peer_window.depth() * UNACKNOWLEDGED + 1,
            sent: 0,
            sent_acked: 0,
            received: 0,
            received_when_armed: 0,
            told: Acks::default(),
            peer_returned: 0,
            latest: Acks::default(),
            answered_here: 0,
            requests_received: 0,
            control: VecDeque::new(),
            notifications: VecDeque::new(),
            answers: VecDeque::new(),
            control_untold: 0,
            answers_untold: (0, 0),
            unrung: Unrung::NOTHING,
            held_from: 0,
            failed: false,
        }
    }

    /// Gives back memory that a busier connection needed.
    pub(super) fn give_back(&mut self) {
        self.control.shrink_to_fit();
        self.notifications.shrink_to_fit();
        self.answers.shrink_to_fit();
    }

    /// A message was received, and says this.
    #[inline(always)]
    pub(super) fn hear(&mut self, acks: Acks) {
        self.received = self.received.wrapping_add(1);
        self.latest = acks;
    }

    /// Whether what the peer acknowledged last has been taken in.
    #[inline(always)]
    pub(super) const fn is_settled(&self) -> bool {
        self.latest.received == self.sent_acked && self.latest.returned == self.peer_returned
    }

    /// Whether a peer can have received and given back as much.
    #[inline(always)]
    pub(super) const fn is_credible(&self, acks: Acks) -> bool {
        let Acks { received, returned } = acks;
        received.wrapping_sub(self.sent_acked) <= self.sent.wrapping_sub(self.sent_acked)
            && returned.wrapping_sub(self.peer_returned) <= self.peer_window.requests
    }

    /// Takes in what the peer acknowledged last. Returns how many request credits came back.
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
        debug_assert!(self.is_settled(), "an acknowledgement is taken in as a whole");
        Ok(given)
    }

    /// What to tell the peer in the next header. `returned` is this side's count for the connection.
    #[inline]
    pub(super) const fn acks(&self, returned: u16) -> Acks {
        debug_assert!(
            self.in_hand(returned) <= self.window.requests.saturating_add(1),
            "a credit is returned once"
        );
        Acks { received: self.received, returned: self.returned(returned) }
    }

    /// Requests that this side is done with: `elsewhere`, and while they were taken in.
    #[inline]
    pub(super) const fn returned(&self, elsewhere: u16) -> u16 {
        elsewhere.wrapping_add(self.answered_here)
    }

    /// Returns how many requests and notifications were received and not done with. A peer may exceed its window by the one
    /// for which the link is lost.
    #[inline]
    pub(super) const fn in_hand(&self, returned: u16) -> u16 {
        self.requests_received.wrapping_sub(self.returned(returned))
    }

    /// Counts a request or notification as done with while it was taken in. `returned` reads this side's count for the connection.
    #[inline]
    pub(super) fn done_here(&mut self, returned: impl FnOnce() -> u16) {
        debug_assert!(self.in_hand(returned()) != 0, "a credit is returned for a request that came");
        self.answered_here = self.answered_here.wrapping_add(1);
    }

    /// A message was posted, with these acknowledgements: one that is refused tells nobody. Returns its sequence number.
    #[inline(always)]
    pub(super) fn posted(&mut self, acks: Acks, rings: Unrung) -> u16 {
        debug_assert!(acks.received == self.received, "a message acknowledges everything that was received");
        self.told = acks;
        self.control_untold = 0;
        self.answers_untold = (0, 0);
        self.sent = self.sent.wrapping_add(1);
        self.unrung = self.unrung.and(rings);
        self.sent
    }

    /// What kind of message was posted last, where its receipt frees more than a place.
    #[inline]
    pub(super) fn was_posted(&mut self, kind: &Kind) {
        match kind {
            Kind::Request { .. } | Kind::Reply { .. } | Kind::Failure { .. } => {}
            Kind::Notification { .. } => self.notifications.push_back(self.sent),
            Kind::Cancel { .. } | Kind::Credit | Kind::Heartbeat | Kind::Goodbye => {
                debug_assert!(self.has_control_credit(), "a control message has a place at the peer");
                self.control.push_back(self.sent);
            }
        }
    }

    /// Whether the peer should be told about credits and receipts although there is nothing else to say. It keeps its
    /// answers until it knows that they arrived, and this side's next request may travel on the other connection.
    pub(super) const fn owes_credit(&self, returned: u16) -> bool {
        self.returned(returned).wrapping_sub(self.told.returned) > self.window.requests / 2
            || self.control_untold >= CONTROL_WINDOW / 2
            || self.owes_receipts()
    }

    /// The same for what it has received in answers: all that can become due by one more of them. The next request says it as well, and
    /// no peer can have answered more than calls are open since the last one; so that a usual window of calls costs no message of its own.
    pub(super) const fn owes_receipts(&self) -> bool {
        let (answers, bytes) = self.answers_untold;
        answers > self.window.replies / 4 * 3 || bytes >= UNTOLD_BYTES
    }

    /// Whether answers have arrived that the peer does not know of.
    pub(super) const fn has_untold_answers(&self) -> bool {
        self.answers_untold.0 != 0
    }

    /// Whether the peer goes on without ever acknowledging anything.
    pub(super) const fn is_ignored(&self) -> bool {
        self.sent.wrapping_sub(self.sent_acked) as u32 >= self.too_many
    }

    /// One more answer has arrived.
    pub(super) fn answer_received(&mut self, len: usize) {
        let (answers, bytes) = self.answers_untold;
        self.answers_untold = (answers.saturating_add(1), bytes + len);
    }

    /// Whether the peer has taken the message with this sequence number.
    pub(super) const fn is_acknowledged(&self, sequence: u16) -> bool {
        self.sent.wrapping_sub(sequence) >= self.sent.wrapping_sub(self.sent_acked)
    }

    /// Keeps the response in the call's slot until the peer has acknowledged the message with this sequence number, the latest.
    pub(super) fn keep_answer(&mut self, sequence: u16, call: CallId) {
        debug_assert!(sequence == self.sent, "responses are kept in the order in which they are sent");
        self.answers.push_back((sequence, call));
    }

    /// Returns whether the oldest control message and notification that are kept are ones that the peer has not acknowledged.
    fn keeps_unacknowledged(&self) -> bool {
        let firsts = [self.control.front(), self.notifications.front()];
        firsts.into_iter().flatten().all(|first| !self.is_acknowledged(*first))
    }

    /// Whether another control message fits the peer's control window.
    pub(super) fn has_control_credit(&self) -> bool {
        self.control.len() < usize::from(CONTROL_WINDOW.min(self.peer_window.control))
    }
}

/// Answers of so many bytes are acknowledged at once: a part of the send memory in which the peer keeps them.
const UNTOLD_BYTES: usize = 2 << 20;

/// A correct peer leaves no more messages unacknowledged than this many times what it can receive at a time.
const UNACKNOWLEDGED: u32 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WINDOW: Windows = Windows { requests: 4, replies: 4, control: 2, max_payload: 64 };
    const NOTIFICATION: Kind =
        Kind::Notification { type_id: pronto_wire::TypeId(1), service: pronto_wire::ServiceId(0) };

    fn lane() -> Lane<()> {
        Lane::new((), WINDOW, WINDOW)
    }

    fn post(lane: &mut Lane<()>, kind: &Kind) -> u16 {
        let sequence = lane.posted(lane.acks(0), Unrung::of(kind));
        lane.was_posted(kind);
        sequence
    }

    fn hear(lane: &mut Lane<()>, received: u16, returned: u16) -> Option<u16> {
        lane.hear(Acks { received, returned });
        lane.acknowledge().ok()
    }

    #[test]
    fn what_the_peer_acknowledges_is_taken_in_once() {
        let mut lane = lane();
        post(&mut lane, &Kind::Heartbeat);
        post(&mut lane, &NOTIFICATION);
        let second = post(&mut lane, &Kind::Credit);
        assert!(!lane.has_control_credit(), "the peer takes two control messages");
        assert_eq!(hear(&mut lane, 1, 0), Some(0));
        assert!(lane.has_control_credit() && lane.is_settled() && !lane.is_acknowledged(second));
        assert_eq!((lane.control.len(), lane.notifications.len()), (1, 1));
        assert_eq!(hear(&mut lane, 3, 1), Some(1), "one credit came back");
        assert_eq!(hear(&mut lane, 3, 1), Some(0), "and it came back once");
        assert!(lane.is_acknowledged(second));
        assert_eq!((lane.control.len(), lane.notifications.len()), (0, 0));
        assert_eq!(lane.acks(0).received, 3, "three messages have come");
    }

    #[test]
    fn a_peer_cannot_acknowledge_more_than_was_sent_nor_return_more_than_its_window() {
        let mut lane = lane();
        post(&mut lane, &NOTIFICATION);
        assert!(hear(&mut lane, 2, 0).is_none(), "one message was sent");
        assert!(hear(&mut lane, 1, WINDOW.requests + 1).is_none());
        assert_eq!(hear(&mut lane, 1, WINDOW.requests), Some(WINDOW.requests));
    }

    #[test]
    fn a_request_returns_one_credit() {
        let mut lane = lane();
        for _ in 0..3 {
            lane.requests_received = lane.requests_received.wrapping_add(1);
        }
        lane.done_here(|| 0);
        assert_eq!((lane.in_hand(0), lane.acks(0).returned), (2, 1));
        assert_eq!((lane.in_hand(1), lane.acks(1).returned), (1, 2), "another was done with elsewhere");
        assert!(!lane.owes_credit(1), "half of the window may be owed");
        lane.done_here(|| 1);
        assert!(lane.owes_credit(1));
        let _sequence = lane.posted(lane.acks(1), Unrung::NOTHING);
        assert!(!lane.owes_credit(1), "the message carried them");
    }

    #[test]
    fn each_message_says_what_has_been_received() {
        let mut lane = lane();
        for _ in 0..4 {
            lane.answer_received(8);
        }
        lane.control_untold = CONTROL_WINDOW;
        assert!(lane.owes_receipts() && lane.has_untold_answers() && lane.owes_credit(0));
        post(&mut lane, &NOTIFICATION);
        assert!(!lane.owes_receipts() && !lane.has_untold_answers() && !lane.owes_credit(0));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut lane = lane();
        (lane.sent, lane.sent_acked) = (u16::MAX, u16::MAX);
        let sequence = post(&mut lane, &NOTIFICATION);
        assert!(sequence == 0 && !lane.is_acknowledged(sequence) && lane.is_acknowledged(u16::MAX));
        assert_eq!(hear(&mut lane, 0, 0), Some(0));
        assert!(lane.is_acknowledged(sequence) && lane.notifications.is_empty());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a credit is returned for a request that came")]
    fn no_credit_is_returned_twice() {
        let mut lane = lane();
        lane.requests_received = 1;
        lane.done_here(|| 0);
        lane.done_here(|| 0);
    }
}

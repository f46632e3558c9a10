//! Ledger of every message and its end. The rules are checked as events happen, and again at the end.
//!
//! # Invariants (of the system under test)
//! 1. An accepted call ends once: with its reply, a failure, its deadline, or when the peer goes down.
//! 2. A handler runs at most once per call; exactly once for a call that ends with its reply; never for a call that was
//!    refused, or ended as not executed.
//! 3. A call that ends without a response of the peer ends as not executed if no connection has accepted its request, else as
//!    perhaps executed.
//! 4. Messages of one node to one peer in one class are received, and executed, in the order of posting.
//! 5. A peer is up and down alternately; a link is lost before it is resumed.
//! 6. Received messages equal the sent ones, byte for byte (checked where messages are read).

use std::collections::BTreeMap;

use pronto_core::session::{End, Event, Executed};
use pronto_wire::{Class, NodeId};

use super::message::{Kind, Name};

/// Counts of messages by their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accepted calls.
    pub calls: u64,
    /// Calls that ended with their reply.
    pub replies: u64,
    /// Calls that ended with a failure.
    pub failures: u64,
    /// Calls whose deadline passed.
    pub deadlines: u64,
    /// Calls that ended because the peer went down.
    pub peer_downs: u64,
    /// Calls that were abandoned.
    pub abandoned: u64,
    /// Accepted notifications.
    pub notices: u64,
    /// Notifications that arrived.
    pub notices_arrived: u64,
    /// Synchronous notifications whose buffer was returned, sent or flushed.
    pub sends_ended: u64,
    /// Messages refused for lack of a request credit.
    pub no_credit: u64,
    /// Messages refused for another reason.
    pub refused: u64,
}

/// Events that one node has seen of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerEvents {
    /// New sessions.
    pub ups: u64,
    /// Sessions that ended.
    pub downs: u64,
    /// Links that broke while the session continued.
    pub losses: u64,
    /// Idle links that ended while the session continued.
    pub pauses: u64,
    /// Links that resumed a session, after a loss or a pause.
    pub resumes: u64,
}

/// Ledger of one cluster.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Name, Entry>,
    /// Number of the last received message, by sender and its incarnation, receiver and its incarnation, and class.
    taken: BTreeMap<(Stream, &'static str), u64>,
    peers: BTreeMap<(NodeId, u32, NodeId), (PeerEvents, PeerState)>,
    tally: Tally,
}

type Stream = (u16, u32, NodeId, u32, Class);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PeerState {
    #[default]
    Down,
    Up,
    Unlinked,
    Paused,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    /// True while the end is expected.
    open: bool,
    refused: bool,
    arrived: u32,
    executed: u32,
    /// Execution status reported at the end.
    said: Option<Executed>,
}

impl Ledger {
    /// Returns the current counts.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the events that a node has seen of a peer, over all its incarnations.
    pub fn peer_events(&self, node: NodeId, peer: NodeId) -> PeerEvents {
        let mut sum = PeerEvents::default();
        for ((_, _, _), (events, _)) in
            self.peers.iter().filter(|((at, _, of), _)| (*at, *of) == (node, peer))
        {
            sum.ups += events.ups;
            sum.downs += events.downs;
            sum.losses += events.losses;
            sum.pauses += events.pauses;
            sum.resumes += events.resumes;
        }
        sum
    }

    /// Returns the number of calls and sends that have not ended.
    pub fn open(&self) -> usize {
        self.entries.values().filter(|entry| entry.open).count()
    }

    /// Records a refused message. Refusals for lack of a request credit are counted separately.
    pub(crate) fn refused(&mut self, name: Name, kind: Kind, for_credit: bool) {
        let counter = if for_credit { &mut self.tally.no_credit } else { &mut self.tally.refused };
        *counter += 1;
        self.enter(name, Entry { open: false, refused: true, ..Entry::new(kind) });
    }

    /// Records an accepted message; `awaited` if an end will follow.
    pub(crate) fn posted(&mut self, name: Name, kind: Kind, awaited: bool) {
        let counter = if kind == Kind::Notice { &mut self.tally.notices } else { &mut self.tally.calls };
        *counter += 1;
        self.enter(name, Entry { open: awaited, ..Entry::new(kind) });
    }

    /// Records that a message, which was entered as accepted before it was sent, was refused.
    pub(crate) fn withdrawn(&mut self, name: Name, for_credit: bool) {
        let entry = self.entry(name);
        assert!(entry.arrived == 0, "{name:?} was refused, but arrived");
        (entry.open, entry.refused) = (false, true);
        let kind = entry.kind;
        let accepted = if kind == Kind::Notice { &mut self.tally.notices } else { &mut self.tally.calls };
        *accepted -= 1;
        let counter = if for_credit { &mut self.tally.no_credit } else { &mut self.tally.refused };
        *counter += 1;
    }

    fn enter(&mut self, name: Name, entry: Entry) {
        let before = self.entries.insert(name, entry);
        assert!(before.is_none(), "{name:?} was named twice");
    }

    /// Records the arrival of a message.
    pub(crate) fn arrived(&mut self, name: Name, receiver: NodeId, incarnation: u32, class: Class) {
        let entry = self.entry(name);
        assert!(!entry.refused, "{name:?} was refused, but arrived");
        entry.arrived += 1;
        assert_eq!(entry.arrived, 1, "{name:?}, a {:?}, was handed over twice", entry.kind);
        assert!(entry.said != Some(Executed::No), "{name:?} ended as not executed, but arrived");
        self.tally.notices_arrived += u64::from(self.entries[&name].kind == Kind::Notice);
        self.in_order(name, (name.node, name.incarnation, receiver, incarnation, class), "handed over");
    }

    /// Records an execution by a handler.
    pub(crate) fn executed(&mut self, name: Name) {
        let entry = self.entry(name);
        entry.executed += 1;
        assert_eq!(entry.executed, 1, "{name:?}, a {:?}, was executed twice", entry.kind);
        assert!(entry.said != Some(Executed::No), "{name:?} ended as not executed, but was executed");
    }

    /// Records an execution in a lane.
    pub(crate) fn executed_in_lane(&mut self, name: Name, receiver: NodeId, incarnation: u32, class: Class) {
        self.executed(name);
        self.in_order(name, (name.node, name.incarnation, receiver, incarnation, class), "worked on");
    }

    fn in_order(&mut self, name: Name, stream: Stream, what: &'static str) {
        let last = self.taken.insert((stream, what), name.number);
        assert!(last < Some(name.number), "{name:?} was {what} after number {last:?} of {stream:?}");
    }

    /// Records the end of a call or of a synchronous send. `posted` tells whether a connection has accepted the request.
    pub(crate) fn ended<L>(&mut self, name: Name, end: &End<L>, posted: bool) {
        let entry = self.entry(name);
        assert!(core::mem::take(&mut entry.open), "{name:?} ended twice, or was never open");
        let executed = entry.executed;
        let is_send = matches!(end, End::Done(_) | End::Flushed);
        assert_eq!(is_send, entry.kind == Kind::Notice, "{name:?} cannot end in this way");
        let (counter, said) = match end {
            End::Reply(_) => (&mut self.tally.replies, Executed::Yes),
            End::Failure { code, .. } => {
                let said = if code.executed() { Executed::Yes } else { Executed::No };
                (&mut self.tally.failures, said)
            }
            End::PeerDown { executed } => (&mut self.tally.peer_downs, *executed),
            End::Deadline { executed } => (&mut self.tally.deadlines, *executed),
            End::Done(_) | End::Flushed => (&mut self.tally.sends_ended, Executed::Maybe),
            End::AccessRefused | End::Unreadable | End::Unsupported => {
                panic!("{name:?} is not a one-sided operation")
            }
        };
        *counter += 1;
        if let End::PeerDown { executed } | End::Deadline { executed } = end {
            let expected = if posted { Executed::Maybe } else { Executed::No };
            assert_eq!(*executed, expected, "{name:?} ended without a response; posted: {posted}");
        }
        match said {
            Executed::No => assert_eq!(executed, 0, "{name:?} ended as not executed, but was executed"),
            Executed::Yes => assert_eq!(executed, 1, "{name:?} ended as executed, but was not"),
            Executed::Maybe => {}
        }
        self.entry(name).said = Some(said);
    }

    /// Records the end of a call or of a synchronous send with a session in whose engine a thread panicked. Recovery cannot know whether it
    /// was posted.
    pub(crate) fn ended_by_failure(&mut self, name: Name) {
        let entry = self.entry(name);
        assert!(core::mem::take(&mut entry.open), "{name:?} ended twice, or was never open");
        entry.said = Some(Executed::Maybe);
        let counter =
            if entry.kind == Kind::Notice { &mut self.tally.sends_ended } else { &mut self.tally.peer_downs };
        *counter += 1;
    }

    /// Records that a call or a synchronous send was abandoned.
    pub(crate) fn abandoned(&mut self, name: Name) {
        let entry = self.entry(name);
        entry.open = false;
        let is_call = entry.kind != Kind::Notice;
        self.tally.abandoned += u64::from(is_call);
    }

    /// Records a new incarnation of a node, which no longer waits for the calls of earlier ones.
    pub(crate) fn reborn(&mut self, node: u16, incarnation: u32) {
        for (name, entry) in &mut self.entries {
            entry.open &= name.node != node || name.incarnation == incarnation;
        }
    }

    /// Records an event of a node's session with a peer.
    pub(crate) fn event(&mut self, node: NodeId, incarnation: u32, peer: NodeId, event: &Event) {
        let (events, state) = self.peers.entry((node, incarnation, peer)).or_default();
        let (counter, before, after): (_, &[PeerState], _) = match event {
            Event::PeerUp(_) => (&mut events.ups, &[PeerState::Down], PeerState::Up),
            Event::PeerDown { .. } => {
                let before = &[PeerState::Up, PeerState::Unlinked, PeerState::Paused];
                (&mut events.downs, before, PeerState::Down)
            }
            Event::LinkLost { .. } => (&mut events.losses, &[PeerState::Up], PeerState::Unlinked),
            Event::LinkPaused { .. } => (&mut events.pauses, &[PeerState::Up], PeerState::Paused),
            Event::PauseEnded { .. } => (&mut events.resumes, &[PeerState::Paused], PeerState::Up),
            Event::LinkResumed { .. } => (&mut events.resumes, &[PeerState::Unlinked], PeerState::Up),
        };
        assert!(before.contains(state), "node {node} saw {event:?} of a peer that was {state:?}");
        *counter += 1;
        *state = after;
    }

    fn entry(&mut self, name: Name) -> &mut Entry {
        self.entries.get_mut(&name).unwrap_or_else(|| panic!("{name:?} was never posted"))
    }

    /// Checks the rules that only the end can show: nothing is open, and nothing was counted twice.
    pub(crate) fn assert_closed(&self) {
        for (name, entry) in &self.entries {
            assert!(!entry.open, "{name:?} never ended");
            let never = entry.refused || entry.said == Some(Executed::No);
            assert!(
                !never || entry.executed == 0,
                "{name:?} was executed, although it was reported as not executed"
            );
        }
        let Tally { calls, replies, failures, deadlines, peer_downs, abandoned, .. } = self.tally;
        let ended = replies + failures + deadlines + peer_downs + abandoned;
        assert!(ended <= calls, "{ended} ends of {calls} calls");
    }
}

impl Entry {
    fn new(kind: Kind) -> Self {
        Self { kind, open: false, refused: false, arrived: 0, executed: 0, said: None }
    }
}

#[cfg(test)]
mod tests {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    use pronto_core::fabric::{Arrived, OutOfBounds, Payload};
    use pronto_wire::InlinePayload;

    use super::*;

    struct NoLease;

    impl Payload for NoLease {
        fn len(&self) -> usize {
            0
        }
        fn copy_to(&self, _offset: usize, _out: &mut [u8]) -> Result<(), OutOfBounds> {
            Ok(())
        }
        fn as_private(&self) -> Option<&[u8]> {
            None
        }
    }

    const RECEIVER: NodeId = NodeId(2);

    fn name(number: u64) -> Name {
        Name { node: 1, incarnation: 1, number }
    }

    fn reply() -> End<NoLease> {
        End::Reply(Arrived::Inline(InlinePayload::EMPTY))
    }

    /// Runs steps on a ledger in which calls 1 and 2 are posted. Returns whether they violate a rule.
    fn breaks(steps: impl FnOnce(&mut Ledger)) -> bool {
        let mut ledger = Ledger::default();
        ledger.posted(name(1), Kind::Prompt, true);
        ledger.posted(name(2), Kind::Prompt, true);
        catch_unwind(AssertUnwindSafe(|| steps(&mut ledger))).is_err()
    }

    #[test]
    fn a_correct_sequence_is_accepted() {
        assert!(!breaks(|ledger| {
            for number in [1, 2] {
                ledger.arrived(name(number), RECEIVER, 1, Class::Bulk);
                ledger.executed_in_lane(name(number), RECEIVER, 1, Class::Bulk);
                ledger.ended(name(number), &reply(), true);
            }
            ledger.assert_closed();
        }));
    }

    #[test]
    fn every_rule_detects_a_violation() {
        let no: End<NoLease> = End::PeerDown { executed: Executed::No };
        assert!(breaks(|ledger| ledger.assert_closed()), "never ended");
        assert!(breaks(|ledger| ledger.ended(name(1), &reply(), true)), "a reply without an execution");
        assert!(breaks(|ledger| ledger.arrived(name(3), RECEIVER, 1, Class::Bulk)), "never posted");
        assert!(breaks(|ledger| [1, 1].into_iter().for_each(|n| ledger.executed(name(n)))), "executed twice");
        assert!(breaks(|ledger| {
            ledger.arrived(name(2), RECEIVER, 1, Class::Bulk);
            ledger.arrived(name(1), RECEIVER, 1, Class::Bulk);
        }));
        assert!(
            breaks(|ledger| [1, 1].into_iter().for_each(|n| ledger.ended(name(n), &no, false))),
            "ended twice"
        );
        assert!(breaks(|ledger| {
            ledger.ended(name(1), &no, false);
            ledger.executed(name(1));
        }));
        for (executed, posted) in [(Executed::Maybe, false), (Executed::No, true), (Executed::Yes, true)] {
            let ends: [End<NoLease>; 2] = [End::PeerDown { executed }, End::Deadline { executed }];
            for end in ends {
                assert!(
                    breaks(|ledger| ledger.ended(name(1), &end, posted)),
                    "{executed:?}, posted: {posted}"
                );
            }
        }
        assert!(breaks(|ledger| {
            ledger.refused(name(3), Kind::Prompt, true);
            ledger.arrived(name(3), RECEIVER, 1, Class::Bulk);
        }));
    }
}

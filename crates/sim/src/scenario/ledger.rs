//! Every message and what became of it. The rules are checked as things happen, and once more when the books close.
//!
//! # Invariants (of the system under test)
//! 1. A call that was taken ends once, by its reply, an answer that is none, deadline, or the peer's going down.
//! 2. A handler runs at most once per call; exactly once for a call that ends with its reply; never for one that was
//!    refused, or ended as not executed.
//! 3. Messages of one node to one peer in one class are taken in in the order of their posting, and worked on in it.
//! 4. A peer is up and down in turns; a link is lost before it is resumed.
//! 5. What arrives is what was sent, byte for byte (checked where messages are read).

use std::collections::BTreeMap;

use pronto_core::session::{End, Event, Executed};
use pronto_wire::{Class, NodeId};

use super::message::{Kind, Name};

/// What became of the messages, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that were taken.
    pub calls: u64,
    /// Calls that ended with their reply.
    pub replies: u64,
    /// Calls that ended with another answer.
    pub failures: u64,
    /// Calls whose deadline passed.
    pub deadlines: u64,
    /// Calls whose peer went down.
    pub peer_downs: u64,
    /// Calls that were given up.
    pub abandoned: u64,
    /// Notifications that were taken.
    pub notices: u64,
    /// Of these, that arrived.
    pub notices_arrived: u64,
    /// Synchronous notifications whose buffer came back, sent or flushed.
    pub sends_ended: u64,
    /// Messages refused for want of a request credit.
    pub no_credit: u64,
    /// Messages refused for another reason.
    pub refused: u64,
}

/// What one node saw of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerEvents {
    /// New sessions.
    pub ups: u64,
    /// Sessions that ended.
    pub downs: u64,
    /// Links that broke and left a session.
    pub losses: u64,
    /// Links that carried one on.
    pub resumes: u64,
}

/// The books of one cluster.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Name, Entry>,
    /// The last message taken in, by sender and its life, receiver and its life, and class.
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
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    /// The end is waited for.
    open: bool,
    refused: bool,
    arrived: u32,
    executed: u32,
    /// What the end said about execution.
    said: Option<Executed>,
}

impl Ledger {
    /// What became of the messages so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What a node saw of a peer, over all its lives.
    pub fn peer_events(&self, node: NodeId, peer: NodeId) -> PeerEvents {
        let mut sum = PeerEvents::default();
        for ((_, _, _), (events, _)) in
            self.peers.iter().filter(|((at, _, of), _)| (*at, *of) == (node, peer))
        {
            sum.ups += events.ups;
            sum.downs += events.downs;
            sum.losses += events.losses;
            sum.resumes += events.resumes;
        }
        sum
    }

    /// Calls and sends whose end is waited for.
    pub fn open(&self) -> usize {
        self.entries.values().filter(|entry| entry.open).count()
    }

    /// Request credits are what a refusal for want of them is counted as; all others together.
    pub(super) fn refused(&mut self, name: Name, kind: Kind, for_credit: bool) {
        let counter = if for_credit { &mut self.tally.no_credit } else { &mut self.tally.refused };
        *counter += 1;
        self.enter(name, Entry { open: false, refused: true, ..Entry::new(kind) });
    }

    /// A message was taken; `awaited` if an end is to come.
    pub(super) fn posted(&mut self, name: Name, kind: Kind, awaited: bool) {
        let counter = if kind == Kind::Notice { &mut self.tally.notices } else { &mut self.tally.calls };
        *counter += 1;
        self.enter(name, Entry { open: awaited, ..Entry::new(kind) });
    }

    fn enter(&mut self, name: Name, entry: Entry) {
        let before = self.entries.insert(name, entry);
        assert!(before.is_none(), "{name:?} was named twice");
    }

    /// A message has come to its receiver.
    pub(super) fn arrived(&mut self, name: Name, receiver: NodeId, life: u32, class: Class) {
        let entry = self.entry(name);
        assert!(!entry.refused, "{name:?} was refused, and arrived");
        entry.arrived += 1;
        assert_eq!(entry.arrived, 1, "{name:?}, a {:?}, was handed over twice", entry.kind);
        assert!(entry.said != Some(Executed::No), "{name:?} ended as not executed, and arrived");
        self.tally.notices_arrived += u64::from(self.entries[&name].kind == Kind::Notice);
        self.in_order(name, (name.node, name.life, receiver, life, class), "handed over");
    }

    /// A handler runs.
    pub(super) fn executed(&mut self, name: Name) {
        let entry = self.entry(name);
        entry.executed += 1;
        assert_eq!(entry.executed, 1, "{name:?}, a {:?}, was executed twice", entry.kind);
        assert!(entry.said != Some(Executed::No), "{name:?} ended as not executed, and was");
    }

    /// A handler runs in a lane.
    pub(super) fn executed_in_lane(&mut self, name: Name, receiver: NodeId, life: u32, class: Class) {
        self.executed(name);
        self.in_order(name, (name.node, name.life, receiver, life, class), "worked on");
    }

    fn in_order(&mut self, name: Name, stream: Stream, what: &'static str) {
        let last = self.taken.insert((stream, what), name.number);
        assert!(last < Some(name.number), "{name:?} was {what} after number {last:?} of {stream:?}");
    }

    /// A call or a synchronous send has ended.
    pub(super) fn ended<L>(&mut self, name: Name, end: &End<L>) {
        let entry = self.entry(name);
        assert!(core::mem::take(&mut entry.open), "{name:?} ended twice, or was never open");
        let executed = entry.executed;
        let is_send = matches!(end, End::Done(_) | End::Flushed);
        assert_eq!(is_send, entry.kind == Kind::Notice, "{name:?} is no such thing as could end so");
        let (counter, said) = match end {
            End::Reply(_) => (&mut self.tally.replies, Executed::Yes),
            End::Failure { code, .. } => {
                let said = if code.executed() { Executed::Yes } else { Executed::No };
                (&mut self.tally.failures, said)
            }
            End::PeerDown { executed } => (&mut self.tally.peer_downs, *executed),
            End::Deadline { executed } => (&mut self.tally.deadlines, *executed),
            End::Done(_) | End::Flushed => (&mut self.tally.sends_ended, Executed::Maybe),
            End::AccessRefused | End::Unsupported => panic!("{name:?} is no one-sided operation"),
        };
        *counter += 1;
        match said {
            Executed::No => assert_eq!(executed, 0, "{name:?} ended as not executed, and was"),
            Executed::Yes => assert_eq!(executed, 1, "{name:?} ended as executed, and was not"),
            Executed::Maybe => {}
        }
        self.entry(name).said = Some(said);
    }

    /// A call was given up.
    pub(super) fn abandoned(&mut self, name: Name) {
        self.tally.abandoned += 1;
        self.entry(name).open = false;
    }

    /// A node began another life: what it waited for in earlier ones, nobody waits for any more.
    pub(super) fn reborn(&mut self, node: u16, life: u32) {
        for (name, entry) in &mut self.entries {
            entry.open &= name.node != node || name.life == life;
        }
    }

    /// A node's session with a peer says something.
    pub(super) fn event(&mut self, node: NodeId, life: u32, peer: NodeId, event: &Event) {
        let (events, state) = self.peers.entry((node, life, peer)).or_default();
        let (counter, before, after): (_, &[PeerState], _) = match event {
            Event::PeerUp(_) => (&mut events.ups, &[PeerState::Down], PeerState::Up),
            Event::PeerDown { .. } => {
                (&mut events.downs, &[PeerState::Up, PeerState::Unlinked], PeerState::Down)
            }
            Event::LinkLost { .. } => (&mut events.losses, &[PeerState::Up], PeerState::Unlinked),
            Event::LinkResumed { .. } => (&mut events.resumes, &[PeerState::Unlinked], PeerState::Up),
        };
        assert!(before.contains(state), "node {node} saw {event:?} of a peer that was {state:?}");
        *counter += 1;
        *state = after;
    }

    fn entry(&mut self, name: Name) -> &mut Entry {
        self.entries.get_mut(&name).unwrap_or_else(|| panic!("{name:?} was never posted"))
    }

    /// The rules that only the end can show: nothing is open, nothing counted twice.
    pub(super) fn assert_closed(&self) {
        for (name, entry) in &self.entries {
            assert!(!entry.open, "{name:?} never ended");
            let never = entry.refused || entry.said == Some(Executed::No);
            assert!(!never || entry.executed == 0, "{name:?} was executed, though it was said not to be");
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
        Name { node: 1, life: 1, number }
    }

    fn reply() -> End<NoLease> {
        End::Reply(Arrived::Inline(InlinePayload::EMPTY))
    }

    /// A ledger with calls 1 and 2 posted, then these steps; whether they broke a rule.
    fn breaks(steps: impl FnOnce(&mut Ledger)) -> bool {
        let mut ledger = Ledger::default();
        ledger.posted(name(1), Kind::Prompt, true);
        ledger.posted(name(2), Kind::Prompt, true);
        catch_unwind(AssertUnwindSafe(|| steps(&mut ledger))).is_err()
    }

    #[test]
    fn a_sound_story_is_accepted() {
        assert!(!breaks(|ledger| {
            for number in [1, 2] {
                ledger.arrived(name(number), RECEIVER, 1, Class::Bulk);
                ledger.executed_in_lane(name(number), RECEIVER, 1, Class::Bulk);
                ledger.ended(name(number), &reply());
            }
            ledger.assert_closed();
        }));
    }

    #[test]
    fn every_rule_can_be_broken() {
        let no: End<NoLease> = End::PeerDown { executed: Executed::No };
        assert!(breaks(|ledger| ledger.assert_closed()), "never ended");
        assert!(breaks(|ledger| ledger.ended(name(1), &reply())), "a reply without an execution");
        assert!(breaks(|ledger| ledger.arrived(name(3), RECEIVER, 1, Class::Bulk)), "never posted");
        assert!(breaks(|ledger| [1, 1].into_iter().for_each(|n| ledger.executed(name(n)))), "executed twice");
        assert!(breaks(|ledger| {
            ledger.arrived(name(2), RECEIVER, 1, Class::Bulk);
            ledger.arrived(name(1), RECEIVER, 1, Class::Bulk);
        }));
        assert!(breaks(|ledger| [1, 1].into_iter().for_each(|n| ledger.ended(name(n), &no))), "ended twice");
        assert!(breaks(|ledger| {
            ledger.ended(name(1), &no);
            ledger.executed(name(1));
        }));
        assert!(breaks(|ledger| {
            ledger.refused(name(3), Kind::Prompt, true);
            ledger.arrived(name(3), RECEIVER, 1, Class::Bulk);
        }));
    }
}

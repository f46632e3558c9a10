//! Rendezvous between scenario nodes: posted receives, and sends that are offered or carried. Both are sometimes given
//! up.
//!
//! The guarantees of a completed send are checked at both sides. A message that was received is complete in a buffer of
//! its receiver, or was carried to it. A buffer that a receive reports as filled holds one complete message.

use std::collections::BTreeSet;
use std::sync::Arc;

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, Grant, HeapMemory, Region, RemoteRange, Rights};
use pronto_core::session::{
    CallSpec, End, Inbound, LeftSend, Lent, Offered, OutgoingPayload, Pieces, SendError,
};
use pronto_wire::{CallId, Class, FailureCode};

use super::handler::{Lease, SimSession};
use super::message::Kind;
use super::traffic::Traffic;
use crate::executor::SimExecutor;
use crate::random::{Random, Span};

/// Maximum length of a message, bytes: several chunks.
const LONGEST: u64 = 100 << 10;
/// Maximum length of a carried message, bytes.
const CARRIED: u64 = 2 << 10;
/// Number of tags: few, so that messages and receives meet in either order.
const TAGS: u64 = 3;
/// Time after which a receive is cancelled.
const PATIENCE: Span = Span::millis(1, 80);
/// Time limit of a sender.
const TIMEOUT: Span = Span::millis(1, 60);

/// Counts of all transfers of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTally {
    /// Sends that were received or carried.
    pub sent: u64,
    /// Receives that got a message.
    pub received: u64,
    /// Receives that got a message by reference.
    pub by_reference: u64,
    /// Sends that were given up by their sender.
    pub sends_given_up: u64,
    /// Sends that ended by their deadline.
    pub deadlines: u64,
    /// Receives that were cancelled, with a message or without.
    pub cancelled: u64,
    /// Sends whose receiver cancelled the receive.
    pub refused: u64,
    /// Sends and receives that ended with their peer.
    pub peer_downs: u64,
    /// Grants that were made again on another link.
    pub regrants: u64,
}

/// State shared by all transfers of all nodes.
#[derive(Debug, Default)]
pub(super) struct Transferred {
    pub(super) tally: TransferTally,
    /// Messages that were received.
    names: BTreeSet<u64>,
}

/// Session and executor of a turn.
pub(super) struct With<'a> {
    pub(super) session: &'a SimSession,
    pub(super) executor: &'a SimExecutor,
    pub(super) now: Nanos,
}

/// Bytes of a send, their grant, and the grant's link.
type Source = (Region, Option<Grant>, u16);

/// A send in progress.
#[derive(Debug)]
struct Send {
    call: CallId,
    /// `None` if the message is carried.
    source: Option<Source>,
    give_up_at: Nanos,
}

/// A posted receive.
#[derive(Debug)]
struct Receive {
    slot: CallId,
    region: Region,
    cancel_at: Nanos,
}

/// All transfers of one node with one peer.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    sends: Vec<Send>,
    receives: Vec<Receive>,
    next: Nanos,
}

/// Processes a message of a rendezvous.
pub(super) fn take_in(
    kind: Kind,
    inbound: Inbound<'_, Arrived<Lease>>,
    session: &SimSession,
    executor: &SimExecutor,
) {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        inbound.payload.copy_to(at * 8, &mut bytes).expect("as its sender made it");
        u64::from_le_bytes(bytes)
    };
    if kind == Kind::Eager {
        let tag = word(0);
        return session.take_offer(inbound, tag, Offered::Eager { skip: 8 }, executor);
    }
    let (first, remote) = (word(0), RemoteRange { key: word(1), offset: word(2), len: word(3) });
    if kind == Kind::Offer {
        return session.take_offer(inbound, first, Offered::ByReference(pieces(remote)), executor);
    }
    let slot = u16::try_from(first >> 32).expect("as its sender made it");
    let generation = u32::try_from(first & u64::from(u32::MAX)).expect("masked");
    session.take_regrant(CallId { slot, generation }, pieces(remote), inbound.token.link(), executor);
    inbound.token.finish();
}

/// Returns the pieces of a message: those of every other length are three, of which one is empty.
fn pieces(remote: RemoteRange) -> Pieces {
    if remote.len.is_multiple_of(2) {
        return remote.into();
    }
    let part = |range| remote.part(range).expect("within the message");
    let third = remote.len / 3;
    let more = [part(third..third), part(third..remote.len)];
    Pieces::new(part(0..third), more.into_iter()).expect("three pieces of a short message")
}

fn words(words: [u64; 4]) -> OutgoingPayload {
    let bytes: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    OutgoingPayload::inline(&bytes).expect("four words fit an inline message")
}

/// Fills a message with bytes that are derived from its name, which is its first eight bytes, and its length.
fn fill(bytes: &mut [u8], name: u64) {
    let (first, rest) = bytes.split_at_mut(8);
    first.copy_from_slice(&name.to_le_bytes());
    Random::new(name ^ rest.len() as u64).fill(rest);
}

impl Transfers {
    /// Processes ends, gives up due sends and receives, and starts those that the traffic requires. Returns whether
    /// anything happened.
    pub(super) fn turn(
        &mut self,
        with: &With<'_>,
        traffic: &Traffic,
        random: &mut Random,
        all: &mut Transferred,
    ) -> bool {
        let open = self.sends.len() + self.receives.len();
        self.take_ends(with, all);
        self.grant_again(with, &mut all.tally);
        let silent = traffic.transfers.is_none();
        self.give_up(with, silent, &mut all.tally);
        if silent && self.receives.is_empty() && with.session.transfers(with.executor)[0] != 0 {
            // Sends that were carried and wait here are not given up.
            (0..TAGS).for_each(|tag| self.post(tag, with, random));
        }
        let ended = self.sends.len() + self.receives.len() != open;
        let Some(gap) = traffic.transfers else { return ended };
        if with.now < self.next {
            return ended;
        }
        self.next = with.now + random.within(gap);
        let tag = random.below(TAGS);
        if random.one_in(2) {
            self.post(tag, with, random)
        } else {
            self.send(tag, with, random)
        }
        true
    }

    /// Returns the time of the next action.
    pub(super) fn next(&self, traffic: &Traffic) -> Nanos {
        let sends = self.sends.iter().map(|send| send.give_up_at);
        let receives = self.receives.iter().map(|receive| receive.cancel_at);
        let next = traffic.transfers.map(|_| self.next);
        sends.chain(receives).chain(next).min().unwrap_or(Nanos::NEVER)
    }

    fn post(&mut self, tag: u64, with: &With<'_>, random: &mut Random) {
        let &With { session, executor, now } = with;
        let len = if random.one_in(8) { CARRIED } else { LONGEST };
        let region = Region::new(Arc::new(HeapMemory::new(usize::try_from(len).expect("some chunks"))));
        match session.post_receive(tag, &region, (0, len), executor) {
            Ok(slot) => {
                let cancel_at = now + random.within(PATIENCE);
                self.receives.push(Receive { slot, region, cancel_at });
            }
            Err(refused) => assert!(refused.is_retryable(), "a receive: {refused}"),
        }
    }

    fn send(&mut self, tag: u64, with: &With<'_>, random: &mut Random) {
        let &With { session, executor, now } = with;
        let longest = if random.one_in(3) { CARRIED } else { LONGEST };
        let len = 8 + random.below(longest - 7);
        let mut bytes = vec![0; usize::try_from(len).expect("some chunks")];
        fill(&mut bytes, random.next());
        let give_up_at = if random.one_in(5) { now + random.within(TIMEOUT) } else { Nanos::NEVER };
        let timeout = if random.one_in(4) { Nanos::NEVER } else { random.within(TIMEOUT) };
        let spec = |kind: Kind| CallSpec { key: kind.key(), class: Class::Bulk, timeout };
        if session.enter_send().is_err() {
            return;
        }
        let mut source = None;
        let sent = if len <= CARRIED {
            session.loan_after_reaping(Class::Bulk, bytes.len() + 8, 1, executor).and_then(|mut loan| {
                let (first, rest) = loan.as_mut_slice().split_at_mut(8);
                first.copy_from_slice(&tag.to_le_bytes());
                rest.copy_from_slice(&bytes);
                session.call(&spec(Kind::Eager), OutgoingPayload::Frame(loan.finish()), executor)
            })
        } else {
            let region = Region::new(Arc::new(HeapMemory::new(bytes.len())));
            region.write(0, &bytes).expect("as long as asked for");
            let link = session.link_generation();
            match session.grant(&region, 0..len, Rights::READ, executor) {
                Ok(grant) => {
                    let RemoteRange { key, offset, len } = grant.remote;
                    source = Some((region, Some(grant), link));
                    session.call_with_grant(
                        &spec(Kind::Offer),
                        words([tag, key, offset, len]),
                        link,
                        executor,
                    )
                }
                Err(_) => Err(SendError::NoRing),
            }
        };
        match sent {
            Ok(call) => self.sends.push(Send { call, source, give_up_at }),
            Err(refused) => {
                assert!(refused.is_retryable() || refused == SendError::Draining, "a send: {refused}");
                session.leave_send(left(source, None), executor);
            }
        }
    }

    fn take_ends(&mut self, with: &With<'_>, all: &mut Transferred) {
        let &With { session, executor, .. } = with;
        let Transferred { names, tally } = all;
        self.receives.retain(|receive| {
            if !session.has_ended(receive.slot) {
                return true;
            }
            match session.take(receive.slot, executor) {
                End::Done(len) => {
                    let len = usize::try_from(len).expect("some chunks");
                    let mut bytes = vec![0; len];
                    receive.region.read(0, &mut bytes).expect("within the buffer");
                    let mut expected = vec![0; len];
                    let name = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                    fill(&mut expected, name);
                    assert!(bytes == expected, "a message of {len} bytes arrived changed");
                    assert!(names.insert(name), "a message was received twice");
                    tally.received += 1;
                    tally.by_reference += u64::from(len as u64 > CARRIED);
                }
                End::Failure { code: FailureCode::Cancelled, .. } => tally.cancelled += 1,
                End::Failure { code: FailureCode::ReplyTooLarge, .. } => {}
                End::PeerDown { .. } => tally.peer_downs += 1,
                end => panic!("a receive ended as {end:?}"),
            }
            false
        });
        self.sends.retain_mut(|send| {
            if !session.has_ended(send.call) {
                return true;
            }
            let mut unanswered = None;
            match session.take(send.call, executor) {
                End::Reply(_) => tally.sent += 1,
                End::Failure { code: FailureCode::HandlerError, .. } => tally.refused += 1,
                End::Deadline { .. } => {
                    tally.deadlines += 1;
                    unanswered = Some(send.call);
                }
                End::PeerDown { .. } => tally.peer_downs += 1,
                end => panic!("a send ended as {end:?}"),
            }
            session.leave_send(left(send.source.take(), unanswered), executor);
            false
        });
    }

    fn grant_again(&mut self, with: &With<'_>, tally: &mut TransferTally) {
        let &With { session, executor, .. } = with;
        for send in &mut self.sends {
            let Some((region, grant, link)) = &mut send.source else { continue };
            let present = session.link_generation();
            if *link == present || !session.is_up() || !session.is_linked(executor) {
                continue;
            }
            let Ok(again) = session.grant(region, 0..region.len() as u64, Rights::READ, executor) else {
                continue;
            };
            let RemoteRange { key, offset, len } = again.remote;
            let name = u64::from(send.call.slot) << 32 | u64::from(send.call.generation);
            let payload = words([name, key, offset, len]);
            let key = Kind::Regrant.key();
            if session.notify_with_grant(&key, Class::Bulk, payload, present, executor).is_ok() {
                (*grant, *link) = (Some(again), present);
                tally.regrants += 1;
            } else {
                // Refused only if the link has ended again, and with it the grant.
                let _ended = session.revoke(again.id, executor);
            }
        }
    }

    fn give_up(&mut self, with: &With<'_>, all: bool, tally: &mut TransferTally) {
        let &With { session, executor, now } = with;
        self.sends.retain_mut(|send| {
            let due = all || send.give_up_at <= now;
            if due {
                session.abandon(send.call, Class::Bulk, executor);
                session.leave_send(left(send.source.take(), Some(send.call)), executor);
                tally.sends_given_up += 1;
            }
            !due
        });
        for receive in &mut self.receives {
            if receive.cancel_at <= now {
                // It stays in the list until its end, which may be a message.
                receive.cancel_at = Nanos::NEVER;
                session.cancel_receive(receive.slot, executor);
            }
        }
    }
}

/// Returns a send that the node leaves, with the call that has no response yet.
fn left(source: Option<Source>, call: Option<CallId>) -> LeftSend {
    let lent = source.and_then(|(region, grant, link)| Some(Lent { grant: grant?.id, link, region }));
    LeftSend { is_counted: true, call, lent }
}

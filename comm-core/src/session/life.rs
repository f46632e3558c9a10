//! How an engine gets a link, loses it, and how a session ends.

use alloc::sync::Arc;
use alloc::vec::Vec;

use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class, Kind};

use super::Session;
use super::arming::Armed;
use super::by_slot::BySlot;
use super::call::Expects;
use super::end::{End, Executed};
use super::engine::Engine;
use super::inbound::Sink;
use super::link::{DownCause, Event, Link, Links, LostLink};
use super::outbound::KeptRequest;
use super::outgoing::Outgoing;
use crate::buf::{RingConfig, SendRing};
use crate::executor::Executor;
use crate::fabric::{FabricError, QueuePair};
use crate::time::Nanos;

impl<Q: QueuePair> Engine<Q> {
    /// A new link. It carries the held session on, or begins another one.
    pub(super) fn install(
        &mut self,
        links: Links<Q>,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Links { mut pairs, agreement } = links;
        if self.link.is_some() {
            self.lose(FabricError::Lost, session, sink, executor);
        }
        let resumed = agreement.resumed;
        if resumed && self.session.is_none_or(|held| held.session != agreement.session) {
            // The session ended while the greetings travelled. The peer would carry on what has begun anew here, so it
            // must greet again.
            pairs.iter_mut().for_each(QueuePair::close);
            return;
        }
        if !resumed {
            self.end_session(DownCause::Replaced, session, sink, executor);
        }
        self.generation = self.generation.wrapping_add(1);
        let mut link = Link::new(pairs, &agreement, executor.now());
        for class in Class::ALL {
            let lane = &mut link.lanes[class.index()];
            let pinned = lane.qp.capabilities().pins_memory;
            let config = if pinned { RingConfig::pinned() } else { RingConfig::default() };
            let ring = SendRing::new(lane.qp.send_memory(), config);
            for range in ring.initial() {
                lane.failed |= lane.qp.prepare(range).is_err();
            }
            let ring = Arc::new(ring);
            lane.ring = Some(Arc::clone(&ring));
            session.rings[class.index()].set(Some(ring));
            session.returned[class.index()].reset(self.generation);
            session.told[class.index()].store(0, Ordering::Relaxed);
        }
        if !resumed {
            self.session_start = self.generation;
            self.seen = BySlot::new(agreement.peer_windows[0].replies);
            session.types.replace(&agreement.types);
            // Another life of the peer uses the same slots and generations for other calls.
            session.cancelled.made().for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
        session.arming.set(Armed::Nothing);
        let info = link.info;
        self.session = Some(info);
        self.link = Some(link);
        let lost = self.lost.take();
        for class in Class::ALL {
            let window = agreement.peer_windows[class.index()].requests;
            session.credits[class.index()].reset(self.generation, window);
        }
        if resumed {
            self.resend(session, executor);
        }
        session.up.store(true, Ordering::Relaxed);
        if resumed {
            let notifications_lost = lost.map_or(0, |lost| lost.notifications);
            session.stats.notifications_lost.add_alone(notifications_lost.into());
            session.stats.links_resumed.add_alone(1);
            sink.event(Event::LinkResumed { peer: info.peer, notifications_lost });
        } else {
            sink.event(Event::PeerUp(info));
        }
        self.drain(session, executor);
    }

    /// Sends every unanswered request again, in the order in which they were first posted, and before what has waited to
    /// be posted since; the callee drops those that it saw. There may be more of them than credits, for a request gives
    /// its credit back before its answer is there: each takes one of this link, or waits for one.
    fn resend(&mut self, session: &Session<Q>, executor: &impl Executor) {
        let mut waiting = core::mem::take(&mut self.stalled);
        let mut unanswered: Vec<_> = (0..self.open.len()).filter(|slot| self.open[*slot].live).collect();
        unanswered.sort_unstable_by_key(|slot| self.open[*slot].order);
        for slot in unanswered {
            if let Some(outgoing) = self.unanswered_request(slot, session, executor.now()) {
                session.stats.requests_resent.add_alone(1);
                self.post(outgoing, session, executor);
            }
        }
        for (stalled, waiting) in self.stalled.iter_mut().zip(&mut waiting) {
            stalled.append(waiting);
        }
    }

    /// The request of a live call, to be sent again: none if its caller has an end already, or if it still waits to be
    /// sent again for an earlier loss.
    fn unanswered_request(&mut self, slot: usize, session: &Session<Q>, now: Nanos) -> Option<Outgoing> {
        let open = &mut self.open[slot];
        let timeout = remaining(open.timeout, open.deadline, now);
        let call =
            CallId { slot: u16::try_from(slot).expect("slots are 16 bits"), generation: open.generation };
        if open.ended {
            // Its slot waited only for an answer that the lost link took with it.
            open.live = false;
            open.kept = None;
            session.calls.settle(call);
            return None;
        }
        let KeptRequest { class, kind, payload } = open.kept.take()?;
        let Kind::Request { type_id, service, .. } = kind else { return None };
        let deadline_us = super::timeout_us(timeout);
        let kind = Kind::Request { call, type_id, service, resent: true, deadline_us };
        let link = self.generation.wrapping_sub(1);
        payload.map(|payload| Outgoing { class, link, kind, payload, completes: None, timeout })
    }

    /// Closes the link, with everything under way on it. Returns how many notifications that may have hit.
    fn close_link(&mut self, session: &Session<Q>, executor: &impl Executor) -> Option<(Link<Q>, u32)> {
        self.settle_early(session);
        let mut link = self.link.take()?;
        for class in Class::ALL {
            session.credits[class.index()].reset(self.generation, 0);
            session.rings[class.index()].set(None);
            let lane = &mut link.lanes[class.index()];
            lane.qp.close();
            while let Some(completion) = lane.qp.poll_send() {
                self.completed(completion, session, executor);
            }
        }
        self.flush_work(session, executor);
        let notifications = link.lanes.iter().map(|lane| lane.notifications.len()).sum::<usize>();
        Some((link, u32::try_from(notifications).unwrap_or(u32::MAX)))
    }

    /// The link is gone. The session waits for another one, if it can.
    #[cold]
    pub(super) fn lose(
        &mut self,
        error: FabricError,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Some((link, notifications)) = self.close_link(session, executor) else { return };
        if !link.peer_draining {
            session.stats.links_lost.add_alone(1);
        }
        let corrupt = matches!(error, FabricError::Peer(_));
        if corrupt {
            session.stats.corrupt_peers.add_alone(1);
        }
        if link.peer_draining {
            self.end_session(DownCause::Goodbye, session, sink, executor);
        } else if corrupt {
            self.end_session(DownCause::Corrupt(error), session, sink, executor);
        } else if !link.resumable {
            self.end_session(DownCause::Died, session, sink, executor);
        } else {
            self.lost = Some(LostLink { since: executor.now(), notifications });
            sink.event(Event::LinkLost { peer: link.info.peer, error });
        }
    }

    /// Ends link and session for a reason that is not the link's.
    #[cold]
    pub(super) fn lose_for(
        &mut self,
        cause: DownCause,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let closed = self.close_link(session, executor);
        let in_order = matches!(cause, DownCause::Goodbye | DownCause::Local);
        if closed.is_some_and(|(link, _)| !link.peer_draining && !in_order) {
            session.stats.links_lost.add_alone(1);
        }
        self.end_session(cause, session, sink, executor);
    }

    /// Every open call ends; the peer is down until another session begins.
    pub(super) fn end_session(
        &mut self,
        cause: DownCause,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Some(info) = self.session.take() else { return };
        session.up.store(false, Ordering::Relaxed);
        session.types.replace(&[]);
        if let Some(lost) = self.lost.take() {
            session.stats.notifications_lost.add_alone(lost.notifications.into());
        }
        for class in Class::ALL {
            while let Some(submitted) = self.stalled[class.index()].pop_front() {
                self.post_any(submitted, session, executor);
            }
        }
        self.drain(session, executor);
        for slot in 0..self.open.len() {
            let open = &mut self.open[slot];
            if !core::mem::take(&mut open.live) {
                continue;
            }
            open.kept = None;
            let (ended, generation) = (open.ended, open.generation);
            let call = CallId { slot: u16::try_from(slot).expect("slots are 16 bits"), generation };
            if ended {
                session.calls.settle(call);
            } else {
                session.calls.end(
                    call,
                    End::PeerDown { executed: Executed::Maybe },
                    Expects::Nothing,
                    executor,
                );
            }
        }
        self.end_rendezvous(session, executor);
        self.seen = BySlot::new(0);
        sink.event(Event::PeerDown { peer: info.peer, epoch: info.epoch, cause });
    }
}

/// What is left of a timeout that began before a link was lost.
fn remaining(timeout: Nanos, deadline: Option<Nanos>, now: Nanos) -> Nanos {
    deadline.map_or(timeout, |deadline| deadline.since(now))
}

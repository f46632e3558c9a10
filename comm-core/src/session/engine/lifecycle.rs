//! Installing a link, losing it, and ending the session.

use alloc::sync::Arc;

use pronto_sync::atomic::Ordering;
use pronto_wire::Class;

use super::Engine;
use crate::buf::{RingConfig, SendRing};
use crate::executor::Executor;
use crate::fabric::Armed;
use crate::fabric::{Capabilities, FabricError, QueuePair};
use crate::session::by_slot::BySlot;
use crate::session::connection::{Connection, Link};
use crate::session::inbound::Sink;
use crate::session::link::{DownCause, Event, Links};
use crate::session::phase::LostLink;
use crate::session::shared::{Shared, Turn};
use crate::wait::back_off::BackOff;

impl<Q: QueuePair> Engine<Q> {
    /// Installs a new link. It resumes the suspended session, or begins another one.
    pub(in crate::session) fn install(
        &mut self,
        links: Links<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let Links { mut pairs, agreement } = links;
        self.lose_present(turn, sink);
        let resumed = agreement.resumed;
        if resumed && self.phase.info().is_none_or(|held| held.session != agreement.session) {
            // The session ended while the greetings were in transit. The peer would resume a session that no longer exists here, so it must
            // send a new greeting.
            pairs.iter_mut().for_each(QueuePair::close);
            return;
        }
        if !resumed {
            self.end_session(DownCause::Replaced, turn, sink);
        }
        self.generation = self.generation.wrapping_add(1);
        let pressure = turn.shared.own_pressure.write();
        let mut link = Link::new(pairs, &agreement, pressure, turn.executor.now());
        for class in Class::ALL {
            let connection = &mut link.connections[class.index()];
            let config =
                RingConfig { placement: self.limits.placement, ..ring_of(connection.qp.capabilities()) };
            let Ok(ring) = SendRing::new(connection.qp.send_memory(), config) else {
                // Another ring has already claimed the memory of this queue pair, so no message can be composed in it. The queue pair is
                // closed, and the link is lost.
                connection.qp.close();
                connection.failed = true;
                continue;
            };
            for range in ring.initial() {
                connection.failed |= connection.qp.prepare(range).is_err();
            }
            let ring = Arc::new(ring);
            connection.ring = Some(Arc::clone(&ring));
            let mut back_off = BackOff::default();
            turn.shared.rings[class.index()].set(Some(ring), || back_off.pause(turn.executor));
            Self::begin_counts(self.generation, class, connection, turn.shared);
        }
        if !resumed {
            self.session_start = self.generation;
            self.last_calls = BySlot::new(agreement.peer_windows[0].replies);
            turn.shared.types.replace(&agreement.types);
            // Another incarnation of the peer uses the same slots and generations for other calls.
            turn.shared.cancelled.made().for_each(|(_, slot)| slot.store(0, Ordering::Relaxed));
        }
        turn.shared.arming.set(Armed::Nothing);
        let info = link.info;
        let lost = if resumed {
            Some(self.phase.resume(link))
        } else {
            self.phase.begin(link);
            None
        };
        for class in Class::ALL {
            let window = agreement.peer_windows[class.index()].requests;
            turn.shared.credits[class.index()].reset(self.generation, window);
        }
        turn.shared.demand.is_met();
        if resumed {
            self.resend_unanswered(turn);
        }
        // SYNC: publishes the peer's types; pairs with the Acquire in `Shared::number_if_up`.
        turn.shared.up.store(true, Ordering::Release);
        if let Some(LostLink { notifications: notifications_lost, was_paused, .. }) = lost {
            turn.shared.stats.notifications_lost.add_alone(notifications_lost.into());
            turn.shared.stats.links_resumed.add_alone(1);
            turn.shared.calls.wake_tasks(turn.executor);
            sink.event(match was_paused {
                true => Event::PauseEnded { peer: info.peer },
                false => Event::LinkResumed { peer: info.peer, notifications_lost },
            });
        } else {
            sink.event(Event::PeerUp(info));
        }
        self.drain(turn);
        debug_assert!(
            turn.shared.credits.iter().all(|credits| credits.link() == self.generation),
            "credits are of the latest link"
        );
    }

    /// Closes the present link, if there is one, because the peer has made another.
    fn lose_present(&mut self, turn: Turn<'_, Q::Lease, impl Executor>, sink: &mut impl Sink<Q::Lease>) {
        if self.is_asking_for_pause() {
            // The answer may have come, after which the peer has ended the link.
            self.drain_after_loss(turn, sink);
        }
        if self.phase.is_linked() {
            self.lose(FabricError::Lost, turn, sink);
        }
    }

    /// Resets what senders read of a connection, for a new link.
    fn begin_counts(link: u16, class: Class, connection: &Connection<Q>, shared: &Shared<Q::Lease>) {
        let at = class.index();
        shared.returned[at].reset(link);
        shared.acks_sent[at].store(0, Ordering::Relaxed);
        shared.granted[at].store(connection.granted.into(), Ordering::Relaxed);
        shared.may_ask[at].store(connection.may_get_more(), Ordering::Relaxed);
        shared.max_payload[at].store(connection.peer_window.max_payload, Ordering::Relaxed);
    }

    /// Closes the link with all work in flight on it, and suspends the session. Returns the properties of the link, if there was one.
    fn close_link(&mut self, turn: Turn<'_, Q::Lease, impl Executor>) -> Option<ClosedLink> {
        self.settle_early(turn.shared);
        self.retire_rings(turn);
        let link = self.phase.link_mut()?;
        for class in Class::ALL {
            turn.shared.credits[class.index()].reset(self.generation, 0);
            link.connections[class.index()].qp.close();
        }
        for class in Class::ALL {
            while let Some(completion) = self.connection(class).qp.poll_send() {
                self.completed(completion, turn);
            }
        }
        self.flush_work(turn);
        assert!(self.work.in_flight() == 0, "no work outlives its link");
        let link = self.phase.link()?;
        let closed = ClosedLink {
            peer_draining: link.peer_draining,
            resumable: link.resumable,
            is_pause: link.pausing.is_settled() && !link.peer_draining,
        };
        // This drops the queue pairs, too.
        self.phase.suspend(turn.executor.now());
        self.suspend_calls(turn);
        Some(closed)
    }

    /// Ends the loans of send memory of the current link, because the link ends.
    #[cold]
    pub(super) fn retire_rings(&self, turn: Turn<'_, Q::Lease, impl Executor>) {
        for ring in &turn.shared.rings {
            let mut back_off = BackOff::default();
            ring.set(None, || back_off.pause(turn.executor));
        }
    }

    /// Closes a link that was lost. Suspends the session if it can be resumed, and otherwise ends it.
    #[cold]
    pub(in crate::session) fn lose(
        &mut self,
        error: FabricError,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let Some(link) = self.close_link(turn) else { return };
        let corrupt = matches!(error, FabricError::Peer(_));
        if link.is_pause && !corrupt {
            self.phase.pause();
            turn.shared.stats.links_paused.add_alone(1);
            sink.event(Event::LinkPaused { peer: turn.shared.peer });
            return;
        }
        if !link.peer_draining {
            turn.shared.stats.links_lost.add_alone(1);
        }
        if corrupt {
            turn.shared.stats.corrupt_peers.add_alone(1);
        }
        if link.peer_draining {
            self.end_session(DownCause::Goodbye, turn, sink);
        } else if corrupt {
            self.end_session(DownCause::Corrupt(error), turn, sink);
        } else if !link.resumable {
            self.end_session(DownCause::Died, turn, sink);
        } else {
            turn.shared.demand.want();
            sink.event(Event::LinkLost { peer: turn.shared.peer, error });
        }
    }

    /// Ends link and session for a cause other than an error of the link.
    #[cold]
    pub(in crate::session) fn lose_for(
        &mut self,
        cause: DownCause,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let closed = self.close_link(turn);
        if closed.is_some_and(|link| !link.peer_draining && !cause.is_orderly()) {
            turn.shared.stats.links_lost.add_alone(1);
        }
        self.end_session(cause, turn, sink);
    }

    /// Ends the session after its link was closed: ends every open call, and reports the peer as down.
    pub(in crate::session) fn end_session(
        &mut self,
        cause: DownCause,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let Some(LostLink { info, notifications, .. }) = self.phase.end() else { return };
        turn.shared.up.store(false, Ordering::Relaxed);
        // Tasks that wait for room do not ask for a link again.
        if turn.shared.wanted.wants_room() {
            turn.shared.demand.want();
        } else {
            turn.shared.demand.is_met();
        }
        turn.shared.last_down.set(cause, turn.executor);
        turn.shared.types.replace(&[]);
        turn.shared.stats.notifications_lost.add_alone(notifications.into());
        self.end_calls(turn);
        self.drain(turn);
        self.end_rendezvous(turn);
        assert!(
            self.work.in_flight() == 0 && self.backlog.is_clear(),
            "nothing is left to do for a session that is over"
        );
        self.last_calls = BySlot::new(0);
        sink.event(Event::PeerDown { peer: info.peer, epoch: info.epoch, cause });
    }
}

/// The properties of a link that was closed.
struct ClosedLink {
    /// True if the peer had sent a goodbye.
    peer_draining: bool,
    /// True if the session survives the loss of the link.
    resumable: bool,
    /// True if both sides agreed to end the link because it was idle.
    is_pause: bool,
}

/// Returns the division of the send memory of a connection.
fn ring_of(capabilities: &Capabilities) -> RingConfig {
    match capabilities {
        Capabilities { pins_memory: true, .. } => RingConfig::pinned(),
        // Neither a device nor the kernel is in between: a core of the peer reads the memory.
        Capabilities { polls_without_syscalls: true, .. } => RingConfig::shared(),
        Capabilities { .. } => RingConfig::default(),
    }
}

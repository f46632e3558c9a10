//! The ticks of a session: deadlines, heartbeats, liveness, and freeing idle memory.

use pronto_wire::{Class, Kind};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{FabricError, QueuePair};
use crate::session::calls::Cause;
use crate::session::inbound::Sink;
use crate::session::link::DownCause;
use crate::session::pausing::Pausing;
use crate::session::phase::Phase;
use crate::session::shared::{Shared, Turn};
use crate::time::Nanos;

impl<Q: QueuePair> Engine<Q> {
    /// Processes deadlines, heartbeats and liveness. `slept` is the planned time since the last tick. Any longer time is the lateness of
    /// this node and does not count as silence of the peer.
    pub(in crate::session) fn tick(
        &mut self,
        turn: Turn<'_, Q::Lease, impl Executor>,
        now: Nanos,
        slept: Nanos,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let late =
            if self.last_tick == Nanos::ZERO { Nanos::ZERO } else { now.since(self.last_tick).since(slept) };
        let before = core::mem::replace(&mut self.last_tick, now);
        // Calls in the submission queue have deadlines, too.
        self.take_submissions(turn);
        self.write_pressure(turn.shared);
        self.end_overdue(turn, now);
        self.settle_early(turn.shared);
        self.send_cancels(turn.shared);
        if let Some(link) = self.phase.link_mut() {
            if core::mem::take(&mut link.has_received) {
                link.last_received = now;
            } else if late > LATENESS {
                link.last_received = link.last_received + late;
            }
            if core::mem::take(&mut link.has_sent) {
                // The message was sent at some time since the last tick, possibly at its start.
                link.last_sent = link.last_sent.max(before);
            }
            let (is_accepted, silent) =
                (matches!(link.pausing, Pausing::Accepted { .. }), now.since(link.last_received));
            if self.pause_is_overdue(now) {
                self.lose(FabricError::Lost, turn, sink);
                return;
            }
            if silent >= self.limits.liveness + LATENESS {
                self.lose_for(DownCause::Silent, turn, sink);
                return;
            }
            // A heartbeat is sent at the first tick after half of its interval, so that those of several sessions are sent together: in a
            // quiet system ticks are rare, and each may wake a thread of the peer.
            let link = self.phase.link_mut().expect("the link still exists");
            if !is_accepted && now.since(link.last_sent).0 >= self.limits.heartbeat.0 / 2 {
                link.last_sent = now;
                self.control(Class::Control, Kind::Heartbeat, turn.shared);
                for class in Class::ALL {
                    // The peer keeps its responses until they are acknowledged, and does not ask for a pause without its credits.
                    let returned = turn.shared.returned[class.index()].count();
                    let is_asked_for = turn.shared.demand.is_on_demand();
                    let connection = self.connection(class);
                    if connection.has_response_acks_due()
                        || is_asked_for && connection.has_credits_due(returned)
                    {
                        self.control(class, Kind::Credit, turn.shared);
                    }
                }
                // The heartbeat itself does not postpone the next one.
                self.phase.link_mut().expect("the link still exists").has_sent = false;
            }
            self.pause_if_idle(turn.shared, now);
        } else if let Phase::Suspended(lost) = &mut self.phase {
            if late > LATENESS {
                lost.excuse(late);
            }
            if !lost.is_paused && now.since(lost.since) >= self.limits.liveness {
                self.end_session(DownCause::Silent, turn, sink);
            }
        }
        self.trim_rings(turn.shared, now);
        if self.idleness.passed(now, turn.shared.stats.messages_sent.count()) {
            self.give_back();
        }
        self.ring_doorbells(turn.shared);
        debug_assert!(self.backlog_fits_calls(), "an entry of the backlog names each waiting call");
    }

    /// Frees memory that the session no longer needs.
    fn give_back(&mut self) {
        self.calls.give_back();
        self.work.give_back();
        self.backlog.give_back();
        for connection in self.phase.link_mut().into_iter().flat_map(|link| &mut link.connections) {
            connection.give_back();
        }
    }

    /// Called before a sleep, which may be long. Dates the messages received since the last tick to `now`, not to the end of the sleep.
    pub(in crate::session) fn note_received(&mut self, now: Nanos) {
        if let Some(link) = self.phase.link_mut()
            && core::mem::take(&mut link.has_received)
        {
            link.last_received = now;
        }
    }

    /// Returns the time when the next tick is needed if nothing happens before: a heartbeat is due, the link was idle for long, or the
    /// liveness limit is reached.
    pub(in crate::session) fn next_due(&self, shared: &Shared<Q::Lease>) -> Nanos {
        match &self.phase {
            Phase::Linked(link) => (link.last_sent + self.limits.heartbeat)
                .min(link.last_received + self.limits.liveness)
                .min(self.next_pause(shared)),
            Phase::Suspended(lost) if !lost.is_paused => lost.since + self.limits.liveness,
            Phase::Suspended(_) | Phase::Down => Nanos::NEVER,
        }
    }

    /// Ends the calls whose deadline has passed, in any state, and those whose waiter has left without notifying the engine because the
    /// submission queue was full.
    fn end_overdue(&mut self, turn: Turn<'_, Q::Lease, impl Executor>, now: Nanos) {
        let response = self.phase.response();
        let mut slot = 0;
        while let Some(call) = self.calls.next_overdue(slot, now) {
            self.end_call(call, Cause::Deadline(response), turn);
            slot = call.slot + 1;
        }
        slot = 0;
        while let Some(call) = self.calls.next_left(slot, |call| turn.shared.calls.was_left(call)) {
            self.end_call(call, Cause::Left(response), turn);
            slot = call.slot + 1;
        }
    }

    /// Makes chunks of send memory ready before they are needed, and frees idle ones.
    fn trim_rings(&mut self, shared: &Shared<Q::Lease>, now: Nanos) {
        let looks = self.idleness.is_due(now);
        let Some(link) = self.phase.link_mut() else { return };
        for (connection, present) in link.connections.iter_mut().zip(&shared.rings) {
            let Some(ring) = connection.ring.clone() else { continue };
            ring.tick(now);
            connection.lacks_memory = false;
            if connection.extend_ring() || !looks {
                continue;
            }
            if let Some(chunk) = ring.trim() {
                // If memory cannot be freed, it stays committed but is not used any more.
                connection.failed |= connection.qp.retire(chunk.range()).is_err();
                ring.close(chunk);
            } else if connection.qp.capabilities().ready_when_touched {
                if let Some(chunk) = ring.trim_first() {
                    connection.failed |= connection.qp.retire(chunk.range()).is_err();
                    ring.open_clean(chunk);
                }
                if let Some(arena) = present.idle_arena() {
                    connection.failed |= connection.qp.retire(arena.range()).is_err();
                }
            }
        }
    }
}

/// Lateness below this value is ordinary scheduling. The liveness limit is extended by it. That limit is a heartbeat interval plus one
/// second: without the extension, an idle peer that was stopped for one second, and whose next heartbeat is delayed by the network, would
/// be considered down.
const LATENESS: Nanos = Nanos::from_millis(100);

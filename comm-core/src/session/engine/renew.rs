//! Renewal of an engine whose holder panicked: its contents are taken out, and an empty engine stays.

use super::Engine;
use super::progress::CreditsAlone;
use crate::fabric::QueuePair;
use crate::session::backlog::Backlog;
use crate::session::by_slot::BySlot;
use crate::session::calls::OpenCalls;
use crate::session::idleness::Idleness;
use crate::session::inbound::LastCall;
use crate::session::link::LinkInfo;
use crate::session::phase::Phase;
use crate::session::work::WorkTable;

#[cfg(doc)]
use crate::session::CallTable;

/// The parts of a failed engine that hold memory, in the order in which they are dropped.
#[derive(Debug)]
pub(in crate::session) struct Remains<Q: QueuePair> {
    _work: WorkTable,
    _backlog: Backlog,
    _calls: OpenCalls,
    _last_calls: BySlot<LastCall>,
    /// The queue pairs, which are dropped last.
    phase: Phase<Q>,
}

impl<Q: QueuePair> Remains<Q> {
    /// Closes the link, if there was one. Returns information about the peer.
    pub(in crate::session) fn close(&mut self) -> Option<LinkInfo> {
        for connection in self.phase.link_mut().into_iter().flat_map(|link| &mut link.connections) {
            connection.qp.close();
        }
        self.phase.info().copied()
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// Takes out the engine's contents except the submission queue and the generation of the last link. Returns them.
    pub(in crate::session) fn renew(&mut self) -> Remains<Q> {
        let remains = Remains {
            _work: core::mem::replace(&mut self.work, WorkTable::new()),
            _backlog: core::mem::take(&mut self.backlog),
            _calls: core::mem::replace(&mut self.calls, OpenCalls::new(self.limits.calls)),
            _last_calls: core::mem::replace(&mut self.last_calls, BySlot::new(0)),
            phase: self.phase.take_failed(),
        };
        self.idleness = Idleness::default();
        self.credits_alone = CreditsAlone::default();
        remains
    }
}

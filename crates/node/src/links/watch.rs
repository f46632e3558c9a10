//! The links thread: dials peers without a link, watches lifelines, which report that a peer is gone, and restores a boost that ended.

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::session::Redial;
use pronto_core::{Clock, Nanos};
use pronto_fabric_shm as shm;
use pronto_wire::{NodeId, SessionId};

use super::{PeerOptions, Shared};
use crate::host::poll_timeout;
use crate::rdma;
use crate::serving::sink::WaitingSink;
use crate::system;

/// Detects that a peer is gone, where polling its link would not.
#[derive(Debug)]
pub(super) enum Lifeline {
    /// Detects the end of the peer's process, which ends the session.
    Process(shm::Lifeline),
    /// Detects the end of the link's other end; the thread that polls the link then finds it lost.
    Link(rdma::Lifeline),
}

/// The lifeline of a link, with the peer and the session of that link.
pub(super) type Watched = (NodeId, SessionId, Lifeline);

impl Lifeline {
    fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Process(line) => line.descriptors().map(|fd| fd.as_raw_fd()).collect(),
            Self::Link(line) => line.descriptors().map(|fd| fd.as_raw_fd()).collect(),
        }
    }

    fn is_cut(&self) -> bool {
        match self {
            Self::Process(line) => line.is_cut().unwrap_or(true),
            Self::Link(line) => line.is_cut(),
        }
    }
}

impl Shared {
    /// Dials peers without a link and watches lifelines, until the node stops.
    pub(super) fn run_links(self: &Arc<Self>, peers: &[PeerOptions]) {
        let mut dialled: HashMap<NodeId, Redial> = HashMap::new();
        let mut boost_due = Nanos::ZERO;
        while !self.host.is_stopping() {
            let now = self.host.now();
            self.check_lifelines();
            if now >= boost_due {
                boost_due = self.host.boosting.renew(now);
            }
            let mut next = Nanos::NEVER;
            // A node that drains makes no new links.
            let peers = if self.host.is_draining() { &[] } else { peers };
            for PeerOptions { node: peer, addresses, .. } in
                peers.iter().filter(|peer| !peer.addresses.is_empty())
            {
                let Some(session) = self.host.session(*peer) else { continue };
                if !session.wants_link() {
                    dialled.remove(peer);
                    continue;
                }
                let redial = dialled.entry(*peer).or_insert_with(|| Redial::new(now));
                if session.is_linked(&*self.host) {
                    redial.linked(now);
                    continue;
                }
                redial.unlinked(now);
                if session.end_pause(&*self.host) {
                    // The serving thread checks that there is a link in time.
                    self.host.serving.rouse(*peer);
                    self.host.changed();
                }
                let is_long = session.is_on_demand()
                    && now.since(redial.since()) >= self.host.limits.liveness
                    && session.is_over(&*self.host);
                if is_long && session.give_up_link() {
                    dialled.remove(peer);
                    self.host.look_again();
                    continue;
                }
                if now >= redial.due() {
                    if !self.attempts.may_dial(*peer, &session) {
                        // There is an attempt, or it has just succeeded. Its end wakes this thread.
                        continue;
                    }
                    redial.attempted(now);
                    self.dial(*peer, addresses.clone(), session);
                }
                next = next.min(redial.due());
            }
            let daily = self.host.trust.as_ref().map_or(Nanos::NEVER, |trust| trust.check_daily(now));
            self.sleep_until(next.min(self.host.audit.due()).min(daily).min(boost_due));
        }
    }

    /// Sleeps until the node, a lifeline or a device has an event, or until `next`. Then handles device events and alarms.
    fn sleep_until(&self, next: Nanos) {
        let lifelines = self.lifelines.lock().expect("no holder panics");
        let mut descriptors: Vec<_> = lifelines.iter().flat_map(|(_, _, line)| line.descriptors()).collect();
        self.devices.with_events(|events| descriptors.extend(events.iter().map(AsRawFd::as_raw_fd)));
        // The lock may be released before the sleep, because only this thread drops lifelines and devices.
        let mut fds: Vec<_> = [self.stop.as_fd(), self.host.links_event.as_fd()]
            .into_iter()
            .chain(descriptors.iter().map(|fd| system::borrow(*fd)))
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        drop(lifelines);
        let timeout = if next == Nanos::NEVER {
            PollTimeout::NONE
        } else {
            poll_timeout(Duration::from_nanos(next.since(self.host.now()).0.max(1_000_000)))
        };
        let _interrupted = poll(&mut fds, timeout);
        let _count = self.host.links_event.read();
        self.devices.take_events();
        self.host.flight.log_if_pending(&self.host);
        self.host.audit.log(self.host.now(), |node| self.host.identity_of(node));
    }

    /// Checks all lifelines. A cut lifeline ends its session, or causes a poll of its link. The lifeline of a link that has ended is
    /// closed, because the peer still runs and might keep its own end open for ever.
    fn check_lifelines(&self) {
        let found = core::mem::take(&mut *self.lifelines.lock().expect("no holder panics"));
        let mut kept: Vec<Watched> = Vec::with_capacity(found.len());
        // Newest first, because of several successive links of a session only the last one is valid.
        for (peer, id, line) in found.into_iter().rev() {
            if line.is_cut() {
                self.handle_cut(peer, id, &line);
            } else if self.has_session(peer, id) && !kept.iter().any(|(other, ..)| *other == peer) {
                kept.push((peer, id, line));
            }
        }
        kept.reverse();
        let mut lifelines = self.lifelines.lock().expect("no holder panics");
        kept.append(&mut lifelines);
        *lifelines = kept;
    }

    /// Handles a cut lifeline.
    fn handle_cut(&self, peer: NodeId, id: SessionId, line: &Lifeline) {
        if let Lifeline::Link(_) = line {
            self.devices.forget_absent();
            self.host.serving.wake();
        } else if let Some(session) = self.host.known_session(peer) {
            let mut sink = WaitingSink { host: &self.host, session: &session };
            session.take_down_died(id, &mut sink, &*self.host);
        }
    }

    /// Returns whether `id` is the present session with a peer.
    fn has_session(&self, peer: NodeId, id: SessionId) -> bool {
        let session = self.host.known_session(peer);
        session.and_then(|session| session.info(&*self.host)).is_some_and(|info| info.session == id)
    }
}

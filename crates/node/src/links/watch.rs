//! The links thread: dials what is not linked, and watches what tells that a peer has gone.

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::session::DownCause;
use pronto_core::{Clock, Nanos};
use pronto_fabric_shm as shm;
use pronto_wire::{NodeId, SessionId};

use super::Shared;
use crate::address::Address;
use crate::host::poll_timeout;
use crate::sink::WaitingSink;
use crate::{rdma, system};

/// Pauses between attempts to dial: doubled from the first up to the last.
const FIRST_PAUSE: Nanos = Nanos::from_millis(5);
const LAST_PAUSE: Nanos = Nanos::from_millis(500);

/// Tells that a peer has gone, where nobody who only polls would see it.
#[derive(Debug)]
pub(super) enum Lifeline {
    /// Its process has ended: the session ends.
    Process(shm::Lifeline),
    /// The link's other end has: whoever drives the link finds it lost.
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
            Self::Link(line) => line.look(),
        }
    }
}

impl Shared {
    /// Dials what is not linked, watches peer processes, until the node stops.
    pub(super) fn keep(self: &Arc<Self>, peers: &[(NodeId, Vec<Address>)]) {
        // Peers that the node was told of keep their places, also while they are down.
        let _kept: Vec<_> = peers.iter().filter_map(|(peer, _)| self.host.session(*peer)).collect();
        let mut pauses: HashMap<NodeId, (Nanos, Nanos)> = HashMap::new();
        while !self.host.is_stopping() {
            let now = self.host.now();
            self.sort_out();
            let mut next = Nanos::NEVER;
            // A node that takes its leave makes no new links.
            let peers = if self.host.is_draining() { &[] } else { peers };
            for (peer, addresses) in peers {
                let Some(session) = self.host.session(*peer) else { continue };
                if session.is_linked(&*self.host) {
                    pauses.remove(peer);
                    continue;
                }
                let (due, pause) = pauses.entry(*peer).or_insert((now, FIRST_PAUSE));
                if now >= *due {
                    if !self.attempts.may_dial(*peer, &session) {
                        // An attempt is under way, or has succeeded; its end wakes this thread.
                        continue;
                    }
                    *due = now + *pause;
                    *pause = Nanos((pause.0 * 2).min(LAST_PAUSE.0));
                    self.dial(*peer, addresses.clone(), session);
                }
                next = next.min(*due);
            }
            self.rest(next);
        }
    }

    /// Sleeps until something changed, a peer process ended, or it is time to dial.
    fn rest(&self, next: Nanos) {
        let lifelines = self.lifelines.lock().expect("no holder panics");
        let mut descriptors: Vec<_> = lifelines.iter().flat_map(|(_, _, line)| line.descriptors()).collect();
        self.devices.with_events(|events| descriptors.extend(events.iter().map(AsRawFd::as_raw_fd)));
        // The lock is given back before sleeping: lifelines and devices are dropped by this thread only.
        let mut fds: Vec<_> = [self.stop.as_fd(), self.host.keeper.as_fd()]
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
        let _count = self.host.keeper.read();
        self.devices.take_events();
        self.host.flight.tell(&self.host);
    }

    /// Goes through all lifelines. A cut one ends its session, or has its link polled. One whose link is over is closed: its peer
    /// lives, and might keep its own end open for ever.
    fn sort_out(&self) {
        let found = core::mem::take(&mut *self.lifelines.lock().expect("no holder panics"));
        let mut kept: Vec<Watched> = Vec::with_capacity(found.len());
        // The newest first: of the links that carried one session, one after another, the last one counts.
        for (peer, id, line) in found.into_iter().rev() {
            if line.is_cut() {
                self.is_cut(peer, id, &line);
            } else if self.has_session(peer, id) && !kept.iter().any(|(other, ..)| *other == peer) {
                kept.push((peer, id, line));
            }
        }
        kept.reverse();
        let mut lifelines = self.lifelines.lock().expect("no holder panics");
        kept.append(&mut lifelines);
        *lifelines = kept;
    }

    /// The other end of a link is gone.
    fn is_cut(&self, peer: NodeId, id: SessionId, line: &Lifeline) {
        if let Lifeline::Link(_) = line {
            self.devices.forget_absent();
            self.host.serving.wake();
        } else if let Some(session) = self.host.known_session(peer)
            && self.has_session(peer, id)
        {
            let mut sink = WaitingSink { host: &self.host, session: &session };
            session.take_down(DownCause::Died, &mut sink, &*self.host);
        }
    }

    /// Whether this is the present session with a peer.
    fn has_session(&self, peer: NodeId, id: SessionId) -> bool {
        let session = self.host.known_session(peer);
        session.and_then(|session| session.info(&*self.host)).is_some_and(|info| info.session == id)
    }
}

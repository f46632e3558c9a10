//! The accepting side: accepts connections, runs a bounded number of handshakes, and decides about greetings.

use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::sleep;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::Clock as _;
use pronto_core::session::{Agreement, Authenticated, Evidence, LinkInfo, agree, greet};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_sync::atomic::Ordering;
use pronto_wire::greeting::{MAX_GREETING, RDMA};
use pronto_wire::{Greeting, GreetingRefusal, NodeId, SessionId};

use super::establish::{By, NOT_OFFERED, connections};
use super::places::{Node, Place};
use super::sources::{Origin, Remote};
use super::{NoLink, Shared};
use crate::config::HANDSHAKE;
use crate::host::NodeSession;
use crate::links::attempts::{Attempt, Canceller};
use crate::status::admin::FIRST_VISITOR;
use crate::system;
use crate::trust::Proved;

/// Result of an accepted greeting.
#[derive(Debug)]
struct Accepted {
    session: Arc<NodeSession>,
    agreement: Agreement,
    /// This node's greeting, which is the reply.
    reply: Vec<u8>,
    attempt: Attempt,
}

impl Shared {
    pub(super) fn accept_shm(self: &Arc<Self>, listener: &shm::Listener) {
        loop {
            let mut fds = [
                PollFd::new(listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
            ];
            let _interrupted = poll(&mut fds, PollTimeout::NONE);
            if self.host.is_stopping() {
                return;
            }
            if fds[0].any() == Some(true) {
                match listener.accept() {
                    Ok(handshake) => self.in_thread(
                        Origin::of_user(handshake.peer().uid),
                        Canceller::Shm(handshake.canceller()),
                        move |shared, place| shared.greet_shm(handshake, place),
                    ),
                    Err(error) => self.accept_failed(&error),
                }
            }
        }
    }

    pub(super) fn accept_tcp(self: &Arc<Self>, listener: &tcp::Listener) {
        loop {
            match listener.accept() {
                Ok(incoming) => match incoming.canceller() {
                    Ok(canceller) => self.in_thread(
                        Origin::tcp(incoming.peer_addr().ip()),
                        Canceller::Tcp(canceller),
                        move |shared, place| match incoming.begin(HANDSHAKE)? {
                            Some(handshake) => shared.greet_tcp(handshake, place),
                            None => Ok(()),
                        },
                    ),
                    Err(error) => self.accept_failed(&error),
                },
                Err(tcp::SetupError::Closed) => return,
                Err(_) if self.host.is_stopping() => return,
                Err(error) => self.accept_failed(&error),
            }
        }
    }

    /// Logs a failed accept and pauses. The process has most likely run out of descriptors, and other threads may release some.
    fn accept_failed(&self, error: &dyn core::error::Error) {
        tracing::warn!(%error, "cannot accept a connection");
        pause(Duration::from_millis(10));
    }

    /// Runs a handshake in its own thread, as soon as there is a place for it. `run` marks the place when it accepts the greeting.
    fn in_thread(
        self: &Arc<Self>,
        origin: Origin,
        canceller: Canceller,
        run: impl FnOnce(&Arc<Self>, &mut Place) -> Result<(), NoLink> + Send + 'static,
    ) {
        let transport = canceller.transport();
        let from = origin.to_string();
        let mut place = self.places.enter((origin, self.sources.expects(origin)), canceller);
        let shared = Arc::clone(self);
        // If the thread cannot be started or panics, its closure is dropped and frees the place.
        let _no_thread = std::thread::Builder::new().name("pronto-handshake".into()).spawn(move || {
            if let Err(error) = run(&shared, &mut place) {
                let error = if place.was_ended() { NoLink::Crowded } else { error };
                shared.host.refusals.count(&error);
                if error.is_one_too_many() {
                    tracing::debug!("rejected a second link of a node that is already linked");
                } else if shared.host.refusals.is_news(&error, shared.host.now()) {
                    tracing::info!(%error, transport, from, "incoming connection rejected (repeats are not logged, and each reason once a second)");
                }
            }
        });
    }

    fn greet_shm(self: &Arc<Self>, mut handshake: shm::Handshake, place: &mut Place) -> Result<(), NoLink> {
        let remote = Remote::at(Origin::of_user(handshake.peer().uid));
        if !self.sources.expects(remote.origin) {
            handshake.send(&GreetingRefusal::NotPermitted.encode(self.host.identity.node))?;
            return Err(NoLink::Refused(GreetingRefusal::NotPermitted));
        }
        let mut handshake = handshake.begin(HANDSHAKE)?;
        let theirs = handshake.receive(MAX_GREETING)?;
        let canceller = Canceller::Shm(handshake.canceller());
        let Accepted { session, mut agreement, reply, attempt } =
            match self.receive_greeting(&theirs, canceller, false, &remote) {
                Ok(accepted) => accepted,
                Err(refusal) => {
                    handshake.send(&refusal.encode(self.host.identity.node))?;
                    return Err(NoLink::RefusedNode { refusal, node: node_of(&theirs) });
                }
            };
        place.greeted(Node::Configured)?;
        agreement.resumable = false;
        agreement.local = true;
        let made = handshake.send(&reply).map_err(NoLink::from);
        let made = attempt.settle(made.and_then(|()| self.establish_shm(handshake, agreement)))?;
        self.install(&session, made, &remote, By::Peer)?;
        Ok(())
    }

    fn greet_tcp(self: &Arc<Self>, mut handshake: tcp::Handshake, place: &mut Place) -> Result<(), NoLink> {
        let proved = self.identify(&handshake)?;
        let theirs = handshake.receive(MAX_GREETING)?;
        let canceller = Canceller::Tcp(handshake.canceller()?);
        let device = self.device_for(&handshake)?;
        let from = handshake.peer_addr().ip().to_canonical();
        let remote = Remote { origin: Origin::tcp(from), proved };
        let Accepted { session, mut agreement, reply, attempt } =
            match self.receive_greeting(&theirs, canceller, device.is_ok(), &remote) {
                Ok(accepted) => accepted,
                Err(refusal) => {
                    handshake.send(&refusal.encode(self.host.identity.node))?;
                    let node = node_of(&theirs);
                    return Err(match (refusal, node, remote.proved) {
                        (GreetingRefusal::NotPermitted, Some(claimed), Some(proved)) => {
                            NoLink::OtherIdentity { claimed, found: proved.identity.name.to_string() }
                        }
                        (GreetingRefusal::NotPermitted, Some(node), None) => {
                            NoLink::OtherSource { node, from }
                        }
                        _ => NoLink::RefusedNode { refusal, node },
                    });
                }
            };
        place.greeted(self.sources.kind(agreement.peer, &remote))?;
        agreement.local = handshake.peer_addr().ip().is_loopback();
        let made = handshake.send(&reply).map_err(NoLink::from).and_then(|()| {
            let tried = match (device, agreement.features & RDMA != 0) {
                (Ok(device), true) => {
                    device.accept(&mut handshake, connections(&agreement.fixed()))?.map(|link| (link, device))
                }
                (Ok(_), false) => Err(NOT_OFFERED.into()),
                (Err(why), _) => Err(why),
            };
            self.establish_between_hosts(handshake, agreement, tried)
        });
        self.install(&session, attempt.settle(made)?, &remote, By::Peer)?;
        Ok(())
    }

    /// Decodes and checks a greeting. Returns the agreement and this node's greeting as the reply.
    fn receive_greeting(
        &self,
        bytes: &[u8],
        canceller: Canceller,
        has_rdma: bool,
        remote: &Remote,
    ) -> Result<Accepted, GreetingRefusal> {
        let host = &self.host;
        let theirs = Greeting::decode(bytes).map_err(|_| GreetingRefusal::Malformed)?;
        if host.draining.load(Ordering::Relaxed) {
            return Err(GreetingRefusal::Draining);
        }
        if theirs.node == host.identity.node {
            return Err(GreetingRefusal::SameId);
        }
        if theirs.windows.iter().any(|window| window.replies > pronto_core::session::MAX_CALLS) {
            return Err(GreetingRefusal::Malformed);
        }
        if !self.sources.permits(theirs.node, remote) {
            return Err(GreetingRefusal::NotPermitted);
        }
        let (attempts, peer) = (&self.attempts, theirs.node);
        let ((session, agreement, reply), attempt) =
            attempts.accept(peer, canceller, || self.judge(theirs, has_rdma, remote))?;
        Ok(Accepted { session, agreement, reply, attempt })
    }

    /// Decides whether to accept a greeting, if no other attempt of the peer wins. Returns the session, the agreement and this node's
    /// greeting as the reply.
    fn judge(
        &self,
        theirs: Greeting,
        has_rdma: bool,
        remote: &Remote,
    ) -> Result<(Arc<NodeSession>, Agreement, Vec<u8>), GreetingRefusal> {
        let host = &self.host;
        let known = host.known_session(theirs.node);
        let held = known.as_ref().and_then(|session| session.info(&**host));
        let is_same = |info: LinkInfo| {
            let is_visitor = theirs.node >= FIRST_VISITOR;
            // Any identity has the ids of visitors, so that only the same one resumes their sessions.
            !is_visitor
                || host.trust.as_ref().is_none_or(|trust| trust.is_of(info.peer, remote.proved.as_ref()))
        };
        let held = held.filter(|held| is_same(*held));
        let same_epoch = held.is_some_and(|held| held.epoch == theirs.epoch);
        let resumes =
            same_epoch && theirs.session.is_some() && theirs.session == held.map(|held| held.session);
        if known.is_some_and(|session| session.is_linked(&**host)) {
            if !resumes {
                return Err(if same_epoch { GreetingRefusal::Duplicate } else { GreetingRefusal::IdTaken });
            }
            if !self.sources.may_replace(theirs.node, remote) {
                return Err(GreetingRefusal::NotPermitted);
            }
        }
        let id = if resumes { theirs.session } else { None };
        let id = id.unwrap_or_else(|| SessionId(system::random().max(1)));
        let target = theirs.node;
        let theirs = Authenticated::new(theirs, self.evidence(remote));
        let agreement = agree(&host.identity, &host.limits, theirs, id, held.map(|held| held.session))?;
        let greeting = greet(&host.identity, &host.limits, target, Some(id));
        let features = greeting.features | if has_rdma { RDMA } else { 0 };
        let reply = Greeting { features, ..greeting }.encode();
        // Only now, so that strangers whose greetings are refused leave no session behind.
        let session = host.session(target).ok_or(GreetingRefusal::TooManyPeers)?;
        Ok((session, agreement, reply))
    }
}

impl Shared {
    /// Returns the identity that the other side of a connection has proved; none if the node does not use TLS.
    pub(super) fn identify(&self, handshake: &tcp::Handshake) -> Result<Option<Proved>, NoLink> {
        match (&self.host.trust, handshake.peer_certificates()) {
            (Some(trust), Some(chain)) => Ok(Some(trust.identify(chain)?)),
            (Some(_), None) => Err(NoLink::Tcp(tcp::SetupError::PeerWithoutTls)),
            (None, _) => Ok(None),
        }
    }

    /// Returns how this node knows the other end of a connection.
    pub(super) fn evidence(&self, remote: &Remote) -> Evidence {
        match (&remote.proved, &self.host.trust, remote.origin) {
            (Some(_), Some(trust), _) => trust.evidence(),
            (_, _, Origin::SameUser) => Evidence::SameUser,
            (_, _, Origin::OtherUser(_)) => Evidence::User,
            (_, _, Origin::Host(_)) => Evidence::Claim,
        }
    }
}

/// Returns the node that a greeting claims to be from.
fn node_of(greeting: &[u8]) -> Option<NodeId> {
    Greeting::decode(greeting).ok().map(|greeting| greeting.node)
}

fn pause(span: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the operating system has to recover, and reports no event when it has"
    )]
    sleep(span);
}

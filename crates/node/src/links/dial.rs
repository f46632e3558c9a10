//! The dialling side: an attempt tries a peer's addresses in their order, in its own thread.

use std::sync::Arc;

use pronto_core::session::{Agreement, Authenticated, agree, greet};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_wire::greeting::{MAX_GREETING, RDMA};
use pronto_wire::{Greeting, GreetingFault, GreetingRefusal, NodeId, SessionId};

use super::establish::{By, NOT_OFFERED, connections};
use super::sources::{Origin, Remote};
use super::{NoLink, Shared};
use crate::config::DIAL;
use crate::config::address::Address;
use crate::host::NodeSession;
use crate::links::attempts::Attempts;

/// The attempt of one dialling thread. It ends when this is dropped, even if the thread panics. Until then the peer is not dialled
/// again.
#[derive(Debug)]
struct Dialling {
    attempts: Arc<Attempts>,
    peer: NodeId,
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.attempts.has_dialled(self.peer);
    }
}

impl Shared {
    pub(super) fn dial(self: &Arc<Self>, peer: NodeId, addresses: Vec<Address>, session: Arc<NodeSession>) {
        let shared = Arc::clone(self);
        let dialling = Dialling { attempts: Arc::clone(&self.attempts), peer };
        // If the thread cannot be started or panics, its closure is dropped and ends the attempt.
        let _no_thread = std::thread::Builder::new().name("pronto-dial".into()).spawn(move || {
            let _dialling = dialling;
            for address in &addresses {
                if shared.host.is_draining() {
                    break;
                }
                match shared.dial_one(peer, address, &session) {
                    Ok(()) => break,
                    Err(error) => {
                        shared.host.failed_dials.count(&error);
                        let news = shared.host.note_failure(peer, format!("{address}: {error}"));
                        if error.is_one_too_many() {
                            tracing::debug!(node = %peer, %address, "both nodes dialled; keeping the other node's link");
                        } else if news {
                            tracing::info!(node = %peer, %address, %error, "cannot reach peer; retrying");
                        }
                    }
                }
            }
        });
    }

    fn dial_one(&self, peer: NodeId, address: &Address, session: &Arc<NodeSession>) -> Result<(), NoLink> {
        let host = &self.host;
        let held = session.info(&**host).map(|info| info.session);
        // The link is checked after the session was read: if a greeting named the session of a working link, the other side would take
        // that link for lost, and replace it.
        if session.is_linked(&**host) {
            return Ok(());
        }
        let greeting = greet(&host.identity, &host.limits, peer, held);
        match address {
            Address::Shm(path) => {
                let mut handshake = match self.sources.user_of(peer) {
                    Some(user) => shm::Handshake::dial_user(path, DIAL, user)?,
                    None => shm::Handshake::dial(path, DIAL)?,
                };
                let remote = Remote::at(Origin::of_user(handshake.peer().uid));
                handshake.send(&greeting.encode())?;
                let reply = handshake.receive(MAX_GREETING)?;
                let mut agreement = self.receive_reply(&reply, peer, held, &remote)?;
                (agreement.resumable, agreement.local) = (false, true);
                self.install(session, self.establish_shm(handshake, agreement)?, &remote, By::ThisNode)?;
            }
            Address::Tcp(socket) => {
                let mut handshake = tcp::Handshake::dial(*socket, DIAL, self.tcp.clone())?;
                let remote = Remote { origin: Origin::tcp(socket.ip()), proved: self.identify(&handshake)? };
                if let Some(other) = remote.proved.as_ref().filter(|proved| !proved.identity.may_be(peer)) {
                    let found = other.identity.name.to_string();
                    return Err(NoLink::OtherIdentity { claimed: peer, found });
                }
                let device = self.device_for(&handshake)?;
                let features = greeting.features | if device.is_ok() { RDMA } else { 0 };
                handshake.send(&Greeting { features, ..greeting }.encode())?;
                let reply = handshake.receive(MAX_GREETING)?;
                let mut agreement = self.receive_reply(&reply, peer, held, &remote)?;
                agreement.local = handshake.peer_addr().ip().is_loopback();
                let tried = match (device, agreement.features & RDMA != 0) {
                    (Ok(device), true) => device
                        .dial(&mut handshake, connections(&agreement.fixed()))?
                        .map(|link| (link, device)),
                    (Ok(_), false) => Err(NOT_OFFERED.into()),
                    (Err(why), _) => Err(why),
                };
                let made = self.establish_between_hosts(handshake, agreement, tried)?;
                self.install(session, made, &remote, By::ThisNode)?;
            }
        }
        Ok(())
    }

    /// Decodes and checks the greeting that the peer sent as its reply.
    fn receive_reply(
        &self,
        bytes: &[u8],
        peer: NodeId,
        held: Option<SessionId>,
        remote: &Remote,
    ) -> Result<Agreement, NoLink> {
        let theirs = Greeting::decode(bytes).map_err(|fault| match fault {
            GreetingFault::Refused { refusal: GreetingRefusal::WrongNode, by } => {
                NoLink::OtherNode { expected: peer, found: by }
            }
            fault => fault.into(),
        })?;
        if theirs.node != peer {
            return Err(NoLink::OtherNode { expected: peer, found: theirs.node });
        }
        let session = theirs.session.ok_or(NoLink::Refused(GreetingRefusal::Malformed))?;
        let theirs = Authenticated::new(theirs, self.evidence(remote));
        agree(&self.host.identity, &self.host.limits, theirs, session, held).map_err(NoLink::Refused)
    }
}

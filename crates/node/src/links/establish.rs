//! Establishes links that both sides agreed on, over a transport that reaches the peer, and installs them in their sessions.

use std::sync::{Arc, PoisonError};

use pronto_core::fabric::ConnectionLimits;
use pronto_core::session::{Agreement, DownCause, Evidence, Links as SessionLinks};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_wire::Class;

use super::sources::Remote;
use super::watch::Lifeline;
use super::{NoLink, Shared};
use crate::config::ESTABLISH;
use crate::host::NodeSession;
use crate::queue_pair::AnyQueuePair;
use crate::rdma::{self, Rdma};
use crate::serving;
use crate::serving::sink::WaitingSink;

/// Reason for TCP if only this node could use RDMA.
pub(super) const NOT_OFFERED: &str = "the peer has no RDMA port for this connection";

/// A link and its lifeline.
pub(super) type Made = (SessionLinks<AnyQueuePair>, Option<Lifeline>);

impl Shared {
    pub(super) fn establish_shm(
        &self,
        handshake: shm::Handshake,
        agreement: Agreement,
    ) -> Result<Made, NoLink> {
        let user = handshake.peer().uid;
        let link = handshake.within(ESTABLISH)?.establish(connections(&agreement))?;
        let pairs = [AnyQueuePair::Shm(link.control), AnyQueuePair::Shm(link.bulk)];
        let of_user = match agreement.evidence {
            Evidence::User => format!("; known as a process of user {user}"),
            _ => String::new(),
        };
        self.host.note_choice(agreement.peer, format!("shm: the same host, by its address{of_user}"));
        Ok((SessionLinks { pairs, agreement }, Some(Lifeline::Process(link.lifeline))))
    }

    /// Returns the RDMA device that may carry the link of this connection, or the reason why there is none.
    pub(super) fn device_for(
        &self,
        handshake: &tcp::Handshake,
    ) -> Result<Result<rdma::Device, String>, NoLink> {
        if handshake.peer_addr().ip().to_canonical().is_loopback() {
            return Ok(Err("the same host".into()));
        }
        Ok(self.devices.reaching(handshake.local_addr()?.ip(), self.host.placement.get()))
    }

    /// Establishes the link over RDMA if `tried` succeeded, and over TCP otherwise.
    pub(super) fn establish_between_hosts(
        &self,
        handshake: tcp::Handshake,
        agreement: Agreement,
        tried: Result<(rdma::Link, rdma::Device), String>,
    ) -> Result<Made, NoLink> {
        let peer = agreement.peer;
        let why = match tried {
            Ok((link, device)) => {
                let streams = handshake.within(ESTABLISH).establish_streams()?;
                let (pairs, line) = link.finish(streams).map_err(NoLink::Rdma)?;
                self.host.note_choice(peer, format!("verbs: {} reaches it", device.name()));
                let agreement = agreement.fixed();
                return Ok((SessionLinks { pairs, agreement }, Some(Lifeline::Link(line))));
            }
            Err(why) => why,
        };
        if self.rdma == Rdma::Require && !agreement.local {
            let failure = NoLink::Rdma(why);
            // Recorded here, because the accepting side has no other place that does.
            self.host.note_failure(peer, failure.to_string());
            return Err(failure);
        }
        let evidence = agreement.evidence;
        let (links, polling, by_kernel) = self.establish_tcp(handshake, agreement)?;
        let polling = match polling {
            tcp::BusyPolling::Off => String::new(),
            asked => format!("; {asked}"),
        };
        let tls = if by_kernel { "; TLS by the kernel" } else { "; TLS" };
        let (tls, known) = match evidence {
            Evidence::Certificate => (tls, ", known by its certificate"),
            Evidence::Key => (tls, ", known by its key"),
            Evidence::SameUser | Evidence::User | Evidence::Claim => ("", ""),
        };
        self.host.note_choice(peer, format!("tcp: {why}{polling}{tls}{known}"));
        Ok((links, None))
    }

    fn establish_tcp(
        &self,
        handshake: tcp::Handshake,
        agreement: Agreement,
    ) -> Result<(SessionLinks<AnyQueuePair>, tcp::BusyPolling, bool), NoLink> {
        let handshake = handshake.within(ESTABLISH);
        let mut link = handshake.establish(connections(&agreement), &self.host.receive_pool)?;
        for pair in [&mut link.control, &mut link.bulk] {
            pair.on_blocked(serving::waker(&self.host, agreement.peer));
        }
        let (polling, by_kernel) = (
            link.control.busy_polling(),
            [&link.control, &link.bulk].iter().all(|pair| pair.is_encrypted_by_kernel()),
        );
        let pairs = [AnyQueuePair::Tcp(link.control), AnyQueuePair::Tcp(link.bulk)];
        Ok((SessionLinks { pairs, agreement }, polling, by_kernel))
    }

    /// Installs a link. One that this node has dialled is dropped if the peer has made one meanwhile.
    ///
    /// # Errors
    /// The peer's identity was revoked meanwhile.
    pub(super) fn install(
        &self,
        session: &Arc<NodeSession>,
        (links, lifeline): Made,
        remote: &Remote,
        by: By,
    ) -> Result<(), NoLink> {
        let (peer, id) = (links.agreement.peer, links.agreement.session);
        let evidence = links.agreement.evidence;
        let identity = remote.proved.as_ref().map(|proved| &proved.identity);
        let rules = self.host.rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut sink = WaitingSink { host: &self.host, session };
        let may = |is_linked: bool| {
            let may = by == By::Peer || !is_linked;
            if may {
                let subjects = self.host.subjects(peer, evidence, identity);
                rules.apply(session, &subjects, self.host.routes());
                self.sources.linked(peer, remote.origin);
                if let (Some(trust), Some(proved)) = (&self.host.trust, &remote.proved) {
                    trust.linked(peer, proved);
                }
            }
            may
        };
        let installed = session.install_if(links, may, &mut sink, &*self.host);
        drop(rules);
        self.host.forget_failure(peer);
        self.host.changed();
        if let Some(lifeline) = lifeline.filter(|_| installed) {
            self.lifelines.lock().expect("no holder panics").push((peer, id, lifeline));
            self.host.wake_links_thread();
        }
        if installed { self.confirm(session, remote) } else { Ok(()) }
    }

    /// Ends the link that was just installed if its peer is no longer trusted. A reload after this finds the link itself.
    fn confirm(&self, session: &Arc<NodeSession>, remote: &Remote) -> Result<(), NoLink> {
        if let (Some(trust), Some(proved)) = (&self.host.trust, &remote.proved)
            && let Err(denied) = trust.check(session.peer(), proved)
        {
            self.host.take_down(session, DownCause::Untrusted);
            return Err(denied.into());
        }
        Ok(())
    }
}

/// The side that has dialled a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    ThisNode,
    Peer,
}

pub(super) fn connections(agreement: &Agreement) -> [ConnectionLimits; 2] {
    Class::ALL.map(|class| agreement.connection(class))
}

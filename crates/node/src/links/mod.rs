//! Links: accepted by listeners (`accept`), dialled (`dial`), established and installed in their sessions (`establish`), and watched
//! (`watch`).

mod accept;
pub(crate) mod attempts;
mod dial;
mod establish;
pub(crate) mod interfaces;
mod places;
pub(crate) mod refusals;
mod sources;
mod watch;

use core::net::IpAddr;
use core::time::Duration;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_progress::BusyPoll;
use pronto_trust::rustls::Error as TlsError;
use pronto_trust::{Denied, alert_reason};
use pronto_wire::{GreetingFault, GreetingRefusal, NodeId};
use thiserror::Error;

use crate::config::address::Address;
use crate::error::NodeError;
use crate::host::{NodeHost, NodeSession};
use crate::links::attempts::Attempts;
use crate::rdma::{self, Rdma};
use crate::trust::Trust;
use places::Places;
use sources::Sources;
use watch::Watched;

/// Configuration of a node's links.
#[derive(Debug)]
pub(crate) struct LinkOptions {
    pub(crate) listen: Vec<Address>,
    pub(crate) peers: Vec<PeerOptions>,
    pub(crate) plaintext: bool,
    pub(crate) tls_by: tcp::TlsBy,
    pub(crate) rdma: Rdma,
    /// Permission to use soft-RoCE.
    pub(crate) rdma_soft: bool,
    pub(crate) busy_poll: BusyPoll,
    pub(crate) socket_buffer: Option<u32>,
    pub(crate) connect: Connect,
}

/// The times at which a node has links to the peers of which it has addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// The node keeps a link to each of them.
    #[default]
    Always,
    /// A message that needs a link makes one. A link without requests and notifications for `idle` ends, if the peer also makes its links on
    /// demand and has an address of this node. Links over shared memory stay.
    OnDemand {
        /// Time after which an idle link ends. The peer may delay the end by the same setting of its own.
        idle: Duration,
    },
}

/// Default time after which an idle link ends that was made on demand. Chosen by us; no source.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// A configured peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerOptions {
    pub(crate) node: NodeId,
    /// Where it listens, best first.
    pub(crate) addresses: Vec<Address>,
    /// The networks from which it connects over TCP, apart from the hosts of its addresses.
    pub(crate) from: Vec<IpNet>,
    /// The user of its processes, which connect over shared memory.
    pub(crate) user: Option<u32>,
}

/// Listeners and threads that establish links while the node runs.
#[derive(Debug)]
pub(crate) struct LinkMaker {
    shared: Arc<Shared>,
    tcp_listeners: Vec<Arc<tcp::Listener>>,
    listening: Vec<Address>,
    dialled: Vec<NodeId>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: Arc<NodeHost>,
    /// Becomes readable when the node stops.
    stop: EventFd,
    places: Arc<Places>,
    attempts: Arc<Attempts>,
    sources: Sources,
    /// Lifelines of the present links that have one. Only the links thread removes any, because it sleeps on their descriptors.
    lifelines: Mutex<Vec<Watched>>,
    tcp: tcp::Options,
    devices: rdma::Devices,
    rdma: Rdma,
}

/// Reason why a connection did not become a link.
#[derive(Debug, Error)]
pub(crate) enum NoLink {
    #[error(transparent)]
    Shm(#[from] shm::SetupError),
    #[error(transparent)]
    Tcp(tcp::SetupError),
    #[error(transparent)]
    Greeting(#[from] GreetingFault),
    #[error("refused by this node: {0}")]
    Refused(GreetingRefusal),
    #[error("this node refused node {}: {refusal}", node.map_or_else(|| "?".into(), |node| node.to_string()))]
    RefusedNode { refusal: GreetingRefusal, node: Option<NodeId> },
    #[error(
        "node {node} is not expected from {from}: if it is that node, add `from = [\"{from}\"]` to its [[peer]]"
    )]
    OtherSource { node: NodeId, from: IpAddr },
    #[error(
        "the other side has the identity of {found}, and not of node {claimed}: correct the address, the id or the certificate"
    )]
    OtherIdentity { claimed: NodeId, found: String },
    #[error("the other side is not trusted: {0}")]
    Denied(#[from] Denied),
    #[error("the other side does not trust this node: {0}")]
    DeniedByPeer(&'static str),
    #[error("node {found} listens at this address, not node {expected}: correct the address or the id")]
    OtherNode { expected: NodeId, found: NodeId },
    #[error("superseded by a newer attempt of the same node")]
    Superseded,
    #[error("too many concurrent handshakes")]
    Crowded,
    #[error("the configuration requires RDMA, which failed: {0}")]
    Rdma(String),
}

impl From<tcp::SetupError> for NoLink {
    fn from(error: tcp::SetupError) -> Self {
        let tcp::SetupError::Tls(cause) = &error else { return Self::Tcp(error) };
        let by_peer = match cause {
            TlsError::AlertReceived(alert) => alert_reason(*alert),
            _ => None,
        };
        let denied = || Denied::from_tls(cause).map(Self::Denied);
        by_peer.map(Self::DeniedByPeer).or_else(denied).unwrap_or(Self::Tcp(error))
    }
}

impl NoLink {
    /// Returns the text of the error without the times in it, which differ each time.
    pub(crate) fn without_time(&self) -> String {
        match self {
            Self::Denied(Denied::Expired { .. }) => "expired".into(),
            Self::Denied(Denied::NotYetValid { .. }) => "not yet valid".into(),
            Self::Denied(Denied::RevocationListExpired { .. }) => "the list has expired".into(),
            error => error.to_string(),
        }
    }

    /// Returns whether the connection was refused because there is a link already or about to be: both nodes have dialled. This needs no
    /// action of the operator.
    pub(crate) fn is_one_too_many(&self) -> bool {
        matches!(
            self,
            Self::Greeting(GreetingFault::Refused { refusal: GreetingRefusal::Duplicate, .. })
                | Self::Refused(GreetingRefusal::Duplicate)
                | Self::RefusedNode { refusal: GreetingRefusal::Duplicate, .. }
        )
    }
}

impl LinkMaker {
    pub(crate) fn start(host: &Arc<NodeHost>, options: LinkOptions) -> Result<Self, NodeError> {
        let system = |errno: Errno| NodeError::System { what: "an eventfd", errno };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let plaintext =
            if options.plaintext { tcp::Plaintext::IUnderstand } else { tcp::Plaintext::LoopbackOnly };
        let LinkOptions { busy_poll, socket_buffer, .. } = options;
        let tcp_options = tcp::Options {
            tls: host.trust.as_ref().map(Trust::tls),
            tls_by: options.tls_by,
            plaintext,
            busy_poll: Duration::from_micros(busy_poll.micros.into()),
            busy_poll_packets: Some(busy_poll.packets).filter(|packets| *packets != 0),
            prefer_busy_poll: busy_poll.prefer,
            socket_buffer,
            ..tcp::Options::default()
        };
        let credentials =
            if host.trust.is_some() { sources::Credentials::Required } else { sources::Credentials::NotUsed };
        let shared = Arc::new(Shared {
            host: Arc::clone(host),
            stop: EventFd::from_flags(flags).map_err(system)?,
            places: Arc::default(),
            attempts: Attempts::new(host),
            sources: Sources::new(&options.peers, credentials),
            lifelines: Mutex::default(),
            tcp: tcp_options,
            devices: rdma::Devices::new(options.rdma, options.rdma_soft),
            rdma: options.rdma,
        });
        // These handles keep the slots of configured peers, also while the peers are down.
        let kept: Vec<_> = options.peers.iter().filter_map(|peer| host.session(peer.node)).collect();
        let dialled: Vec<_> =
            options.peers.iter().filter(|peer| !peer.addresses.is_empty()).map(|peer| peer.node).collect();
        if options.connect != Connect::Always {
            let is_dialled = |session: &&Arc<NodeSession>| dialled.contains(&session.peer());
            kept.iter().filter(is_dialled).for_each(|session| session.set_on_demand());
        }
        let mut maker =
            Self { shared, tcp_listeners: Vec::new(), listening: Vec::new(), dialled, threads: Vec::new() };
        for address in options.listen {
            maker.listen(address)?;
        }
        let shared = Arc::clone(&maker.shared);
        maker.spawn("pronto-links", move || {
            shared.run_links(&options.peers);
            drop(kept);
        })?;
        Ok(maker)
    }

    /// Returns the addresses at which the node listens, with the ports that the system chose.
    pub(crate) fn listening(&self) -> &[Address] {
        &self.listening
    }

    /// Returns whether the node was configured with an address of this peer.
    pub(crate) fn dials(&self, peer: NodeId) -> bool {
        self.dialled.contains(&peer)
    }

    fn listen(&mut self, address: Address) -> Result<(), NodeError> {
        let shared = Arc::clone(&self.shared);
        match &address {
            Address::Shm(path) => {
                let listener = shm::Listener::bind_for(path, self.shared.sources.visitors())
                    .map_err(|cause| NodeError::ListenShm { address: address.clone(), cause })?;
                self.spawn("pronto-listen-shm", move || shared.accept_shm(&listener))?;
                self.listening.push(address);
            }
            Address::Tcp(socket) => {
                let failed = |cause| NodeError::ListenTcp { address: address.clone(), cause };
                let listener =
                    Arc::new(tcp::Listener::bind(socket, self.shared.tcp.clone()).map_err(failed)?);
                self.listening.push(Address::Tcp(listener.local_addr().map_err(failed)?));
                self.tcp_listeners.push(Arc::clone(&listener));
                self.shared.host.refusals.watch(&listener);
                self.spawn("pronto-listen-tcp", move || shared.accept_tcp(&listener))?;
            }
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        self.threads
            .push(thread.map_err(|error| NodeError::System { what: "a thread", errno: errno(error) })?);
        Ok(())
    }

    /// Ends all threads.
    pub(crate) fn stop(&mut self) {
        let _full = self.shared.stop.write(1);
        for listener in &self.tcp_listeners {
            listener.close();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a links thread panicked");
            }
        }
    }
}

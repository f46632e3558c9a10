//! The other ends of connections: the places from which peers connect, and the identities that they prove. Without authentication the place is
//! all that distinguishes a peer from a stranger with its id.
//!
//! # Invariants
//! 1. A connection with an identity is of a node that this identity may be, wherever it comes from.
//! 2. Without an identity, a configured peer connects over TCP only from its networks: the hosts of its addresses, and those in its `from`.
//! 3. If the node has credentials, only visitors, and peers that have an address or a user there, connect over shared memory.
//! 4. A peer whose user is configured connects over shared memory from that user's processes only, and no other peer from those of another
//!    user.
//! 5. While a link works, a greeting without an identity replaces it only if it comes from the place to which the link leads, or from a
//!    configured peer.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::unistd::geteuid;
use pronto_fabric_shm::Visitors;
use pronto_wire::NodeId;

use super::PeerOptions;
use super::places::Node;
use crate::config::address::Address;
use crate::status::admin::FIRST_VISITOR;
use crate::trust::Proved;

/// The place of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A process of the same user on this host, over shared memory.
    SameUser,
    /// A process of this other user on this host, over shared memory.
    OtherUser(u32),
    /// A host.
    Host(IpAddr),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameUser => f.write_str("the same user"),
            Self::OtherUser(user) => write!(f, "user {user}"),
            Self::Host(host) => host.fmt(f),
        }
    }
}

impl Origin {
    /// Returns the place of the other end of a connection over shared memory.
    pub(crate) fn of_user(user: u32) -> Self {
        if user == geteuid().as_raw() { Self::SameUser } else { Self::OtherUser(user) }
    }

    /// Returns a place that stands for all from which one stranger can connect.
    pub(super) fn crowd(self) -> Self {
        match self {
            Self::Host(host) if host.is_loopback() => Self::Host(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Self::Host(IpAddr::V6(host)) => {
                Self::Host(Ipv6Addr::from_bits(host.to_bits() >> 64 << 64).into())
            }
            other => other,
        }
    }

    /// Returns the place of the other end of a TCP connection.
    pub(crate) const fn tcp(address: IpAddr) -> Self {
        Self::Host(address.to_canonical())
    }
}

/// The other end of a connection, before its greeting.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) origin: Origin,
    /// The identity that it has proved, if the connection is encrypted.
    pub(super) proved: Option<Proved>,
}

impl Remote {
    /// Returns an end that is known by its place only.
    pub(super) const fn at(origin: Origin) -> Self {
        Self { origin, proved: None }
    }
}

/// Whether peers over TCP need credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    Required,
    NotUsed,
}

#[derive(Debug)]
pub(super) struct Sources {
    /// The networks of each configured peer.
    permitted: HashMap<NodeId, Vec<IpNet>>,
    /// The users of the configured peers that are of a user.
    users: HashMap<NodeId, u32>,
    /// The nodes that may connect over shared memory, if not all may.
    local: Option<HashSet<NodeId>>,
    /// The place to which the last link of each peer led.
    linked: Mutex<HashMap<NodeId, Origin>>,
}

impl Sources {
    pub(super) fn new(peers: &[PeerOptions], credentials: Credentials) -> Self {
        let permitted = peers.iter().map(|peer| (peer.node, networks(peer))).collect();
        let is_local = |address: &Address| matches!(address, Address::Shm(_));
        let local = peers.iter().filter(|peer| peer.addresses.iter().any(is_local)).map(|peer| peer.node);
        let local = (credentials == Credentials::Required).then(|| local.collect());
        let users = peers.iter().filter_map(|peer| Some((peer.node, peer.user?))).collect();
        Self { permitted, users, local, linked: Mutex::default() }
    }

    /// Returns whether a connection may be of this node. Without an identity, nodes that are not configured may connect from anywhere.
    pub(super) fn permits(&self, node: NodeId, remote: &Remote) -> bool {
        if let Some(proved) = &remote.proved {
            return proved.identity.may_be(node);
        }
        let origin = remote.origin;
        if let (Some(user), Origin::SameUser | Origin::OtherUser(_)) = (self.users.get(&node), origin) {
            return origin == Origin::of_user(*user);
        }
        if let (Some(local), Origin::SameUser) = (&self.local, origin) {
            return node >= FIRST_VISITOR || local.contains(&node);
        }
        match (self.permitted.get(&node), origin) {
            (_, Origin::OtherUser(_)) => false,
            (None, _) | (_, Origin::SameUser) => true,
            (Some(networks), Origin::Host(host)) => networks.iter().any(|network| network.contains(&host)),
        }
    }

    /// Returns whether a greeting may replace the working link of its node. A stranger may have read the id of the session on the network, where
    /// it is not encrypted. A configured peer has other addresses of its own.
    pub(super) fn may_replace(&self, node: NodeId, remote: &Remote) -> bool {
        remote.proved.is_some()
            || self.kind(node, remote) == Node::Configured
            || self.is_last(node, remote.origin)
    }

    /// Returns whether any configured peer may connect from there.
    pub(super) fn expects(&self, origin: Origin) -> bool {
        let networks = || self.permitted.values().flatten();
        match origin {
            Origin::SameUser => true,
            Origin::OtherUser(user) => self.users.values().any(|known| *known == user),
            Origin::Host(host) => networks().any(|network| network.contains(&host)),
        }
    }

    /// Returns whether a node is configured or not. One that has proved its identity is as good as configured, but not a visitor: any identity
    /// has all their ids.
    pub(super) fn kind(&self, node: NodeId, remote: &Remote) -> Node {
        if remote.proved.is_some() && node < FIRST_VISITOR || self.permitted.contains_key(&node) {
            Node::Configured
        } else {
            Node::Stranger
        }
    }

    /// Returns the user of a peer, if it is configured.
    pub(super) fn user_of(&self, peer: NodeId) -> Option<u32> {
        self.users.get(&peer).copied()
    }

    /// Returns whether peers of other users may connect over shared memory.
    pub(super) fn visitors(&self) -> Visitors {
        let is_other = |user: &u32| Origin::of_user(*user) != Origin::SameUser;
        if self.users.values().any(is_other) { Visitors::OfAllUsers } else { Visitors::OfThisUser }
    }

    /// Records the place to which a peer's link leads.
    pub(super) fn linked(&self, peer: NodeId, origin: Origin) {
        self.lock().insert(peer, origin);
    }

    /// Returns whether the last link of a peer led there.
    fn is_last(&self, peer: NodeId, origin: Origin) -> bool {
        self.lock().get(&peer) == Some(&origin)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Origin>> {
        self.linked.lock().expect("no holder panics")
    }
}

/// Returns the networks from which a peer connects. A peer with a loopback address connects from any of them.
fn networks(peer: &PeerOptions) -> Vec<IpNet> {
    let hosts = peer.addresses.iter().flat_map(|address| match address {
        Address::Tcp(socket) if socket.ip().to_canonical().is_loopback() => LOOPBACK.to_vec(),
        Address::Tcp(socket) => vec![IpNet::from(socket.ip().to_canonical())],
        Address::Shm(_) => Vec::new(),
    });
    hosts.chain(peer.from.iter().copied()).collect()
}

/// The addresses of this host that lead back to it.
const LOOPBACK: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Origin {
        Origin::tcp(address.parse().unwrap())
    }

    fn sources(addresses: &[&str], from: &[&str]) -> Sources {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let from = from.iter().map(|network| network.parse().unwrap()).collect();
        Sources::new(&[PeerOptions { node: NodeId(2), addresses, from, user: None }], Credentials::NotUsed)
    }

    /// Shows: operations.trust-shm
    #[test]
    fn with_credentials_only_peers_with_an_address_there_connect_over_shared_memory() {
        let peer = |node, address: &str| PeerOptions {
            node: NodeId(node),
            addresses: vec![address.parse().unwrap()],
            from: Vec::new(),
            user: None,
        };
        let sources =
            Sources::new(&[peer(2, "shm:@two"), peer(3, "tcp:10.0.0.3:7000")], Credentials::Required);
        let permits = |node| sources.permits(NodeId(node), &Remote::at(Origin::SameUser));
        assert!(permits(2) && permits(FIRST_VISITOR.0));
        assert!(!permits(3), "node 3 has a certificate, which a process of this host need not have");
        assert!(!permits(4), "neither has a node without a [[peer]]");
    }

    /// Shows: operations.from
    #[test]
    fn a_configured_peer_connects_from_the_hosts_of_its_addresses_and_from_its_networks() {
        let by_address = sources(&["tcp:10.0.0.2:7000", "tcp:[fd00::2]:7000"], &[]);
        let here = sources(&["tcp:127.0.0.1:7000"], &[]);
        let by_socket = sources(&["shm:/run/2.sock"], &[]);
        let by_network = sources(&["tcp:10.0.0.2:7000"], &["10.1.0.0/16", "10.2.0.9/32"]);
        for (sources, from, permitted) in [
            (&by_address, "10.0.0.2", true),
            (&by_address, "::ffff:10.0.0.2", true),
            (&by_address, "fd00::2", true),
            (&by_address, "10.0.0.3", false),
            (&by_address, "127.0.0.1", false),
            (&here, "127.0.0.1", true),
            (&here, "::1", true),
            (&here, "10.0.0.2", false),
            (&by_network, "10.1.200.7", true),
            (&by_network, "10.2.0.9", true),
            (&by_network, "10.0.0.2", true),
            (&by_network, "10.2.0.8", false),
            (&by_socket, "127.0.0.1", false),
        ] {
            assert_eq!(sources.permits(NodeId(2), &Remote::at(origin(from))), permitted, "{from}");
            assert!(sources.permits(NodeId(3), &Remote::at(origin(from))), "node 3 is not configured");
        }
        assert!(by_network.permits(NodeId(2), &Remote::at(Origin::SameUser)));
        assert!(!by_network.permits(NodeId(2), &Remote::at(Origin::OtherUser(7))));
        assert!(!by_network.permits(NodeId(3), &Remote::at(Origin::OtherUser(7))), "no peer is of that user");
    }

    /// Shows: operations.peer-user
    #[test]
    fn a_peer_of_a_user_connects_over_shared_memory_from_its_processes_alone() {
        let peer =
            |node, user| PeerOptions { node: NodeId(node), addresses: Vec::new(), from: Vec::new(), user };
        let own = geteuid().as_raw();
        let other = own + 1;
        let sources = |credentials| {
            Sources::new(&[peer(2, Some(other)), peer(3, Some(own)), peer(4, None)], credentials)
        };
        for sources in [sources(Credentials::NotUsed), sources(Credentials::Required)] {
            let permits = |node, origin| sources.permits(NodeId(node), &Remote::at(origin));
            assert!(permits(2, Origin::OtherUser(other)) && permits(3, Origin::SameUser));
            assert!(!permits(2, Origin::SameUser), "processes of this user are not node 2");
            assert!(!permits(3, Origin::OtherUser(other)) && !permits(4, Origin::OtherUser(other)));
            assert!(!permits(FIRST_VISITOR.0, Origin::OtherUser(other)), "visitors are of this user");
            assert!(
                !permits(2, Origin::OtherUser(other + 1)) && !sources.expects(Origin::OtherUser(other + 1))
            );
            assert!(sources.expects(Origin::OtherUser(other)) && sources.user_of(NodeId(2)) == Some(other));
            assert_eq!(sources.visitors(), Visitors::OfAllUsers);
        }
        let none = Sources::new(&[peer(3, Some(own)), peer(4, None)], Credentials::NotUsed);
        assert_eq!(none.visitors(), Visitors::OfThisUser);
    }

    #[test]
    fn the_place_of_the_last_link_is_known() {
        let sources = sources(&[], &[]);
        let (here, there) = (origin("127.0.0.1"), origin("10.0.0.2"));
        assert!(!sources.is_last(NodeId(2), here));
        sources.linked(NodeId(2), here);
        assert!(sources.is_last(NodeId(2), here) && !sources.is_last(NodeId(2), there));
        sources.linked(NodeId(2), Origin::SameUser);
        assert!(sources.is_last(NodeId(2), Origin::SameUser) && !sources.is_last(NodeId(2), here));
    }
}

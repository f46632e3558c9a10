//! The network interfaces that carry a node's messages: those with the addresses at which it listens, and those through which it
//! reaches its peers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::net::UdpSocket;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// Returns the names of these interfaces, sorted and without duplicates, including the loopback interface.
pub(crate) fn carrying(
    listen: impl Iterator<Item = SocketAddr>,
    peers: impl Iterator<Item = SocketAddr>,
) -> Vec<String> {
    let ours: Vec<_> = listen.map(|address| address.ip()).chain(peers.filter_map(towards)).collect();
    // The unspecified address belongs to no interface, so listening at all addresses selects none.
    let is_ours = |address: &IpAddr| ours.iter().any(|of| of.to_canonical() == address.to_canonical());
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let with_ours =
        all.filter(|interface| interface.address.as_ref().and_then(ip).as_ref().is_some_and(is_ours));
    let mut names: Vec<_> = with_ours.map(|interface| interface.interface_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns this host's address on the route to a peer. The kernel looks it up when a datagram socket is connected, and sends nothing.
fn towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_local_messages() {
        let here: SocketAddr = ([127, 0, 0, 1], 7001).into();
        let none = || core::iter::empty();
        assert_eq!(carrying([here].into_iter(), none()), ["lo"]);
        assert_eq!(carrying(none(), [here].into_iter()), ["lo"]);
        assert_eq!(carrying([here].into_iter(), [here].into_iter()), ["lo"]);
        let any: SocketAddr = ([0, 0, 0, 0], 7001).into();
        assert!(carrying([any].into_iter(), none()).is_empty());
    }
}

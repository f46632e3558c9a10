//! Two nodes of the lab in one process. Each has a device of its own, and their messages cross the network between
//! them.

use core::net::IpAddr;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use pronto_core::fabric::ConnectionLimits;
use pronto_fabric_verbs::{Device, Link, Offer};

/// Returns the nodes' addresses, which lab-nodes has written as lines of NAMESPACE DEVICE ADDRESS GID-INDEX.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let nodes = std::fs::read_to_string("/run/lab/nodes").unwrap();
    nodes.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

/// The two devices of the lab.
pub(crate) struct Devices(pub(crate) [Device; 2]);

impl Devices {
    pub(crate) fn open() -> Self {
        let addresses = addresses();
        Self([0, 1].map(|node: usize| Device::for_address(addresses[node]).unwrap()))
    }

    /// Creates a link between them, tested in both directions. `limits` are those of the first end.
    pub(crate) fn link(&self, limits: ConnectionLimits) -> [Link; 2] {
        let [near, far] = &self.0;
        let a = Offer::new(near, [limits; 2]).unwrap();
        let b = Offer::new(far, [limits.mirrored(); 2]).unwrap();
        let (of_a, of_b) = (a.bytes(), b.bytes());
        let sockets = [(); 2].map(|()| UnixStream::pair().unwrap());
        let [(a1, b1), (a2, b2)] = sockets.map(|(one, two)| (OwnedFd::from(one), OwnedFd::from(two)));
        let mut a = a.connect(&of_b).unwrap();
        let mut b = b.connect(&of_a).unwrap();
        for (link, sockets) in [(&mut a, [a1, a2]), (&mut b, [b1, b2])] {
            link.reaches(Duration::from_secs(10)).unwrap();
            link.attach(sockets).unwrap();
        }
        [a, b]
    }
}

//! Two nodes on one host, for the conformance suite of the fabric seam.
#![allow(dead_code, reason = "each test uses a part")]

use core::net::SocketAddr;
use core::time::Duration;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Arc, mpsc};
use std::thread;

use nix::sys::socket::{Shutdown, shutdown};
use pronto_conformance::{Capability, Harness, Pair};
use pronto_core::Class;
use pronto_core::fabric::{ConnectionLimits, HeapMemory, Region};
use pronto_fabric_tcp::{Handshake, Link, Listener, Options, ReceivePool, TcpQueuePair, Tls, TlsBy};

use crate::certificates::World;

const PATIENCE: Duration = Duration::from_secs(10);
/// Receive buffers of each node: two full windows of the longest messages that the suite sends.
const BUDGET: usize = 2 * 16 * (128 << 10);

/// Two nodes on one host.
struct Nodes {
    class: Class,
    options: [Options; 2],
    addr: SocketAddr,
    accepted: mpsc::Receiver<Handshake>,
    pools: [Arc<ReceivePool>; 2],
}

impl Nodes {
    fn new(class: Class, options: [Options; 2]) -> Self {
        let listener = Listener::bind("127.0.0.1:0", options[1].clone()).unwrap();
        let addr = listener.local_addr().unwrap();
        let (accepted_by, accepted) = mpsc::channel();
        thread::spawn(move || {
            while let Ok(incoming) = listener.accept() {
                if let Some(handshake) = incoming.begin(PATIENCE).unwrap() {
                    accepted_by.send(handshake).unwrap();
                }
            }
        });
        let pools = [(); 2].map(|()| ReceivePool::new(BUDGET).unwrap());
        Self { class, options, addr, accepted, pools }
    }

    fn of_class(&self, link: Link) -> TcpQueuePair {
        match self.class {
            Class::Control => link.control,
            Class::Bulk => link.bulk,
        }
    }
}

impl Harness for Nodes {
    type Qp = TcpQueuePair;
    /// The socket number of end `a`: another descriptor would keep the connection up after the end is dropped.
    type Link = RawFd;

    fn name(&self) -> &'static str {
        "tcp"
    }

    fn pair(&self, limits: ConnectionLimits) -> Pair<TcpQueuePair, RawFd> {
        let dialler = Handshake::dial(self.addr, PATIENCE, self.options[0].clone()).unwrap();
        let acceptor = self.accepted.recv_timeout(PATIENCE).unwrap();
        let (a, b) = thread::scope(|threads| {
            let [near, far] = &self.pools;
            let far = threads.spawn(move || acceptor.establish([limits.mirrored(); 2], far).unwrap());
            (dialler.establish([limits; 2], near).unwrap(), far.join().unwrap())
        });
        let (a, b) = (self.of_class(a), self.of_class(b));
        let by_kernel = self.options[0].tls.is_some() && self.options[0].tls_by == TlsBy::Kernel;
        assert_eq!([&a, &b].map(TcpQueuePair::is_encrypted_by_kernel), [by_kernel; 2]);
        let link = a.as_fd().as_raw_fd();
        Pair { a, b, link }
    }

    fn region(&self, len: usize) -> Region {
        Region::new(Arc::new(HeapMemory::new(len)))
    }

    fn break_link(&self, link: &mut RawFd) -> bool {
        shutdown(*link, Shutdown::Both).is_ok()
    }
}

pub(crate) fn conforms(class: Class, options: [Options; 2]) {
    let summary = pronto_conformance::run(&Nodes::new(class, options));
    summary.announce();
    summary.assert_complete(&[
        Capability::PassiveTarget,
        Capability::PollsWithoutSyscalls,
        Capability::VisibleWhenPosted,
        Capability::NearChannel,
    ]);
}

/// Runs the suite for each class with TLS.
pub(crate) fn conforms_with_tls(by: TlsBy) {
    let world = World::new();
    let options = [1, 2].map(|node| {
        let credentials = world.node(node);
        let tls = Arc::new(Tls::new(credentials.client(), credentials.server()));
        Options { tls: Some(tls), tls_by: by, ..Options::default() }
    });
    for class in Class::ALL {
        conforms(class, options.clone());
    }
}

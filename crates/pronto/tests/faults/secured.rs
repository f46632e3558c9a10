//! Nodes with certificates or keys in files, for the tests of TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pronto::credentials::authority::{Authority, CERTIFICATE, REVOKED, Request, new_key, save_key};
use pronto::credentials::rustls::crypto::ring;
use pronto::credentials::rustls::time_provider::TimeProvider;
use pronto::credentials::{Credentials, Name, PublicKey, Source, Timestamp, UnixTime};
use pronto::{Builder, Node, NodeId, Peer, WaitPolicy};
use pronto_fabric_tcp::{Options, Tls};
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::rig::{TIMEOUT, server};

const DAY: u64 = 24 * 60 * 60;

/// An authority in a folder, which is removed in the end.
pub(crate) struct Authorized {
    pub(crate) folder: PathBuf,
}

impl Authorized {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pronto-faults-tls-{}-{number}", std::process::id()));
        Authority::create("example.org", now(), 30).unwrap().save(&folder).unwrap();
        Self { folder }
    }

    fn authority(&self) -> Authority {
        Authority::load(&self.folder).unwrap()
    }

    /// Returns the credentials of a node. Each call issues new ones.
    pub(crate) fn node(&self, node: u16) -> Source {
        self.issue(Name::Node(NodeId(node)), &[], (now().0 - DAY, now().0 + DAY))
    }

    /// Returns credentials with this name and these roles, valid from one time to another.
    pub(crate) fn issue(&self, name: Name, roles: &[&str], (from, to): (u64, u64)) -> Source {
        let roles = roles.iter().map(|role| (*role).into()).collect();
        let request = Request { name, roles, not_before: Timestamp(from), not_after: Timestamp(to) };
        let issued = self.authority().issue(&request).unwrap();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = self.folder.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        let files = issued.save(&folder).unwrap();
        Source::Certificates {
            certificate: files.certificate,
            key: files.key,
            authorities: self.folder.join(CERTIFICATE),
            revoked: Some(self.folder.join(REVOKED)),
        }
    }

    /// Issues the credentials of a node into the folder, from where [`stored`] returns them.
    pub(crate) fn store(&self, node: u16) {
        let request = Request::for_days(Name::Node(NodeId(node)), Vec::new(), now(), 1);
        self.authority().issue(&request).unwrap().save(&self.folder).unwrap();
    }

    /// Revokes the certificate of these credentials.
    pub(crate) fn revoke(&self, source: &Source) {
        use pronto::credentials::CertificateDer;
        use pronto::credentials::rustls::pki_types::pem::PemObject as _;
        let Source::Certificates { certificate, .. } = source else { panic!("{source:?}") };
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        let mut authority = self.authority();
        authority.revoke(&certificate, now()).unwrap();
        authority.save_revoked(&self.folder).unwrap();
    }

    /// Returns a key pair: the file of the private key, and the public key.
    pub(crate) fn key(&self, name: &str) -> (PathBuf, PublicKey) {
        let (private, public) = new_key().unwrap();
        let path = self.folder.join(name);
        save_key(&path, &private).unwrap();
        (path, public)
    }
}

impl Drop for Authorized {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the credentials of a node that are in the folder of an authority.
pub(crate) fn stored(folder: &Path, node: u16) -> Source {
    Source::Certificates {
        certificate: folder.join(format!("node-{node}.pem")),
        key: folder.join(format!("node-{node}.key")),
        authorities: folder.join(CERTIFICATE),
        revoked: Some(folder.join(REVOKED)),
    }
}

/// Returns the present time of the calendar.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "certificates are valid in the calendar")]
    let now = SystemTime::now();
    Timestamp(now.duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// A clock that stands still.
#[derive(Debug)]
struct Still(Timestamp);

impl TimeProvider for Still {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(self.0.0)))
    }
}

/// Returns the options of a peer without a node, whose clock shows this time.
pub(crate) fn options_at(source: &Source, node: u16, time: Timestamp) -> Options {
    let provider = Arc::new(ring::default_provider());
    let loaded = Credentials::load_at(source, NodeId(node), Arc::new(Still(time)), provider).unwrap();
    Options { tls: Some(Arc::new(Tls::new(loaded.client(), loaded.server()))), ..Options::default() }
}

/// Starts node 1 with these credentials; returns it and its address.
pub(crate) fn secured(source: Source) -> (Node, String) {
    start(server(1, "tcp:127.0.0.1:0").trust(source))
}

pub(crate) fn start(builder: Builder) -> (Node, String) {
    let node = builder.start().unwrap();
    let address = node.listening()[0].to_string();
    (node, address)
}

/// Returns the builder of a node that dials node 1.
pub(crate) fn dialling(id: u16, address: &str) -> Builder {
    Node::builder(id).wait(WaitPolicy::Block).peer(1, address)
}

/// Starts a node that calls node 1 with these credentials.
pub(crate) fn caller(id: u16, address: &str, source: Source) -> (Node, Peer) {
    let node = dialling(id, address).trust(source).start().unwrap();
    let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
    (node, peer)
}

/// Returns why a node has not reached node 1.
pub(crate) fn failure(node: &Node) -> String {
    let reason = || {
        let status = node.status();
        status.peers.iter().find(|peer| peer.node == NodeId(1)).and_then(|peer| peer.last_failure.clone())
    };
    crate::rig::until("a failed attempt", || reason().is_some());
    reason().unwrap()
}

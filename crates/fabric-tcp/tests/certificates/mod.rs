//! Nodes with certificates of one authority.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_trust::authority::{Authority, Request};
use pronto_trust::rustls::crypto::{CryptoProvider, ring};
use pronto_trust::rustls::time_provider::DefaultTimeProvider;
use pronto_trust::rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};
use pronto_trust::{Credentials, Name, Source, Timestamp};
use pronto_wire::NodeId;

/// An authority, in a folder that is removed in the end.
pub(crate) struct World {
    folder: PathBuf,
    authority: Authority,
}

impl World {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pronto-tcp-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let authority = Authority::create("example.org", now(), 30).unwrap();
        authority.save(&folder).unwrap();
        Self { folder, authority }
    }

    /// Returns a node with a certificate of this authority.
    pub(crate) fn node(&self, node: u16) -> Credentials {
        self.made(node, self, ring::default_provider())
    }

    /// Returns a node that trusts another authority than that of its certificate.
    pub(crate) fn node_that_trusts(&self, node: u16, other: &Self) -> Credentials {
        self.made(node, other, ring::default_provider())
    }

    /// Returns a node whose keys encrypt at most `records` records.
    pub(crate) fn node_with_limit(&self, node: u16, records: u64) -> Credentials {
        let mut provider = ring::default_provider();
        let limited = |suite: &SupportedCipherSuite| {
            let SupportedCipherSuite::Tls13(suite) = suite;
            let Tls13CipherSuite { common, hkdf_provider, aead_alg, quic } = suite;
            let CipherSuiteCommon { suite, hash_provider, .. } = *common;
            let common = CipherSuiteCommon { suite, hash_provider, confidentiality_limit: records };
            let limited =
                Tls13CipherSuite { common, hkdf_provider: *hkdf_provider, aead_alg: *aead_alg, quic: *quic };
            SupportedCipherSuite::Tls13(kept(limited))
        };
        provider.cipher_suites = provider.cipher_suites.iter().map(limited).collect();
        self.made(node, self, provider)
    }

    fn made(&self, node: u16, trusts: &Self, provider: CryptoProvider) -> Credentials {
        let name = Name::Node(NodeId(node));
        let issued = self.authority.issue(&Request::for_days(name, Vec::new(), now(), 10)).unwrap();
        let folder = self.folder.join(format!("{node}"));
        std::fs::create_dir_all(&folder).unwrap();
        let files = issued.save(&folder).unwrap();
        let authorities = folder.join("authorities.pem");
        let both = [self.authority.certificate_pem(), trusts.authority.certificate_pem()].concat();
        std::fs::write(&authorities, both).unwrap();
        let source = Source::Certificates {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            authorities,
            revoked: None,
        };
        let clock = Arc::new(DefaultTimeProvider);
        Credentials::load_at(&source, NodeId(node), clock, Arc::new(provider)).unwrap()
    }
}

/// Returns a cipher suite for as long as the process runs, as the library asks for.
fn kept(suite: Tls13CipherSuite) -> &'static Tls13CipherSuite {
    // A sanitizer reports memory that nothing refers to.
    static KEPT: Mutex<Vec<&'static Tls13CipherSuite>> = Mutex::new(Vec::new());
    let suite = Box::leak(Box::new(suite));
    KEPT.lock().unwrap().push(suite);
    suite
}

impl Drop for World {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "certificates are valid in the calendar")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(now.as_secs())
}

//! Credentials for tests: an authority, certificates right and wrong, clocks, and handshakes in memory.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronto_trust::authority::{Authority, CERTIFICATE, Issued, KEY, REVOKED, Request};
use pronto_trust::rustls::crypto::ring::default_provider;
use pronto_trust::rustls::pki_types::pem::PemObject as _;
use pronto_trust::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use pronto_trust::rustls::sign::{CertifiedKey, SingleCertAndKey};
use pronto_trust::rustls::time_provider::TimeProvider;
use pronto_trust::rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error as TlsError, ServerConfig, ServerConnection,
};
use pronto_trust::{Credentials, Denied, Name, Source, Timestamp, TrustError, UnixTime, server_name};
use pronto_wire::id::NodeId;
use rcgen::{CertificateParams, Issuer, KeyPair};

/// Time of all tests.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000);

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct Clock(pub Timestamp);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.0)))
    }
}

/// A temporary folder with an authority.
pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) authority: Authority,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a new, empty folder.
pub(crate) fn folder() -> PathBuf {
    new_folder(&std::env::temp_dir(), &format!("pronto-trust-{}", std::process::id()))
}

/// Makes the first of the folders `NAME-0`, `NAME-1`, ... that does not exist.
fn new_folder(inside: &Path, name: &str) -> PathBuf {
    (0..10_000)
        .map(|number| inside.join(format!("{name}-{number}")))
        .find(|folder| fs::create_dir(folder).is_ok())
        .expect("the folder is writable")
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = folder();
        let authority = Authority::create("example.org", NOW, 1_000).expect("a valid domain");
        authority.save(&folder).expect("the folder is empty");
        Self { folder, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Issues a certificate for 100 days.
    pub(crate) fn issue(&self, name: Name, roles: &[&str]) -> Issued {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        self.authority.issue(&Request::for_days(name, roles, NOW, 100)).expect("a valid request")
    }

    /// Issues and stores a certificate, and returns it as a source.
    pub(crate) fn source(&self, name: Name) -> Source {
        self.stored(&self.issue(name, &[]))
    }

    /// Stores a certificate in a folder of its own.
    pub(crate) fn stored(&self, issued: &Issued) -> Source {
        let files = issued.save(&new_folder(&self.folder, "files")).expect("the folder is empty");
        Source::Certificates {
            certificate: files.certificate,
            key: files.key,
            authorities: self.path(CERTIFICATE),
            revoked: Some(self.path(REVOKED)),
        }
    }

    /// Signs a certificate with any content, and returns it as a source.
    pub(crate) fn odd(&self, params: &CertificateParams) -> Source {
        let key = fs::read_to_string(self.path(KEY)).expect("stored");
        let key = KeyPair::from_pem(&key).expect("a key");
        let issuer = Issuer::from_ca_cert_pem(self.authority.certificate_pem(), key).expect("an authority");
        let own = KeyPair::generate().expect("random numbers");
        let certificate = params.signed_by(&own, &issuer).expect("valid parameters");
        self.stored(&issued(certificate.pem(), &own))
    }
}

/// Returns a certificate under the file name of node 2.
pub(crate) fn issued(certificate_pem: String, key: &KeyPair) -> Issued {
    Issued { name: Name::Node(NodeId(2)), certificate_pem, key_pem: key.serialize_pem() }
}

pub(crate) fn load(source: &Source, node: u16) -> Result<Credentials, TrustError> {
    load_at(source, node, NOW)
}

pub(crate) fn load_at(source: &Source, node: u16, now: Timestamp) -> Result<Credentials, TrustError> {
    Credentials::load_at(source, NodeId(node), Arc::new(Clock(now)), Arc::new(default_provider()))
}

/// Replaces a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).expect("the folder is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}

/// Results of a handshake on both sides.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) client: Result<(), TlsError>,
    pub(crate) server: Result<(), TlsError>,
}

impl Ends {
    /// Returns the alert that the client has received.
    pub(crate) fn client_alert(&self) -> AlertDescription {
        alert(&self.client)
    }

    /// Returns the alert that the server has received.
    pub(crate) fn server_alert(&self) -> AlertDescription {
        alert(&self.server)
    }

    /// Returns why the client rejects the server.
    pub(crate) fn client_reason(&self) -> Denied {
        reason(&self.client)
    }

    /// Returns why the server rejects the client.
    pub(crate) fn server_reason(&self) -> Denied {
        reason(&self.server)
    }
}

fn alert(end: &Result<(), TlsError>) -> AlertDescription {
    match end {
        Err(TlsError::AlertReceived(alert)) => *alert,
        other => panic!("no alert: {other:?}"),
    }
}

fn reason(end: &Result<(), TlsError>) -> Denied {
    let error = end.as_ref().expect_err("the peer is rejected");
    Denied::from_tls(error).unwrap_or_else(|| panic!("no reason: {error:?}"))
}

/// Configurations of a node.
pub(crate) struct Configs {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl From<&Credentials> for Configs {
    fn from(credentials: &Credentials) -> Self {
        Self { client: credentials.client(), server: credentials.server() }
    }
}

impl Configs {
    /// Returns configurations that check peers as `checks` does, but present a certificate that a node would not load itself.
    pub(crate) fn presenting(checks: &Credentials, source: &Source) -> Self {
        let Source::Certificates { certificate, key, .. } = source else { panic!("certificates") };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).expect("stored").collect();
        let key = PrivateKeyDer::from_pem_file(key).expect("stored");
        let key = CertifiedKey::from_der(chain.expect("stored"), key, &default_provider());
        let key = Arc::new(SingleCertAndKey::from(key.expect("they match")));
        let (mut client, mut server) = ((*checks.client()).clone(), (*checks.server()).clone());
        client.client_auth_cert_resolver = key.clone();
        server.cert_resolver = key;
        Self { client: Arc::new(client), server: Arc::new(server) }
    }
}

/// Both ends of a connection in memory.
pub(crate) struct Pair {
    pub(crate) client: ClientConnection,
    pub(crate) server: ServerConnection,
}

impl Pair {
    pub(crate) fn new(client: impl Into<Configs>, server: impl Into<Configs>) -> Self {
        let (client, server) = (client.into().client, server.into().server);
        Self {
            client: ClientConnection::new(client, server_name()).expect("a valid configuration"),
            server: ServerConnection::new(server).expect("a valid configuration"),
        }
    }

    /// Carries bytes until neither side has any, and returns both ends. Each end is the first error of that side.
    pub(crate) fn run(&mut self) -> Ends {
        let mut ends = Ends { client: Ok(()), server: Ok(()) };
        while self.client.wants_write() || self.server.wants_write() {
            let mut bytes = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut bytes).expect("memory");
            }
            deliver(&bytes, &mut ends.server, |mut bytes| {
                while !bytes.is_empty() {
                    self.server.read_tls(&mut bytes).expect("memory");
                    self.server.process_new_packets()?;
                }
                Ok(())
            });
            let mut bytes = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut bytes).expect("memory");
            }
            deliver(&bytes, &mut ends.client, |mut bytes| {
                while !bytes.is_empty() {
                    self.client.read_tls(&mut bytes).expect("memory");
                    self.client.process_new_packets()?;
                }
                Ok(())
            });
        }
        ends
    }
}

fn deliver(bytes: &[u8], end: &mut Result<(), TlsError>, read: impl FnOnce(&[u8]) -> Result<(), TlsError>) {
    if end.is_ok() {
        *end = read(bytes);
    }
}

/// Runs a handshake.
pub(crate) fn handshake(client: impl Into<Configs>, server: impl Into<Configs>) -> Ends {
    Pair::new(client, server).run()
}

impl From<&Self> for Configs {
    fn from(configs: &Self) -> Self {
        Self { client: configs.client.clone(), server: configs.server.clone() }
    }
}

/// Checks that `good` rejects `bad` in both roles, and returns the reasons. `bad` receives this alert.
pub(crate) fn rejected(good: &Credentials, bad: &Configs, alert: AlertDescription) -> [Denied; 2] {
    let ends = handshake(bad, good);
    assert_eq!(ends.client_alert(), alert);
    let by_server = ends.server_reason();
    let ends = handshake(good, bad);
    assert_eq!(ends.server_alert(), alert);
    [by_server, ends.client_reason()]
}

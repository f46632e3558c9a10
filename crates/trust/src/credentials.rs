//! Credentials of a node: loading them, and the TLS configurations that use them.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronto_wire::id::NodeId;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use crate::certificates::{CertificateVerifier, Side};
use crate::denied::Denied;
use crate::error::TrustError;
use crate::files;
use crate::identity::{Identity, Name};
use crate::inspect;
use crate::pins::PinVerifier;
use crate::public_key::PublicKey;

/// Application protocol of all connections (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"pronto/1";

/// Returns the server name for `rustls::ClientConnection::new`, which requires one. It is neither sent nor checked: the names of nodes
/// are in their certificates.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("pronto.invalid").expect("a valid DNS name")
}

/// Files and keys that credentials are loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Certificates that an authority has signed.
    Certificates {
        /// File of this node's certificate, followed by those of authorities between it and one in `authorities`.
        certificate: PathBuf,
        /// File of its private key.
        key: PathBuf,
        /// File of the certificates of the authorities that this node trusts.
        authorities: PathBuf,
        /// File of the revocation lists of these authorities. If there is one, each authority that issued a certificate of a chain must
        /// have a list in it that has not expired.
        revoked: Option<PathBuf>,
    },
    /// Raw public keys (RFC 7250), of which this node knows each.
    Keys {
        /// File of this node's private key.
        key: PathBuf,
        /// Keys of the peers. A node may have two, while its key is exchanged for a new one.
        peers: Vec<(NodeId, PublicKey)>,
    },
}

/// Credentials of one node, and its rules for those of peers. Immutable: to change them, load new ones.
pub struct Credentials {
    identity: Identity,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    verifier: Verifier,
    clock: Arc<dyn TimeProvider>,
}

/// The verifier of the TLS configurations, for checks without a connection.
#[derive(Debug)]
enum Verifier {
    Certificates(Arc<CertificateVerifier>),
    Pins(Arc<PinVerifier>),
}

impl Credentials {
    /// Loads the credentials of `node`, with the system's clock and ring's cryptography. A visitor that uses the credentials of a node
    /// gives the id of that node, and one that uses those of an operator gives its own.
    ///
    /// # Errors
    /// A file cannot be used, or this node itself would not accept its own certificate.
    pub fn load(source: &Source, node: NodeId) -> Result<Self, TrustError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self::load_at(source, node, Arc::new(DefaultTimeProvider), provider)
    }

    /// Loads the credentials of `node`, with the given clock and cryptography. For tests, which need other times and other limits of
    /// ciphers; see [`Credentials::load`].
    ///
    /// # Errors
    /// As [`Credentials::load`].
    pub fn load_at(
        source: &Source,
        node: NodeId,
        clock: Arc<dyn TimeProvider>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TrustError> {
        match source {
            Source::Certificates { certificate, key, authorities, revoked } => {
                let key = load_key(key, certificate, &provider)?;
                let now = clock.current_time().ok_or(TrustError::NoClock)?;
                let mut verifier = CertificateVerifier {
                    authorities: trust_anchors(authorities)?,
                    revoked: revocation_lists(revoked.as_deref())?,
                    domain: String::new(),
                    algorithms: provider.signature_verification_algorithms,
                };
                let own = |reason: Denied| TrustError::Own {
                    path: certificate.clone(),
                    reason: reason.with_issuer(&key.cert),
                };
                let (identity, domain) = check_own(&verifier, &key.cert, now).map_err(own)?;
                if !identity.may_be(node) {
                    let (path, found) = (certificate.clone(), identity.name);
                    return Err(TrustError::OtherNode { path, found, node });
                }
                verifier.domain = domain;
                let (key, verifier) = (Arc::new(SingleCertAndKey::from(key)), Arc::new(verifier));
                let client = client(&clock, &provider, verifier.clone(), key.clone())?;
                let server = server(&clock, &provider, verifier.clone(), key)?;
                Ok(Self { identity, client, server, verifier: Verifier::Certificates(verifier), clock })
            }
            Source::Keys { key, peers } => {
                let (key, public) = load_raw_key(key, &provider)?;
                let keys = peers.iter().cloned().chain([(node, public)]);
                let verifier = Arc::new(PinVerifier::new(keys, provider.signature_verification_algorithms)?);
                let identity = Identity { name: Name::Node(node), roles: Vec::new(), not_after: None };
                let resolver = AlwaysResolvesClientRawPublicKeys::new(key.clone());
                let client = client(&clock, &provider, verifier.clone(), Arc::new(resolver))?;
                let resolver = AlwaysResolvesServerRawPublicKeys::new(key);
                let server = server(&clock, &provider, verifier.clone(), Arc::new(resolver))?;
                Ok(Self { identity, client, server, verifier: Verifier::Pins(verifier), clock })
            }
        }
    }

    /// Returns the configuration of connections that this node opens.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// Returns the configuration of connections that this node accepts.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// Returns this node's own identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Checks the certificates or the key of a peer, as `rustls::CommonState::peer_certificates` returns them, at the present time, and
    /// returns its identity. For use after the handshake, and after these credentials have replaced others, for peers with open
    /// connections.
    ///
    /// # Errors
    /// This node does not accept the peer, or does no longer.
    pub fn identify(&self, chain: &[CertificateDer<'_>]) -> Result<Identity, Denied> {
        match &self.verifier {
            Verifier::Certificates(verifier) => {
                let now = self.clock.current_time().ok_or(Denied::NoClock)?;
                verifier.identify(chain, now, Side::Either).map_err(|reason| reason.with_issuer(chain))
            }
            Verifier::Pins(verifier) => verifier.identify(chain),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Checks this node's own certificate. One of a node must be usable on both sides of a connection, one of an operator as client.
fn check_own(
    verifier: &CertificateVerifier,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(Identity, String), Denied> {
    let (identity, domain) = verifier.identify_any_domain(chain, now, Side::Client)?;
    if matches!(identity.name, Name::Node(_)) {
        verifier.identify_any_domain(chain, now, Side::Server)?;
    }
    Ok((identity, domain))
}

fn load_key(key: &Path, certificate: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TrustError> {
    let chain = files::certificates(certificate)?;
    let certified = CertifiedKey::new(chain, signing_key(key, provider)?);
    certified
        .keys_match()
        .map_err(|_| TrustError::KeyMismatch { key: key.to_owned(), certificate: certificate.to_owned() })?;
    Ok(certified)
}

fn load_raw_key(
    path: &Path,
    provider: &CryptoProvider,
) -> Result<(Arc<CertifiedKey>, PublicKey), TrustError> {
    let key = signing_key(path, provider)?;
    let public =
        public_key_of(&*key).map_err(|cause| TrustError::KeyKind { path: path.to_owned(), cause })?;
    let raw = CertificateDer::from(public.der().to_vec());
    Ok((Arc::new(CertifiedKey::new(vec![raw], key)), public))
}

fn signing_key(path: &Path, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, TrustError> {
    usable_key(path, files::private_key(path)?, provider)
}

fn usable_key(
    path: &Path,
    key: PrivatePkcs8KeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, TrustError> {
    let usable = provider.key_provider.load_private_key(key.into());
    usable.map_err(|cause| TrustError::Key { path: path.to_owned(), cause })
}

/// Returns the public key of a private one.
pub(crate) fn public_key(path: &Path, key: PrivatePkcs8KeyDer<'static>) -> Result<PublicKey, TrustError> {
    let key = usable_key(path, key, &rustls::crypto::ring::default_provider())?;
    public_key_of(&*key).map_err(|cause| TrustError::KeyKind { path: path.to_owned(), cause })
}

fn public_key_of(key: &dyn SigningKey) -> Result<PublicKey, crate::PublicKeyError> {
    let der = key.public_key().ok_or(crate::PublicKeyError::Kind)?;
    PublicKey::from_der(der.as_ref())
}

fn trust_anchors(path: &Path) -> Result<Arc<[TrustAnchor<'static>]>, TrustError> {
    let malformed =
        |cause| TrustError::Malformed { path: path.to_owned(), kind: "authority certificate", cause };
    let certificates = files::certificates(path)?;
    let anchor = |der| webpki::anchor_from_trusted_cert(der).map(|anchor| anchor.to_owned());
    certificates.iter().map(anchor).collect::<Result<_, _>>().map_err(malformed)
}

fn revocation_lists(path: Option<&Path>) -> Result<Arc<[CertRevocationList<'static>]>, TrustError> {
    let Some(path) = path else { return Ok(Arc::new([])) };
    let malformed = |cause| TrustError::Malformed { path: path.to_owned(), kind: "revocation list", cause };
    let list = |der: &[u8]| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from);
    let lists = files::revocation_lists(path)?;
    let lists: Arc<[_]> = lists.iter().map(|der| list(der)).collect::<Result<_, _>>().map_err(malformed)?;
    match lists
        .iter()
        .enumerate()
        .find(|(index, list)| lists[..*index].iter().any(|other| overlap(list, other)))
    {
        Some((_, list)) => {
            let issuer = inspect::distinguished_name(list.issuer()).unwrap_or_default();
            Err(TrustError::SeveralLists { path: path.to_owned(), issuer })
        }
        None => Ok(lists),
    }
}

/// Returns whether two lists may be about the same certificates. The check of a peer would use the first of them and ignore the other.
fn overlap(one: &CertRevocationList<'_>, other: &CertRevocationList<'_>) -> bool {
    // An authority may divide its list into parts, each with a distribution point of its own (RFC 5280, section 5.2.5).
    let parts = [one, other].map(CertRevocationList::issuing_distribution_point);
    one.issuer() == other.issuer() && (parts[0] == parts[1] || parts.contains(&None))
}

fn client(
    clock: &Arc<dyn TimeProvider>,
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    key: Arc<dyn ResolvesClientCert>,
) -> Result<Arc<ClientConfig>, TrustError> {
    let mut config = ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(TrustError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(key);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    // The kernel gets the keys, where it encrypts.
    config.enable_secret_extraction = true;
    config.enable_sni = false;
    Ok(Arc::new(config))
}

fn server(
    clock: &Arc<dyn TimeProvider>,
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    key: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<ServerConfig>, TrustError> {
    let mut config = ServerConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(TrustError::Tls)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(key);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

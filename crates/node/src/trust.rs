//! The node's credentials, and the identities of peers that are linked by them. A reload replaces the credentials, and ends the links of
//! peers that this node no longer trusts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use pronto_core::session::Evidence;
use pronto_fabric_tcp as tcp;
use pronto_trust::{CertificateDer, Credentials, Denied, Identity, Source, TrustError};
use pronto_wire::NodeId;

/// Remaining time of this node's certificate from which on the log warns of its end, seconds. It is checked at the start and at reloads.
const WARN_BEFORE: u64 = 30 * DAY;
const DAY: u64 = 24 * 60 * 60;

/// The identity that a connection has proved.
#[derive(Clone, Debug)]
pub(crate) struct Proved {
    pub(crate) identity: Identity,
    /// The certificates, or the raw public key, by which it was proved.
    chain: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
pub(crate) struct Trust {
    source: Source,
    node: NodeId,
    credentials: RwLock<Arc<Credentials>>,
    tls: Arc<tcp::Tls>,
    /// The proof of the last link of each peer.
    linked: Mutex<BTreeMap<NodeId, Proved>>,
}

impl Trust {
    /// Reads the credentials of a node.
    pub(crate) fn load(source: Source, node: NodeId) -> Result<Self, TrustError> {
        let credentials = Arc::new(Credentials::load(&source, node)?);
        warn_of_end(credentials.identity());
        let tls = Arc::new(tcp::Tls::new(credentials.client(), credentials.server()));
        Ok(Self { source, node, credentials: RwLock::new(credentials), tls, linked: Mutex::default() })
    }

    /// Returns the TLS configurations, which follow later reloads.
    pub(crate) fn tls(&self) -> Arc<tcp::Tls> {
        Arc::clone(&self.tls)
    }

    fn credentials(&self) -> Arc<Credentials> {
        Arc::clone(&self.credentials.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the identity of the other side of an encrypted connection.
    pub(crate) fn identify(&self, chain: &[CertificateDer<'static>]) -> Result<Proved, Denied> {
        let identity = self.credentials().identify(chain)?;
        Ok(Proved { identity, chain: chain.to_vec() })
    }

    /// Returns the kind of evidence that these credentials are.
    pub(crate) const fn evidence(&self) -> Evidence {
        match self.source {
            Source::Certificates { .. } => Evidence::Certificate,
            Source::Keys { .. } => Evidence::Key,
        }
    }

    /// Returns whether peers can have roles.
    pub(crate) const fn has_roles(&self) -> bool {
        matches!(self.source, Source::Certificates { .. })
    }

    /// Records the proof of a peer's link, which is installed. Fails if a reload has revoked it since.
    pub(crate) fn link(&self, peer: NodeId, proved: &Proved) -> Result<(), Denied> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        self.credentials().identify(&proved.chain)?;
        linked.insert(peer, proved.clone());
        Ok(())
    }

    /// Reads the credentials again. Returns the peers that this node no longer trusts, whose links have to end. If the credentials are wrong, the
    /// present ones stay.
    pub(crate) fn reload(&self) -> Result<Vec<(NodeId, Denied)>, TrustError> {
        let credentials = Arc::new(Credentials::load(&self.source, self.node)?);
        warn_of_end(credentials.identity());
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        self.tls.replace(credentials.client(), credentials.server());
        *self.credentials.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&credentials);
        let mut denied = Vec::new();
        linked.retain(|peer, proved| match credentials.identify(&proved.chain) {
            Ok(_) => true,
            Err(reason) => {
                denied.push((*peer, reason));
                false
            }
        });
        Ok(denied)
    }

    /// Returns the state of the credentials for operators.
    pub(crate) fn describe(&self) -> String {
        let credentials = self.credentials();
        let identity = credentials.identity();
        let what = match self.source {
            Source::Certificates { .. } => "certificates",
            Source::Keys { .. } => "keys",
        };
        match identity.not_after {
            Some(end) => format!("TLS with {what}: {identity}, {} days left", days_left(end.0)),
            None => format!("TLS with {what}: {identity}"),
        }
    }
}

fn days_left(end: u64) -> u64 {
    end.saturating_sub(now()) / DAY
}

fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "certificates end at a time of the calendar")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Warns if the certificate of this node ends soon.
fn warn_of_end(identity: &Identity) {
    if let Some(end) = identity.not_after.filter(|end| end.0.saturating_sub(now()) < WARN_BEFORE) {
        tracing::warn!(
            days = days_left(end.0),
            "the certificate of this node ends soon: issue a new one, replace the files, and reload (SIGHUP)"
        );
    }
}

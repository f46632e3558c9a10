//! The node's credentials, and the identities of peers that are linked by them. A reload replaces the credentials, and ends the links of
//! peers that this node no longer trusts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use pronto_core::Nanos;
use pronto_core::session::Evidence;
use pronto_fabric_tcp as tcp;
use pronto_trust::{CertificateDer, Credentials, Denied, Identity, Source, TrustError};
use pronto_wire::NodeId;

/// Remaining time of this node's certificate from which on the log warns of its end, seconds. It is checked at the start, at reloads, and once
/// a day.
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
    node: NodeId,
    current: RwLock<Current>,
    tls: Arc<tcp::Tls>,
    kind: Kind,
    /// Time of the next look at the end of the certificate.
    due: Mutex<Nanos>,
    /// The proof of the last link of each peer.
    linked: Mutex<BTreeMap<NodeId, Proved>>,
}

/// The credentials in use, and where they came from.
#[derive(Clone, Debug)]
struct Current {
    source: Source,
    credentials: Arc<Credentials>,
}

/// The kind of credentials, which stays as it is while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificates,
    Keys,
}

impl Kind {
    /// Returns the kind of the credentials of a source.
    pub(crate) const fn of(source: &Source) -> Self {
        match source {
            Source::Certificates { .. } => Self::Certificates,
            Source::Keys { .. } => Self::Keys,
        }
    }
}

impl Trust {
    /// Reads the credentials of a node.
    pub(crate) fn load(source: Source, node: NodeId) -> Result<Self, TrustError> {
        let credentials = Arc::new(Credentials::load(&source, node)?);
        warn(&source, credentials.identity());
        let tls = Arc::new(tcp::Tls::new(credentials.client(), credentials.server()));
        let kind = Kind::of(&source);
        let current = RwLock::new(Current { source, credentials });
        Ok(Self { node, current, tls, kind, due: Mutex::default(), linked: Mutex::default() })
    }

    /// Returns the TLS configurations, which follow later reloads.
    pub(crate) fn tls(&self) -> Arc<tcp::Tls> {
        Arc::clone(&self.tls)
    }

    fn credentials(&self) -> Arc<Credentials> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).credentials)
    }

    /// Returns the identity of the other side of an encrypted connection.
    pub(crate) fn identify(&self, chain: &[CertificateDer<'static>]) -> Result<Proved, Denied> {
        let identity = self.credentials().identify(chain)?;
        Ok(Proved { identity, chain: chain.to_vec() })
    }

    /// Returns the kind of evidence that these credentials are.
    pub(crate) const fn evidence(&self) -> Evidence {
        match self.kind {
            Kind::Certificates => Evidence::Certificate,
            Kind::Keys => Evidence::Key,
        }
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Records the proof of a peer's link, which is about to be installed.
    pub(crate) fn linked(&self, peer: NodeId, proved: &Proved) {
        self.lock().insert(peer, proved.clone());
    }

    /// Checks the proof of a link that was installed, as a reload may have come between. A later reload finds the link itself.
    pub(crate) fn check(&self, peer: NodeId, proved: &Proved) -> Result<(), Denied> {
        let mut linked = self.lock();
        self.credentials().identify(&proved.chain).map(drop).inspect_err(|_| drop(linked.remove(&peer)))
    }

    /// Forgets the proof of a peer that has gone.
    pub(crate) fn forget(&self, peer: NodeId) {
        self.lock().remove(&peer);
    }

    /// Returns whether the last link of a peer was that of the same name.
    pub(crate) fn is_of(&self, peer: NodeId, proved: Option<&Proved>) -> bool {
        let linked = self.lock();
        linked.get(&peer).map(|linked| &linked.identity.name) == proved.map(|proved| &proved.identity.name)
    }

    /// Returns the identity that a peer has proved for its last link.
    pub(crate) fn identity(&self, peer: NodeId) -> Option<Identity> {
        self.lock().get(&peer).map(|proved| proved.identity.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Proved>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the credentials again, from `source` if there is one. Returns the peers that the node trusts no longer, whose links have to end.
    /// If the credentials are wrong, the present ones stay.
    pub(crate) fn reload(&self, source: Option<Source>) -> Result<Vec<(NodeId, Denied)>, TrustError> {
        let present = || self.current.read().unwrap_or_else(PoisonError::into_inner).source.clone();
        let source = source.unwrap_or_else(present);
        // Taken before the files are read: of two reloads, the later one has the later files.
        let mut linked = self.lock();
        let credentials = Arc::new(Credentials::load(&source, self.node)?);
        warn(&source, credentials.identity());
        self.tls.replace(credentials.client(), credentials.server());
        let current = Current { source, credentials: Arc::clone(&credentials) };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
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

    /// Warns of the end of this node's certificate, if a day has passed since it was checked last. Returns the time of the next check.
    pub(crate) fn check_daily(&self, now: Nanos) -> Nanos {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *due {
            // The first check was that of the start.
            if *due != Nanos::ZERO {
                warn_of_end(self.credentials().identity());
            }
            *due = now + Nanos::from_secs(DAY);
        }
        *due
    }

    /// Returns the state of the credentials for operators.
    pub(crate) fn describe(&self) -> String {
        let credentials = self.credentials();
        let identity = credentials.identity();
        let what = match self.kind {
            Kind::Certificates => "certificates",
            Kind::Keys => "keys",
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

/// Warns if the certificate of this node ends soon, and if no certificate can be revoked.
fn warn(source: &Source, identity: &Identity) {
    warn_of_end(identity);
    if matches!(source, Source::Certificates { revoked: None, .. }) {
        tracing::warn!("[trust] has no `revoked`: revoked certificates are accepted");
    }
}

/// Warns if the certificate of this node ends soon.
fn warn_of_end(identity: &Identity) {
    if let Some(end) = identity.not_after.filter(|end| end.0.saturating_sub(now()) < WARN_BEFORE) {
        tracing::warn!(
            %end,
            "the certificate of this node ends soon: issue a new one, replace the files, and reload (SIGHUP)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_of_a_certificate_is_counted_in_whole_days() {
        // The half day is more than this test takes.
        assert_eq!(days_left(now() + 40 * DAY + DAY / 2), 40);
        assert_eq!(days_left(now() - DAY), 0, "the certificate has ended");
    }
}

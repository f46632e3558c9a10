//! Certificates of the two nodes of an experiment, signed by an authority that exists for one run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use pronto::NodeId;
use pronto::credentials::{Name, Source, Timestamp};
use pronto_trust::authority::{Authority, CERTIFICATE, REVOKED, Request};

/// An authority and the certificates of its nodes, in a temporary folder. The folder is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes an authority, and certificates for these nodes.
    pub(crate) fn create(nodes: &[u16]) -> anyhow::Result<Self> {
        let made = Self { folder: env::temp_dir().join(format!("pronto-bench-tls-{}", std::process::id())) };
        let now = now()?;
        let authority = Authority::create(DOMAIN, now, DAYS + 1).context("making an authority")?;
        authority.save(&made.folder).context("storing an authority")?;
        for node in nodes {
            let request = Request::for_days(Name::Node(NodeId(*node)), Vec::new(), now, DAYS);
            let issued = authority.issue(&request).context("issuing a certificate")?;
            issued.save(&made.folder).context("storing a certificate")?;
        }
        Ok(made)
    }

    /// Returns the folder of the files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // The measurement is over, whether the folder can be removed or not.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the credentials of a node from the files in a folder of [`Certificates`].
pub(crate) fn source(folder: &Path, node: u16) -> Source {
    Source::Certificates {
        certificate: folder.join(format!("node-{node}.pem")),
        key: folder.join(format!("node-{node}.key")),
        authorities: folder.join(CERTIFICATE),
        revoked: Some(folder.join(REVOKED)),
    }
}

/// Returns the present time of the calendar.
fn now() -> anyhow::Result<Timestamp> {
    #[expect(clippy::disallowed_methods, reason = "certificates are valid in the calendar")]
    let now = SystemTime::now();
    Ok(Timestamp(now.duration_since(UNIX_EPOCH).context("the calendar is before 1970")?.as_secs()))
}

/// Domain of the names in the certificates.
const DOMAIN: &str = "bench.example.org";
/// Days for which the certificates are valid. A run takes minutes.
const DAYS: u32 = 1;

#[cfg(test)]
mod tests {
    use pronto::credentials::Credentials;

    use super::*;

    #[test]
    fn the_files_are_those_of_their_nodes_and_are_removed() {
        let made = Certificates::create(&[1, 2]).unwrap();
        let folder = made.folder().to_owned();
        for node in [1, 2] {
            let loaded = Credentials::load(&source(&folder, node), NodeId(node)).unwrap();
            assert_eq!(loaded.identity().name, Name::Node(NodeId(node)));
        }
        assert!(Credentials::load(&source(&folder, 1), NodeId(2)).is_err());
        drop(made);
        assert!(!folder.exists());
    }
}

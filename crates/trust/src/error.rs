//! Errors in the credentials of this node.

use std::path::PathBuf;

use pronto_wire::id::NodeId;
use thiserror::Error;

use crate::denied::Denied;
use crate::identity::Name;
use crate::public_key::{PublicKey, PublicKeyError};

/// Reason why credentials cannot be used: a fault in a file or in the configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: std::io::Error,
    },
    /// A file is too long to be one of ours.
    #[error("{} has more than {limit} bytes: is it the right file?", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Maximum length.
        limit: u64,
    },
    /// Other users may read or write the file of a private key.
    #[error("other users may access the private key {} (mode {mode:03o}): run `chmod 600 {}`", path.display(), path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file contains no section of the expected kind.
    #[error("{} contains no {expected}: it must have a section `-----BEGIN {label}-----`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Kind of content, human-readable.
        expected: &'static str,
        /// Label of a PEM section.
        label: &'static str,
    },
    /// A private key is in an older format.
    #[error("the private key in {} is not in the format PKCS#8: convert it with `openssl pkcs8 -topk8 -nodes`", path.display())]
    KeyFormat {
        /// The file.
        path: PathBuf,
    },
    /// A PEM section of a file is malformed.
    #[error("{}: {cause}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The fault.
        cause: rustls_pki_types::pem::Error,
    },
    /// A private key cannot be used.
    #[error("the private key in {} cannot be used: {cause}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault.
        cause: rustls::Error,
    },
    /// The public half of a key cannot be used as a pinned key.
    #[error("{}: {cause}", path.display())]
    KeyKind {
        /// The file of the private key.
        path: PathBuf,
        /// The fault.
        cause: PublicKeyError,
    },
    /// A certificate and a key do not belong together.
    #[error("the private key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// File of the key.
        key: PathBuf,
        /// File of the certificate.
        certificate: PathBuf,
    },
    /// A certificate or a revocation list is malformed.
    #[error("{}: malformed {kind}: {cause}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Kind of content, human-readable.
        kind: &'static str,
        /// The fault.
        cause: webpki::Error,
    },
    /// A file has two revocation lists of one authority.
    #[error("{} has two lists of the authority {issuer:?}: keep only the newest list of each authority", path.display())]
    SeveralLists {
        /// The file.
        path: PathBuf,
        /// Distinguished name of the authority.
        issuer: String,
    },
    /// This node itself does not accept its certificate.
    #[error("{}: {reason}", path.display())]
    Own {
        /// File of the certificate.
        path: PathBuf,
        /// The reason.
        reason: Denied,
    },
    /// The certificate names another node.
    #[error("the certificate in {} is of {found}, but this is node {node}", path.display())]
    OtherNode {
        /// File of the certificate.
        path: PathBuf,
        /// Name in the certificate.
        found: Name,
        /// Id of this node.
        node: NodeId,
    },
    /// Two nodes have the same key.
    #[error("nodes {} and {} have the same key {key}: make one key for each node with `pronto trust key`", nodes[0], nodes[1])]
    SharedKey {
        /// The two nodes.
        nodes: [NodeId; 2],
        /// The key.
        key: PublicKey,
    },
    /// The clock cannot be read.
    #[error("the clock of this host cannot be read")]
    NoClock,
    /// The cryptography that the caller chose cannot do TLS 1.3.
    #[error("TLS 1.3 is not available: {0}")]
    Tls(rustls::Error),
}

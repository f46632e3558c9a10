//! Errors of a certificate authority.

use std::path::PathBuf;

use pronto_wire::id::NodeId;
use thiserror::Error;

use crate::error::TrustError;
use crate::timestamp::Timestamp;

/// Reason why an authority cannot do what was requested.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The domain is malformed.
    #[error(
        "invalid domain {domain:?}: use up to 255 lower-case letters, digits, dots, hyphens and underscores"
    )]
    Domain {
        /// The domain.
        domain: String,
    },
    /// The name of an operator or a role is malformed.
    #[error("invalid name {word:?}: use up to 64 letters, digits, dots, hyphens and underscores")]
    Word {
        /// The name.
        word: String,
    },
    /// The id is not one of a configured node.
    #[error("a certificate cannot name node {node}: use an id from 1 to 63999")]
    Node {
        /// The id.
        node: NodeId,
    },
    /// A certificate would outlive the authority.
    #[error(
        "the certificate would be valid until {not_after}, but the authority is only until {limit}: use a shorter time"
    )]
    TooLong {
        /// Requested end of the validity.
        not_after: Timestamp,
        /// End of the authority's validity.
        limit: Timestamp,
    },
    /// The validity ends before it begins.
    #[error("the validity from {not_before} to {not_after} is empty")]
    Empty {
        /// Beginning of the validity.
        not_before: Timestamp,
        /// End of the validity.
        not_after: Timestamp,
    },
    /// A certificate cannot contain this time.
    #[error("a certificate cannot contain the time {time}: use a shorter validity")]
    Date {
        /// The time.
        time: Timestamp,
    },
    /// The certificate in the folder is not one of an authority that this program has made, or not that of the key.
    #[error(
        "authority.pem is not the certificate of an authority made by `pronto trust init`, or authority.key is not its key"
    )]
    NotAnAuthority,
    /// The bytes are not a certificate.
    #[error("the certificate is malformed")]
    NotACertificate,
    /// Another authority has issued the certificate.
    #[error("another authority has issued the certificate: {issuer}")]
    OtherIssuer {
        /// Distinguished name of that authority.
        issuer: String,
    },
    /// The certificate is the authority's own.
    #[error(
        "this is the authority's own certificate, which its list cannot revoke: remove it from `authorities` of all nodes"
    )]
    OwnCertificate,
    /// The certificate is in the list already.
    #[error("the certificate with the serial number {serial} is revoked already")]
    AlreadyRevoked {
        /// Serial number, in hexadecimal digits.
        serial: String,
    },
    /// The revocation list in the folder is malformed, or another authority has made it.
    #[error("{} is not a revocation list of this authority", path.display())]
    List {
        /// The file.
        path: PathBuf,
    },
    /// A file exists, and is not replaced.
    #[error("{} exists already: remove it first if it is not needed any more", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file is of another authority.
    #[error(
        "{} is not a copy of a file of this authority, and is not replaced: use another folder, or move it away", path.display()
    )]
    NotACopy {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: std::io::Error,
    },
    /// Another program has changed the revocation list since it was loaded.
    #[error("{} has changed in the meantime: run the command again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] TrustError),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random,
    /// A certificate cannot be made.
    #[error("cannot make the certificate: {0}")]
    Make(#[from] rcgen::Error),
}

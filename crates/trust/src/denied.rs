//! Reasons why a peer is not accepted, and their path through the TLS library.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{AlertDescription, CertificateError, Error as TlsError, OtherError, PeerIncompatible};
use thiserror::Error;

use crate::inspect;
use crate::names::NameFault;
use crate::public_key::PublicKey;
use crate::timestamp::Timestamp;

/// Reason why this node does not accept the certificate or the key of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Denied {
    /// A certificate of the chain has expired.
    #[error(
        "the certificate expired on {not_after}; it is {now} on this host: issue a new one, or correct this clock"
    )]
    Expired {
        /// Time on this host.
        now: Timestamp,
        /// End of the validity.
        not_after: Timestamp,
    },
    /// A certificate of the chain is not yet valid.
    #[error(
        "the certificate is valid from {not_before} on; it is {now} on this host: correct the clock that is wrong"
    )]
    NotYetValid {
        /// Time on this host.
        now: Timestamp,
        /// Beginning of the validity.
        not_before: Timestamp,
    },
    /// A certificate of the chain is in the revocation list.
    #[error("the certificate was revoked")]
    Revoked,
    /// This node has revocation lists, but none of the authority that issued a certificate of the chain.
    #[error("`revoked` has no list of the authority that issued the certificate: add its list to the file")]
    NoRevocationList,
    /// The revocation list has expired.
    #[error(
        "the revocation list in `revoked` expired on {next_update}; it is {now} on this host: get a new list from the authority"
    )]
    RevocationListExpired {
        /// Time on this host.
        now: Timestamp,
        /// Time at which the authority should have made the next list.
        next_update: Timestamp,
    },
    /// No authority of this node has issued the certificate.
    #[error("no authority in `authorities` has issued the certificate")]
    UnknownAuthority,
    /// No authority of this node has issued the certificate, whose issuer is known. An error of a TLS connection cannot contain the issuer,
    /// so that it is [`Denied::UnknownAuthority`] there.
    #[error(
        "no authority in `authorities` has issued the certificate, which names {issuer:?} as its issuer: compare with `pronto trust show`"
    )]
    OtherAuthority {
        /// First characters of the issuer's distinguished name.
        issuer: String,
    },
    /// The certificate is for another purpose.
    #[error(
        "the certificate is not for this purpose: it needs the extended key usages serverAuth and clientAuth"
    )]
    WrongUsage,
    /// The names in the certificate are wrong.
    #[error(transparent)]
    Names(#[from] NameFault),
    /// The certificate is of another domain than this node's.
    #[error("the certificate is of the domain {found}, but this node is of {own}")]
    OtherDomain {
        /// Domain of this node.
        own: String,
        /// Domain in the certificate.
        found: String,
    },
    /// The key is not one of a configured peer.
    #[error("the public key {key} is not the `key` of any [[peer]]")]
    UnknownKey {
        /// The key.
        key: PublicKey,
    },
    /// The key is of a kind that cannot be configured.
    #[error("the public key is neither ed25519 nor p256")]
    UnknownKeyKind,
    /// The peer has sent neither a certificate nor a key.
    #[error("the peer has sent no certificate")]
    NoCertificate,
    /// One side uses certificates, the other one keys.
    #[error("one node uses certificates and the other one keys: set the same [trust] mode on both")]
    OtherMode,
    /// The clock of this host cannot be read.
    #[error("the clock of this host cannot be read")]
    NoClock,
    /// The certificate or the chain has another fault.
    #[error("{}", chain_fault(cause))]
    Chain {
        /// The fault.
        cause: webpki::Error,
    },
}

impl Denied {
    /// Returns the reason in an error of a TLS connection. Returns `None` if the connection did not end because this node rejects the
    /// peer's certificate or key.
    pub fn from_tls(error: &TlsError) -> Option<Self> {
        Some(match error {
            TlsError::InvalidCertificate(error) => match error {
                CertificateError::ExpiredContext { time, not_after } => {
                    Self::Expired { now: (*time).into(), not_after: (*not_after).into() }
                }
                CertificateError::NotValidYetContext { time, not_before } => {
                    Self::NotYetValid { now: (*time).into(), not_before: (*not_before).into() }
                }
                CertificateError::Revoked => Self::Revoked,
                CertificateError::UnknownIssuer => Self::UnknownAuthority,
                CertificateError::InvalidPurpose => Self::WrongUsage,
                CertificateError::Other(OtherError(other)) => other.downcast_ref::<Self>()?.clone(),
                _ => return None,
            },
            TlsError::NoCertificatesPresented => Self::NoCertificate,
            TlsError::PeerIncompatible(PeerIncompatible::IncorrectCertificateTypeExtension) => {
                Self::OtherMode
            }
            TlsError::FailedToGetCurrentTime => Self::NoClock,
            _ => return None,
        })
    }

    /// Returns the error that makes the TLS library send the most specific alert to the peer. [`Denied::from_tls`] is its inverse.
    pub(crate) fn into_tls(self) -> TlsError {
        let time =
            |timestamp: Timestamp| UnixTime::since_unix_epoch(core::time::Duration::from_secs(timestamp.0));
        TlsError::InvalidCertificate(match self {
            Self::Expired { now, not_after } => {
                CertificateError::ExpiredContext { time: time(now), not_after: time(not_after) }
            }
            Self::NotYetValid { now, not_before } => {
                CertificateError::NotValidYetContext { time: time(now), not_before: time(not_before) }
            }
            Self::Revoked => CertificateError::Revoked,
            Self::UnknownAuthority | Self::OtherAuthority { .. } => CertificateError::UnknownIssuer,
            Self::WrongUsage => CertificateError::InvalidPurpose,
            other => CertificateError::Other(OtherError(Arc::new(other))),
        })
    }

    /// Adds the issuer to the reason, if that explains it.
    pub(crate) fn with_issuer(self, chain: &[CertificateDer<'_>]) -> Self {
        match (self, chain.last().and_then(inspect::issuer)) {
            (Self::UnknownAuthority, Some(issuer)) => Self::OtherAuthority { issuer },
            (other, _) => other,
        }
    }

    /// Returns the reason for an error of the check of a chain.
    pub(crate) fn from_chain(error: webpki::Error) -> Self {
        match error {
            webpki::Error::CertExpired { time, not_after } => {
                Self::Expired { now: time.into(), not_after: not_after.into() }
            }
            webpki::Error::CertNotValidYet { time, not_before } => {
                Self::NotYetValid { now: time.into(), not_before: not_before.into() }
            }
            webpki::Error::CertRevoked => Self::Revoked,
            webpki::Error::UnknownRevocationStatus => Self::NoRevocationList,
            webpki::Error::CrlExpired { time, next_update } => {
                Self::RevocationListExpired { now: time.into(), next_update: next_update.into() }
            }
            // An authority with the same name but another key has issued it.
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                Self::UnknownAuthority
            }
            webpki::Error::RequiredEkuNotFoundContext(_) | webpki::Error::EmptyEkuExtension => {
                Self::WrongUsage
            }
            cause => Self::Chain { cause },
        }
    }
}

/// Describes a fault of a certificate or of its chain.
fn chain_fault(cause: &webpki::Error) -> String {
    let common = match cause {
        webpki::Error::CaUsedAsEndEntity => {
            "it is the certificate of an authority, or self-signed: a node needs one that an authority has issued to it"
        }
        webpki::Error::EndEntityUsedAsCa | webpki::Error::PathLenConstraintViolated => {
            "a certificate that is not of an authority has issued it"
        }
        webpki::Error::BadDer | webpki::Error::BadDerTime | webpki::Error::TrailingData(_) => {
            "it is malformed"
        }
        webpki::Error::UnsupportedCertVersion => "it is not of version 3: issue a new one",
        webpki::Error::UnsupportedCriticalExtension => {
            "it has a critical extension that this program does not know"
        }
        webpki::Error::UnsupportedSignatureAlgorithmContext(_)
        | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            "its signature is of a kind that this program does not know: use ECDSA, Ed25519 or RSA keys"
        }
        cause => return format!("the certificate is not acceptable: {cause}"),
    };
    format!("the certificate is not acceptable: {common}")
}

/// Returns what an alert says about this node, if a peer ended the connection with it because of this node's certificate or key.
pub fn alert_reason(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => {
            "the peer finds this node's certificate expired or not yet valid: issue a new one, or compare the clocks"
        }
        AlertDescription::CertificateRevoked => {
            "the peer finds this node's certificate revoked: issue a new one"
        }
        AlertDescription::UnknownCA => {
            "the peer does not know the authority of this node's certificate: compare `authorities` of both nodes"
        }
        AlertDescription::UnsupportedCertificate => {
            "this node's certificate is not for this purpose: it needs the extended key usages serverAuth and clientAuth"
        }
        AlertDescription::CertificateUnknown => {
            "the peer rejects the name in this node's certificate, or this node's key is not in the peer's configuration: the peer's log has the reason"
        }
        AlertDescription::BadCertificate => "the peer finds this node's certificate malformed",
        AlertDescription::CertificateRequired => "the peer has received no certificate of this node",
        AlertDescription::HandshakeFailure => {
            "the peer has no settings in common with this node: compare the [trust] mode of both nodes"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_survive_the_tls_library() {
        let (now, then) = (Timestamp(2), Timestamp(1));
        for reason in [
            Denied::Expired { now, not_after: then },
            Denied::NotYetValid { now, not_before: then },
            Denied::Revoked,
            Denied::NoRevocationList,
            Denied::RevocationListExpired { now, next_update: then },
            Denied::UnknownAuthority,
            Denied::WrongUsage,
            Denied::Names(NameFault::Missing),
            Denied::UnknownKeyKind,
            Denied::Chain { cause: webpki::Error::BadDer },
        ] {
            assert_eq!(Denied::from_tls(&reason.clone().into_tls()), Some(reason));
        }
        assert_eq!(Denied::from_tls(&TlsError::DecryptError), None);
        let other = Denied::OtherAuthority { issuer: "CN=a".to_owned() };
        assert_eq!(Denied::from_tls(&other.into_tls()), Some(Denied::UnknownAuthority));
    }

    #[test]
    fn an_alert_about_a_name_or_a_key_says_so() {
        let text = alert_reason(AlertDescription::CertificateUnknown).expect("known");
        assert!(text.contains("this node's key is not in the peer's configuration"), "{text}");
    }
}

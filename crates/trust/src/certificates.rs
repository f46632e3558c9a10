//! Checks of peers that have certificates: the chain, the time, the revocation, the usage and the names.
//!
//! If there are revocation lists, each certificate of a chain below the authority must be covered by one of them, and the list must not
//! have expired: an unknown status is a reason to reject a peer. Without any list no revocation is checked.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerIncompatible, SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::denied::Denied;
use crate::identity::Identity;
use crate::names::{NameFault, Names};
use crate::timestamp::Timestamp;

/// Checks certificates of peers.
#[derive(Clone, Debug)]
pub(crate) struct CertificateVerifier {
    pub(crate) authorities: Arc<[TrustAnchor<'static>]>,
    pub(crate) revoked: Arc<[CertRevocationList<'static>]>,
    /// Domain of this node. Names of other domains are rejected, because an authority may serve several domains.
    pub(crate) domain: String,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// Side of the peer in its connection to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
    /// Not known: one of the two.
    Either,
}

impl CertificateVerifier {
    /// Checks a chain, which begins with the peer's own certificate, and returns the identity in it.
    pub(crate) fn identify(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
        side: Side,
    ) -> Result<Identity, Denied> {
        let (identity, domain) = self.identify_any_domain(chain, now, side)?;
        if domain != self.domain {
            return Err(Denied::OtherDomain { own: self.domain.clone(), found: domain });
        }
        Ok(identity)
    }

    /// Checks a chain and returns its identity and its domain, which may be any.
    pub(crate) fn identify_any_domain(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
        side: Side,
    ) -> Result<(Identity, String), Denied> {
        let (end_entity, intermediates) = chain.split_first().ok_or(Denied::NoCertificate)?;
        match side {
            Side::Client => self.check_chain(end_entity, intermediates, now, KeyUsage::client_auth()),
            Side::Server => self.check_chain(end_entity, intermediates, now, KeyUsage::server_auth()),
            Side::Either => match self.check_chain(end_entity, intermediates, now, KeyUsage::client_auth()) {
                Err(Denied::WrongUsage) => {
                    self.check_chain(end_entity, intermediates, now, KeyUsage::server_auth())
                }
                result => result,
            },
        }?;
        // An authority has signed what is parsed from here on.
        let (_, certificate) =
            X509Certificate::from_der(end_entity).map_err(|_| Denied::Names(NameFault::Unreadable))?;
        let names = Names::of(&certificate)?;
        let not_after = Some(Timestamp::of(certificate.validity().not_after));
        Ok((Identity { name: names.name, roles: names.roles, not_after }, names.domain))
    }

    fn check_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Denied> {
        let lists: Vec<_> = self.revoked.iter().collect();
        // The builder rejects an empty slice only.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            builder
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        EndEntityCert::try_from(end_entity)
            .and_then(|certificate| {
                certificate
                    .verify_for_usage(
                        self.algorithms.all,
                        &self.authorities,
                        intermediates,
                        now,
                        usage,
                        revocation,
                        None,
                    )
                    .map(|_path| ())
            })
            .map_err(Denied::from_chain)
    }

    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        side: Side,
    ) -> Result<(), TlsError> {
        let chain: Vec<_> = core::iter::once(end_entity).chain(intermediates).cloned().collect();
        self.identify(&chain, now, side).map(|_identity| ()).map_err(Denied::into_tls)
    }
}

/// The error of a TLS 1.2 handshake, which no configuration of this crate permits.
pub(crate) fn no_tls12() -> TlsError {
    TlsError::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig)
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(end_entity, intermediates, now, Side::Server)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for CertificateVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A node has one certificate, so that a list of authorities would not change its choice.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(end_entity, intermediates, now, Side::Client)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

//! Checks of peers that have keys without certificates (raw public keys, RFC 7250): each key must be a configured one.

use std::collections::HashMap;

use pronto_wire::id::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error as TlsError, SignatureScheme};

use crate::certificates::no_tls12;
use crate::denied::Denied;
use crate::error::TrustError;
use crate::identity::{Identity, Name};
use crate::public_key::PublicKey;

/// Checks keys of peers.
#[derive(Clone, Debug)]
pub(crate) struct PinVerifier {
    nodes: HashMap<PublicKey, NodeId>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    /// Returns a verifier that accepts the given keys. A node may have several of them, while its key is exchanged for a new one.
    pub(crate) fn new(
        keys: impl IntoIterator<Item = (NodeId, PublicKey)>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, TrustError> {
        let mut nodes = HashMap::new();
        for (node, key) in keys {
            match nodes.insert(key.clone(), node) {
                Some(other) if other != node => {
                    return Err(TrustError::SharedKey { nodes: [other, node], key });
                }
                _ => {}
            }
        }
        Ok(Self { nodes, algorithms })
    }

    /// Returns the identity of the configured key that `keys`, the peer's list of certificates, consists of.
    pub(crate) fn identify(&self, keys: &[CertificateDer<'_>]) -> Result<Identity, Denied> {
        let der = keys.first().ok_or(Denied::NoCertificate)?;
        let key = PublicKey::from_der(der).map_err(|_| Denied::UnknownKeyKind)?;
        match self.nodes.get(&key) {
            Some(node) => Ok(Identity { name: Name::Node(*node), roles: Vec::new(), not_after: None }),
            None => Err(Denied::UnknownKey { key }),
        }
    }

    fn check(&self, key: &CertificateDer<'_>) -> Result<(), TlsError> {
        self.identify(core::slice::from_ref(key)).map(|_identity| ()).map_err(Denied::into_tls)
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(end_entity)?;
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
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PinVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(end_entity)?;
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
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

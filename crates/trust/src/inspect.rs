//! Descriptions of the content of credential files, for people. Nothing here is verified.

use std::path::Path;

use data_encoding::HEXLOWER;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::X509Name;

use crate::credentials;
use crate::error::TrustError;
use crate::files;
use crate::names::{MAX_QUOTED, NameFault, Names, uris};
use crate::public_key::PublicKey;
use crate::timestamp::Timestamp;
use crate::{Name, PublicKeyError};

/// One part of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Part {
    /// A certificate.
    Certificate(Certificate),
    /// A revocation list.
    RevocationList(RevocationList),
    /// A private key, of which only the public half is shown. `None` if it is neither Ed25519 nor P-256.
    PrivateKey(Option<PublicKey>),
    /// A public key.
    PublicKey(PublicKey),
}

/// Description of a certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Name of the node or the operator, or why there is none.
    pub name: Result<Name, NameFault>,
    /// Roles.
    pub roles: Vec<String>,
    /// All URIs in the certificate.
    pub uris: Vec<String>,
    /// Whether it is the certificate of an authority.
    pub is_authority: bool,
    /// Distinguished name of the subject.
    pub subject: String,
    /// Distinguished name of the authority that issued it.
    pub issuer: String,
    /// Serial number, in hexadecimal digits.
    pub serial: String,
    /// Beginning of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

/// Description of a revocation list.
#[derive(Clone, Debug)]
pub struct RevocationList {
    /// Distinguished name of the authority that made it.
    pub issuer: String,
    /// Time at which it was made.
    pub this_update: Timestamp,
    /// Time at which it expires.
    pub next_update: Option<Timestamp>,
    /// Serial numbers of the revoked certificates, in hexadecimal digits.
    pub revoked: Vec<String>,
}

/// Describes all parts of a file, in their order. A file with the text of a public key is one part.
///
/// # Errors
/// The file cannot be read, other users may read the private key in it, or it contains none of these parts.
pub fn file(path: &Path) -> Result<Vec<Part>, TrustError> {
    let content = files::read(path)?;
    let text = core::str::from_utf8(&content).unwrap_or_default();
    if let Ok(key) = text.parse() {
        return Ok(vec![Part::PublicKey(key)]);
    }
    let mut parts = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&content) {
        let (kind, der) = section.map_err(|cause| TrustError::Pem { path: path.to_owned(), cause })?;
        let malformed =
            |kind| TrustError::Malformed { path: path.to_owned(), kind, cause: webpki::Error::BadDer };
        match kind {
            SectionKind::Certificate => {
                parts.push(Part::Certificate(certificate(&der).ok_or_else(|| malformed("certificate"))?));
            }
            SectionKind::Crl => {
                let list = revocation_list(&der).ok_or_else(|| malformed("revocation list"))?;
                parts.push(Part::RevocationList(list));
            }
            SectionKind::PublicKey => {
                let key = PublicKey::from_der(&der);
                parts.push(Part::PublicKey(key.map_err(|cause| key_kind(path, cause))?));
            }
            SectionKind::PrivateKey => {
                // Complains if other users can read the file.
                files::private(path)?;
                parts.push(Part::PrivateKey(public_half(path, der)?));
            }
            _ => {}
        }
    }
    if parts.is_empty() {
        let (path, expected) = (path.to_owned(), "certificate, key or revocation list");
        return Err(TrustError::Missing { path, expected, label: "CERTIFICATE" });
    }
    Ok(parts)
}

/// Returns the first certificate of a file.
///
/// # Errors
/// The file cannot be read, or contains no certificate.
pub fn first_certificate(path: &Path) -> Result<CertificateDer<'static>, TrustError> {
    Ok(files::certificates(path)?.swap_remove(0))
}

fn key_kind(path: &Path, cause: PublicKeyError) -> TrustError {
    TrustError::KeyKind { path: path.to_owned(), cause }
}

fn public_half(path: &Path, der: Vec<u8>) -> Result<Option<PublicKey>, TrustError> {
    match credentials::public_key(path, PrivatePkcs8KeyDer::from(der)) {
        Ok(key) => Ok(Some(key)),
        Err(TrustError::KeyKind { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn certificate(der: &[u8]) -> Option<Certificate> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let (name, roles) = match Names::of(&parsed) {
        Ok(names) => (Ok(names.name), names.roles),
        Err(fault) => (Err(fault), Vec::new()),
    };
    Some(Certificate {
        name,
        roles,
        uris: uris(&parsed).unwrap_or_default().into_iter().map(printable).collect(),
        is_authority: parsed.is_ca(),
        subject: printable(&parsed.subject().to_string()),
        issuer: printable(&parsed.issuer().to_string()),
        serial: HEXLOWER.encode(parsed.raw_serial()),
        not_before: Timestamp::of(parsed.validity().not_before),
        not_after: Timestamp::of(parsed.validity().not_after),
        fingerprint: sha256(der),
    })
}

fn revocation_list(der: &[u8]) -> Option<RevocationList> {
    let (_, parsed) = CertificateRevocationList::from_der(der).ok()?;
    Some(RevocationList {
        issuer: printable(&parsed.issuer().to_string()),
        this_update: Timestamp::of(parsed.last_update()),
        next_update: parsed.next_update().map(Timestamp::of),
        revoked: parsed
            .iter_revoked_certificates()
            .map(|entry| HEXLOWER.encode(entry.raw_serial()))
            .collect(),
    })
}

/// Returns the distinguished name of the authority that issued a certificate, for errors: bounded, and without control characters.
pub(crate) fn issuer(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(bounded(&parsed.issuer().to_string()))
}

/// Returns the text of a distinguished name without its outermost tag and length, for errors.
pub(crate) fn distinguished_name(content: &[u8]) -> Option<String> {
    let mut der = vec![0x30, 0x82];
    der.extend_from_slice(&u16::try_from(content.len()).ok()?.to_be_bytes());
    der.extend_from_slice(content);
    let (_, name) = X509Name::from_der(&der).ok()?;
    Some(bounded(&name.to_string()))
}

/// Returns the printable beginning of a text.
fn bounded(text: &str) -> String {
    printable(text).chars().take(MAX_QUOTED).collect()
}

/// Returns the text without characters that control a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("a suite of TLS 1.3");
    HEXLOWER.encode(suite.common.hash_provider.hash(bytes).as_ref())
}

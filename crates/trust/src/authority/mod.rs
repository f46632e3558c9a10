//! A private certificate authority: one key that signs the certificates of all nodes and operators of a domain.
//!
//! An authority is a folder with three files. `authority.pem`, its certificate, and `revoked.pem`, the list of revoked certificates, are
//! public: each node needs them. `authority.key` is secret and no node needs it. The list expires together with the authority, so that
//! a node needs a new copy of it only after a revocation. The folder `issued` has a copy of each certificate.

mod delivery;
mod error;
mod folder;

use data_encoding::HEXLOWER;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519, RevokedCertParams, SanType,
    SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

pub use self::delivery::{Delivered, ISSUED};
pub use self::error::AuthorityError;
pub use self::folder::{CERTIFICATE, IssuedFiles, KEY, REVOKED, save_key};
use crate::identity::Name;
use crate::names::{is_domain, is_named_node, is_word, uri_of, uri_of_role};
use crate::public_key::PublicKey;
use crate::timestamp::Timestamp;

/// Seconds by which the validity begins earlier than now, for peers whose clocks are slow. Chosen by us; no source.
const CLOCK_DIFFERENCE: u64 = 60 * 60;
/// Length of serial numbers in bytes, of which 126 bits are random. RFC 5280 permits 20 bytes, section 4.1.2.2.
const SERIAL: usize = 16;

/// A certificate authority, with its private key.
pub struct Authority {
    domain: String,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// Distinguished name of the authority, in DER.
    subject: Vec<u8>,
    not_after: Timestamp,
    revoked: Revoked,
}

/// Content of the revocation list.
#[derive(Clone, Debug, Default)]
struct Revoked {
    /// Number of the list: each list has a greater one than the list before.
    number: u64,
    /// Serial numbers of the certificates, and when each was revoked.
    entries: Vec<(Vec<u8>, Timestamp)>,
    /// The list that is to be stored.
    pem: String,
    /// The list in the folder, if the authority was loaded from one.
    stored: Option<Vec<u8>>,
}

/// Content of a certificate that is to be issued.
#[derive(Clone, Debug)]
pub struct Request {
    /// The node or the operator.
    pub name: Name,
    /// Roles.
    pub roles: Vec<String>,
    /// Beginning of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
}

impl Request {
    /// Returns a request for a certificate that is valid for `days` days from `now` on.
    pub fn for_days(name: Name, roles: Vec<String>, now: Timestamp, days: u32) -> Self {
        Self { name, roles, not_before: earlier(now), not_after: now.plus_days(days) }
    }
}

/// A new certificate and its private key.
#[derive(Clone)]
pub struct Issued {
    /// The node or the operator.
    pub name: Name,
    /// The certificate. No other one is needed between it and the authority's.
    pub certificate_pem: String,
    /// The private key, in the format PKCS#8.
    pub key_pem: String,
}

impl core::fmt::Debug for Issued {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Issued").field("name", &self.name).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Authority {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Authority").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes an authority for a domain, with a new ECDSA P-256 key, which is valid for `days` days. It is stored by
    /// [`Authority::save`].
    ///
    /// # Errors
    /// The domain is malformed, or the time too long.
    pub fn create(domain: &str, now: Timestamp, days: u32) -> Result<Self, AuthorityError> {
        if !is_domain(domain) {
            return Err(AuthorityError::Domain { domain: domain.to_owned() });
        }
        let mut params = CertificateParams::default();
        // Two authorities of one domain have different names, so that a node can tell their certificates and lists apart.
        let unique = HEXLOWER.encode(&random::<4>()?);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, domain);
        params.distinguished_name.push(DnType::CommonName, format!("Pronto authority {unique}"));
        params.subject_alt_names = vec![uri(format!("spiffe://{domain}"))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(serial()?);
        (params.not_before, params.not_after) = validity(earlier(now), now.plus_days(days))?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let mut authority = Self::from_parts(certificate.pem(), certificate.der(), key)?;
        authority.sign_list(now)?;
        Ok(authority)
    }

    /// Returns an authority without a revocation list.
    fn from_parts(
        certificate_pem: String,
        der: &CertificateDer<'_>,
        key: KeyPair,
    ) -> Result<Self, AuthorityError> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|_| AuthorityError::NotAnAuthority)?;
        let uris = crate::names::uris(&parsed).map_err(|_| AuthorityError::NotAnAuthority)?;
        let domain = uris.iter().find_map(|uri| uri.strip_prefix("spiffe://"));
        let domain = domain.filter(|domain| is_domain(domain)).ok_or(AuthorityError::NotAnAuthority)?;
        let public = rcgen::PublicKeyData::subject_public_key_info(&key);
        if !parsed.is_ca() || parsed.public_key().raw != public {
            return Err(AuthorityError::NotAnAuthority);
        }
        Ok(Self {
            domain: domain.to_owned(),
            certificate_pem,
            subject: parsed.subject().as_raw().to_vec(),
            not_after: Timestamp::of(parsed.validity().not_after),
            issuer: Issuer::from_ca_cert_der(der, key)?,
            revoked: Revoked::default(),
        })
    }

    /// Returns the domain of the names in its certificates.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the authority's own certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the list of revoked certificates.
    pub fn revoked_pem(&self) -> &str {
        &self.revoked.pem
    }

    /// Makes a new key and a certificate for it. Both are stored by [`Issued::save`] only.
    ///
    /// # Errors
    /// A name or a role is malformed, or the certificate would be valid longer than the authority.
    pub fn issue(&self, request: &Request) -> Result<Issued, AuthorityError> {
        let params = self.params(request)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let name = request.name.clone();
        Ok(Issued { name, certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    fn params(&self, request: &Request) -> Result<CertificateParams, AuthorityError> {
        match &request.name {
            Name::Node(node) if !is_named_node(*node) => return Err(AuthorityError::Node { node: *node }),
            Name::Operator(word) if !is_word(word) => {
                return Err(AuthorityError::Word { word: word.clone() });
            }
            _ => {}
        }
        if let Some(word) = request.roles.iter().find(|role| !is_word(role)) {
            return Err(AuthorityError::Word { word: word.clone() });
        }
        if request.not_after > self.not_after {
            return Err(AuthorityError::TooLong { not_after: request.not_after, limit: self.not_after });
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, request.name.to_string());
        params.subject_alt_names = vec![uri(uri_of(&self.domain, &request.name))?];
        for role in &request.roles {
            params.subject_alt_names.push(uri(uri_of_role(&self.domain, role))?);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial()?);
        (params.not_before, params.not_after) = validity(request.not_before, request.not_after)?;
        Ok(params)
    }

    /// Adds a certificate to the revocation list. The list is stored by [`Authority::save_revoked`] only.
    ///
    /// # Errors
    /// Another authority has issued the certificate, or it is in the list already.
    pub fn revoke(&mut self, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<(), AuthorityError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| AuthorityError::NotACertificate)?;
        if parsed.issuer().as_raw() != self.subject {
            return Err(AuthorityError::OtherIssuer { issuer: parsed.issuer().to_string() });
        }
        if parsed.subject().as_raw() == self.subject {
            return Err(AuthorityError::OwnCertificate);
        }
        let serial = parsed.raw_serial().to_vec();
        if self.revoked.entries.iter().any(|(revoked, _)| *revoked == serial) {
            return Err(AuthorityError::AlreadyRevoked { serial: HEXLOWER.encode(&serial) });
        }
        self.revoked.entries.push((serial, now));
        self.sign_list(now)
    }

    /// Signs the revocation list anew.
    fn sign_list(&mut self, now: Timestamp) -> Result<(), AuthorityError> {
        let entry = |(serial, time): &(Vec<u8>, Timestamp)| {
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(serial),
                revocation_time: date(*time)?,
                reason_code: None,
                invalidity_date: None,
            })
        };
        let number = self.revoked.number + 1;
        let list = CertificateRevocationListParams {
            this_update: date(now)?,
            next_update: date(self.not_after)?,
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: self.revoked.entries.iter().map(entry).collect::<Result<_, AuthorityError>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.revoked.pem = list.signed_by(&self.issuer)?.pem()?;
        self.revoked.number = number;
        Ok(())
    }
}

/// Makes an Ed25519 key for nodes that know each other by their keys. Returns the private key in the format PKCS#8, and the public key.
///
/// # Errors
/// The system has no random numbers.
pub fn new_key() -> Result<(String, PublicKey), AuthorityError> {
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let public = PublicKey::from_der(&rcgen::PublicKeyData::subject_public_key_info(&key));
    Ok((key.serialize_pem(), public.expect("an ed25519 key")))
}

/// Returns a random serial number: positive, and always of the same length.
fn serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = random::<SERIAL>()?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn random<const N: usize>() -> Result<[u8; N], AuthorityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| AuthorityError::Random)?;
    Ok(bytes)
}

fn uri(text: String) -> Result<SanType, AuthorityError> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}

/// Returns the beginning of the validity of a certificate that is made at `now`.
fn earlier(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(CLOCK_DIFFERENCE))
}

fn validity(
    not_before: Timestamp,
    not_after: Timestamp,
) -> Result<(OffsetDateTime, OffsetDateTime), AuthorityError> {
    if not_after <= not_before {
        return Err(AuthorityError::Empty { not_before, not_after });
    }
    Ok((date(not_before)?, date(not_after)?))
}

fn date(time: Timestamp) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(time.0).ok();
    let date = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.ok_or(AuthorityError::Date { time })
}

//! Reading the files of credentials: bounded, and private keys only if no other user can read them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer};

use crate::error::TrustError;

/// Maximum length of a file. A revocation list with 10,000 entries has half a megabyte.
const MAX_FILE: u64 = 4 << 20;
/// Permissions that the file of a private key must not have: any of the group or of others.
const OTHERS: u32 = 0o077;
/// Label of the PEM section of a private key (RFC 7468, section 10).
const PRIVATE_KEY: &str = "PRIVATE KEY";
/// End of the first line of each PEM section with a private key, also of older formats and of encrypted keys.
const ANY_KEY: &[u8] = b"PRIVATE KEY-----";

/// Reads the certificates of a file: at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    sections(path, &read(path)?, "certificate", "CERTIFICATE")
}

/// Reads the revocation lists of a file: at least one.
pub(crate) fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TrustError> {
    sections(path, &read(path)?, "revocation list", "X509 CRL")
}

/// Reads a private key.
pub(crate) fn private_key(path: &Path) -> Result<PrivatePkcs8KeyDer<'static>, TrustError> {
    private_key_in(path, &private(path)?)
}

/// Reads the file of a private key, if no other user can access it. The advice to change the permissions would mislead if the file has no
/// key at all, so that this is the first error.
pub(crate) fn private(path: &Path) -> Result<Vec<u8>, TrustError> {
    let failed = |cause| TrustError::Read { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    // The mode of the open file, which nobody can exchange between this check and the reading.
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    let content = read_open(path, file)?;
    if mode & OTHERS == 0 {
        return Ok(content);
    }
    if !content.windows(ANY_KEY.len()).any(|window| window == ANY_KEY) {
        let path = path.to_owned();
        return Err(TrustError::Missing { path, expected: "private key", label: PRIVATE_KEY });
    }
    Err(TrustError::Permissions { path: path.to_owned(), mode })
}

/// Returns the first private key of a file's content.
pub(crate) fn private_key_in(path: &Path, pem: &[u8]) -> Result<PrivatePkcs8KeyDer<'static>, TrustError> {
    let keys = sections(path, pem, "private key", PRIVATE_KEY).map_err(|error| match error {
        TrustError::Missing { path, .. } if has_older_key(pem) => TrustError::KeyFormat { path },
        error => error,
    });
    Ok(keys?.swap_remove(0))
}

/// Returns whether there is a private key in one of the formats before PKCS#8.
fn has_older_key(pem: &[u8]) -> bool {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
        .flatten()
        .any(|(kind, _)| matches!(kind, SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey))
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    let file = File::open(path).map_err(|cause| TrustError::Read { path: path.to_owned(), cause })?;
    read_open(path, file)
}

fn read_open(path: &Path, file: File) -> Result<Vec<u8>, TrustError> {
    let mut content = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut content)
        .map_err(|cause| TrustError::Read { path: path.to_owned(), cause })?;
    if content.len() as u64 > MAX_FILE {
        return Err(TrustError::TooLong { path: path.to_owned(), limit: MAX_FILE });
    }
    Ok(content)
}

/// Returns all sections of one kind: at least one.
fn sections<T: PemObject>(
    path: &Path,
    pem: &[u8],
    expected: &'static str,
    label: &'static str,
) -> Result<Vec<T>, TrustError> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(pem).collect();
    let found = found.map_err(|cause| TrustError::Pem { path: path.to_owned(), cause })?;
    if found.is_empty() {
        return Err(TrustError::Missing { path: path.to_owned(), expected, label });
    }
    Ok(found)
}

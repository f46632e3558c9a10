//! Files that a node gets from its authority: its certificate and key, and copies of the authority's public files. The authority keeps a
//! copy of each certificate, so that it can be revoked when the node's own file is gone.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::error::AuthorityError;
use super::folder::{PUBLIC, make_folder, write_new};
use super::{Authority, CERTIFICATE, HEXLOWER, Issued, KEY, REVOKED};
use crate::files;

/// Folder, in that of the authority, of copies of all certificates that it has issued.
pub const ISSUED: &str = "issued";

/// Files that a node or an operator needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificate of the authority.
    pub authorities: PathBuf,
    /// List of revoked certificates.
    pub revoked: PathBuf,
}

impl Authority {
    /// Stores a new certificate and its key in the folder `out`, with copies of the authority's certificate and of its revocation list, and
    /// a copy of the new certificate in the authority's folder. `out` is made if it does not exist. Only older copies of the revocation
    /// list are replaced.
    ///
    /// # Errors
    /// A certificate or a key exists already, `out` has files of another authority, or a file cannot be written.
    pub fn deliver(&self, issued: &Issued, folder: &Path, out: &Path) -> Result<Delivered, AuthorityError> {
        make_folder(out)?;
        let [authorities, revoked] = [CERTIFICATE, REVOKED].map(|name| out.join(name));
        let is_own = matches!((folder.canonicalize(), out.canonicalize()), (Ok(own), Ok(out)) if own == out);
        if !is_own {
            self.refuse_other_authority(out, &authorities, &revoked)?;
        }
        // First of all, so that there is no certificate that cannot be revoked.
        let copy = issued.keep_copy(folder)?;
        let files = issued.save(out).inspect_err(|_| {
            // The certificate has not been given to anybody.
            let _gone = fs::remove_file(&copy);
        })?;
        if !is_own {
            replace(&authorities, self.certificate_pem.as_bytes())?;
            replace(&revoked, self.revoked.pem.as_bytes())?;
        }
        Ok(Delivered { certificate: files.certificate, key: files.key, authorities, revoked })
    }

    /// Reports files that are not copies of this authority's: a node may need them for another authority.
    fn refuse_other_authority(
        &self,
        out: &Path,
        authorities: &Path,
        revoked: &Path,
    ) -> Result<(), AuthorityError> {
        let key = out.join(KEY);
        if exists(&key) {
            return Err(AuthorityError::NotACopy { path: key });
        }
        if exists(authorities) && files::read(authorities)? != self.certificate_pem.as_bytes() {
            return Err(AuthorityError::NotACopy { path: authorities.to_owned() });
        }
        if exists(revoked) {
            let content = files::read(revoked)?;
            let lists = files::revocation_lists(revoked).map_or(0, |lists| lists.len());
            if lists != 1 || self.read_list(content).is_none() {
                return Err(AuthorityError::NotACopy { path: revoked.to_owned() });
            }
        }
        Ok(())
    }
}

impl Issued {
    /// Stores a copy of the certificate in the authority's folder, as `issued/node-2-SERIAL.pem`.
    fn keep_copy(&self, folder: &Path) -> Result<PathBuf, AuthorityError> {
        let der = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes());
        let der = der.map_err(|_| AuthorityError::NotACertificate)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| AuthorityError::NotACertificate)?;
        let issued = folder.join(ISSUED);
        make_folder(&issued)?;
        let path = issued.join(format!("{}-{}.pem", self.stem(), HEXLOWER.encode(parsed.raw_serial())));
        write_new(&path, self.certificate_pem.as_bytes(), PUBLIC)?;
        Ok(path)
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Replaces a public file, so that its readers find the old content or the new one.
fn replace(path: &Path, content: &[u8]) -> Result<(), AuthorityError> {
    if files::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let mut next = path.as_os_str().to_owned();
    next.push(format!(".{}.next", std::process::id()));
    let next = PathBuf::from(next);
    write_new(&next, content, PUBLIC)?;
    fs::rename(&next, path).map_err(|cause| {
        let _gone = fs::remove_file(&next);
        AuthorityError::Write { path: path.to_owned(), cause }
    })
}

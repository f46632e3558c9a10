//! The files of an authority, and of the certificates that it issues. No file is replaced, except for the revocation list and its copies.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::error::AuthorityError;
use super::{Authority, Issued, Revoked};
use crate::files;
use crate::identity::Name;
use crate::timestamp::Timestamp;

/// File of the authority's certificate.
pub const CERTIFICATE: &str = "authority.pem";
/// File of its private key.
pub const KEY: &str = "authority.key";
/// File of the list of revoked certificates.
pub const REVOKED: &str = "revoked.pem";
/// The next list, until it replaces the present one.
const NEXT_REVOKED: &str = "revoked.pem.next";

/// Permissions of a file with a private key.
const SECRET: u32 = 0o600;
/// Permissions of other files.
pub(super) const PUBLIC: u32 = 0o644;
/// Permissions of a new folder.
const FOLDER: u32 = 0o700;

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// Stores a new authority in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// The folder has an authority already, or a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), AuthorityError> {
        make_folder(folder)?;
        let [certificate, key, revoked] = [CERTIFICATE, KEY, REVOKED].map(|name| folder.join(name));
        refuse_existing(&[&certificate, &key, &revoked])?;
        write_new(&key, self.issuer.key().serialize_pem().as_bytes(), SECRET)?;
        write_new(&certificate, self.certificate_pem.as_bytes(), PUBLIC)?;
        write_new(&revoked, self.revoked.pem.as_bytes(), PUBLIC)
    }

    /// Loads the authority in a folder.
    ///
    /// # Errors
    /// A file cannot be read, or the files do not belong together.
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let [certificate, key, revoked] = [CERTIFICATE, KEY, REVOKED].map(|name| folder.join(name));
        let pem = files::private(&key)?;
        files::private_key_in(&key, &pem)?;
        let key = KeyPair::from_pem(&String::from_utf8_lossy(&pem))?;
        let der = files::certificates(&certificate)?.swap_remove(0);
        let pem = String::from_utf8_lossy(&files::read(&certificate)?).into_owned();
        let mut authority = Self::from_parts(pem, &der, key)?;
        let stored = files::read(&revoked)?;
        let list = authority.read_list(stored);
        authority.revoked = list.ok_or(AuthorityError::List { path: revoked })?;
        Ok(authority)
    }

    /// Reads a revocation list of this authority.
    pub(super) fn read_list(&self, stored: Vec<u8>) -> Option<Revoked> {
        let der = CertificateRevocationListDer::from_pem_slice(&stored).ok()?;
        let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
        if list.issuer().as_raw() != self.subject {
            return None;
        }
        let number = list.crl_number()?.to_bytes_be();
        let number = number
            .into_iter()
            .try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? | u64::from(byte)))?;
        let entries = list.iter_revoked_certificates();
        let entries =
            entries.map(|entry| (entry.raw_serial().to_vec(), Timestamp::of(entry.revocation_date)));
        let entries = entries.collect();
        let pem = String::from_utf8_lossy(&stored).into_owned();
        Some(Revoked { number, entries, pem, stored: Some(stored) })
    }

    /// Stores the revocation list in the folder that the authority was loaded from.
    ///
    /// # Errors
    /// Another program has changed the list, or the file cannot be written. The list in the folder is then as it was.
    pub fn save_revoked(&mut self, folder: &Path) -> Result<(), AuthorityError> {
        let (path, next) = (folder.join(REVOKED), folder.join(NEXT_REVOKED));
        // This file also keeps out another program that does the same now.
        write_new(&next, self.revoked.pem.as_bytes(), PUBLIC)?;
        let result = match files::read(&path) {
            Ok(present) if self.revoked.stored.as_ref().is_some_and(|stored| *stored == present) => {
                fs::rename(&next, &path)
                    .and_then(|()| File::open(folder)?.sync_all())
                    .map_err(|cause| AuthorityError::Write { path, cause })
            }
            Ok(_) => Err(AuthorityError::Changed { path }),
            Err(error) => Err(error.into()),
        };
        if result.is_err() {
            // It has been renamed already if only the folder could not be written.
            let _gone = fs::remove_file(&next);
        } else {
            self.revoked.stored = Some(self.revoked.pem.clone().into_bytes());
        }
        result
    }
}

impl Issued {
    /// Stores the certificate and its key in a folder, which is made if it does not exist: `node-2.pem` and `node-2.key`, or
    /// `operator-alice.pem` and `operator-alice.key`.
    ///
    /// # Errors
    /// One of the files exists already, or cannot be written.
    pub fn save(&self, folder: &Path) -> Result<IssuedFiles, AuthorityError> {
        let stem = self.stem();
        let files = IssuedFiles {
            certificate: folder.join(format!("{stem}.pem")),
            key: folder.join(format!("{stem}.key")),
        };
        make_folder(folder)?;
        refuse_existing(&[&files.certificate, &files.key])?;
        write_new(&files.key, self.key_pem.as_bytes(), SECRET)?;
        write_new(&files.certificate, self.certificate_pem.as_bytes(), PUBLIC)?;
        Ok(files)
    }

    /// Returns the beginning of the names of its files.
    pub(super) fn stem(&self) -> String {
        match &self.name {
            Name::Node(node) => format!("node-{node}"),
            Name::Operator(operator) => format!("operator-{operator}"),
        }
    }
}

/// Stores a private key in a new file, which only its owner can read.
///
/// # Errors
/// The file exists already, or cannot be written.
pub fn save_key(path: &Path, key_pem: &str) -> Result<(), AuthorityError> {
    write_new(path, key_pem.as_bytes(), SECRET)
}

pub(super) fn make_folder(folder: &Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER).create(folder);
    made.map_err(|cause| AuthorityError::Write { path: folder.to_owned(), cause })
}

/// Reports a file that exists, before any is written.
fn refuse_existing(paths: &[&Path]) -> Result<(), AuthorityError> {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(AuthorityError::Exists { path: path.to_path_buf() }),
        None => Ok(()),
    }
}

/// Writes a new file with exactly these permissions, whatever the process's umask is.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => AuthorityError::Exists { path: path.to_owned() },
        _ => AuthorityError::Write { path: path.to_owned(), cause },
    })
}

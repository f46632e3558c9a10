//! Certificates for one run: an authority, and one certificate for each side, in a temporary folder.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Name of both sides in their certificates. The caller expects it of the server.
pub const NAME: &str = "localhost";

/// A folder with certificates. It is removed when this is dropped.
pub struct Folder {
    /// The path of the folder.
    pub path: PathBuf,
}

/// One side of a connection.
#[derive(Clone, Copy)]
pub enum Side {
    /// The side that connects.
    Client,
    /// The side that listens.
    Server,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The files of one side, as PEM.
pub struct Files {
    /// The certificate of the authority, which signed those of both sides.
    pub authority: Vec<u8>,
    /// The certificate of this side.
    pub certificate: Vec<u8>,
    /// The private key of this side.
    pub key: Vec<u8>,
}

impl Folder {
    /// Makes the certificates.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create() -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("pronto-peers-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        let folder = Self { path };
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate()?;
        folder.write("authority.pem", &params.self_signed(&key)?.pem())?;
        let authority = Issuer::new(params, key);
        for side in [Side::Client, Side::Server] {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec![NAME.to_owned()])?.signed_by(&key, &authority)?;
            folder.write(&format!("{}.pem", side.name()), &certificate.pem())?;
            folder.write(&format!("{}.key", side.name()), &key.serialize_pem())?;
        }
        Ok(folder)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.path.join(name), text).with_context(|| format!("writing {name}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The run is over, whether the folder can be removed or not.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Reads the files of one side.
///
/// # Errors
/// If a file cannot be read.
pub fn read(folder: &Path, side: Side) -> anyhow::Result<Files> {
    let read = |name: String| fs::read(folder.join(&name)).with_context(|| format!("reading {name}"));
    Ok(Files {
        authority: read("authority.pem".to_owned())?,
        certificate: read(format!("{}.pem", side.name()))?,
        key: read(format!("{}.key", side.name()))?,
    })
}

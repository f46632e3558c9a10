//! Public keys as text, as people copy them into configurations.

use core::fmt;
use core::str::FromStr;

use data_encoding::BASE64;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use thiserror::Error;

/// An Ed25519 or P-256 public key. Its text is `ed25519:BASE64` or `p256:BASE64`, and its DER form a `SubjectPublicKeyInfo`
/// (RFC 5280, section 4.1.2.7).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey(Box<[u8]>);

/// A kind of key: the beginning of its text, and of its DER form, after which the key itself follows.
struct Kind {
    label: &'static str,
    prefix: &'static [u8],
    length: usize,
    /// First byte of the key itself, if it is always the same one.
    first: Option<u8>,
}

const KINDS: [Kind; 2] = [
    // RFC 8410, section 4.
    Kind {
        label: "ed25519",
        prefix: &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00],
        length: 32,
        first: None,
    },
    // RFC 5480, section 2: id-ecPublicKey, secp256r1, an uncompressed point.
    Kind {
        label: "p256",
        prefix: &[
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ],
        length: 65,
        first: Some(0x04),
    },
];

impl PublicKey {
    /// Returns the key with that `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// It is not an Ed25519 or P-256 key.
    pub fn from_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        let kind = KINDS.iter().find(|kind| der.starts_with(kind.prefix)).ok_or(PublicKeyError::Kind)?;
        kind.check(&der[kind.prefix.len()..])?;
        Ok(Self(der.into()))
    }

    /// Returns the `SubjectPublicKeyInfo`.
    pub fn der(&self) -> SubjectPublicKeyInfoDer<'_> {
        SubjectPublicKeyInfoDer::from(&*self.0)
    }
}

impl Kind {
    fn check(&self, key: &[u8]) -> Result<(), PublicKeyError> {
        if key.len() != self.length {
            return Err(PublicKeyError::Length { kind: self.label, expected: self.length, found: key.len() });
        }
        if self.first.is_some_and(|first| key[0] != first) {
            return Err(PublicKeyError::Compressed);
        }
        Ok(())
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (label, encoded) = text.trim().split_once(':').ok_or(PublicKeyError::Kind)?;
        let kind = KINDS.iter().find(|kind| kind.label == label).ok_or(PublicKeyError::Kind)?;
        let key = BASE64.decode(encoded.as_bytes()).map_err(|_| PublicKeyError::Base64)?;
        kind.check(&key)?;
        Ok(Self([kind.prefix, &key].concat().into()))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind =
            KINDS.iter().find(|kind| self.0.starts_with(kind.prefix)).expect("both constructors check it");
        write!(f, "{}:{}", kind.label, BASE64.encode(&self.0[kind.prefix.len()..]))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reason why bytes or a text are not a public key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// The key is of another kind.
    #[error(
        "not an ed25519 or p256 public key: write ed25519:BASE64 or p256:BASE64, as `pronto trust key` prints it"
    )]
    Kind,
    /// The text after the kind is not Base64.
    #[error("the public key is not valid Base64: copy the whole text that `pronto trust key` prints")]
    Base64,
    /// The key is too long or too short.
    #[error(
        "the {kind} public key has {found} bytes, but must have {expected}: copy the whole text that `pronto trust key` prints"
    )]
    Length {
        /// Kind of the key.
        kind: &'static str,
        /// Length of such a key.
        expected: usize,
        /// Length of this one.
        found: usize,
    },
    /// The P-256 point is compressed.
    #[error("the p256 public key is compressed: write the uncompressed point, which begins with the byte 4")]
    Compressed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_a_round_trip() {
        for (label, key) in [("ed25519", vec![7; 32]), ("p256", [vec![4], vec![9; 64]].concat())] {
            let text = format!("{label}:{}", BASE64.encode(&key));
            let read: PublicKey = text.parse().expect("well-formed");
            assert_eq!(read.to_string(), text);
            assert_eq!(PublicKey::from_der(read.der().as_ref()), Ok(read));
        }
    }

    #[test]
    fn malformed_keys_are_rejected() {
        let parse = |text: &str| text.parse::<PublicKey>().expect_err("malformed");
        assert_eq!(parse("AAAA"), PublicKeyError::Kind);
        assert_eq!(parse("rsa:AAAA"), PublicKeyError::Kind);
        assert_eq!(parse("ed25519:A*"), PublicKeyError::Base64);
        assert_eq!(parse("ed25519:AAAA"), PublicKeyError::Length { kind: "ed25519", expected: 32, found: 3 });
        let compressed = format!("p256:{}", BASE64.encode(&[2; 65]));
        assert_eq!(parse(&compressed), PublicKeyError::Compressed);
        assert_eq!(PublicKey::from_der(&[0x30, 0]), Err(PublicKeyError::Kind));
    }
}

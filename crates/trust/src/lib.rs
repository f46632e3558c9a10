//! Which node a peer is: keys, certificates and identities, and the TLS configurations that check them.
//!
//! [`Credentials`] are what a node needs to prove its own identity and to check those of its peers. They come from a [`Source`]:
//! certificates that an authority has signed, or a list of the peers' public keys. A transport makes its connections with
//! [`Credentials::client`] and [`Credentials::server`], and asks [`Credentials::identify`] for the [`Identity`] of the peer.
//!
//! All connections use TLS 1.3, authenticate both sides, and begin with a full handshake: there are no tickets, no resumption and no
//! early data, so that each connection depends on the present certificates and revocations alone.

#![forbid(unsafe_code)]

#[cfg(feature = "authority")]
pub mod authority;
mod certificates;
mod credentials;
mod denied;
mod error;
mod files;
mod identity;
pub mod inspect;
mod names;
mod pins;
mod public_key;
mod timestamp;

pub use credentials::{ALPN, Credentials, Source, server_name};
pub use denied::{Denied, alert_reason};
pub use error::TrustError;
pub use identity::{FIRST_VISITOR, Identity, Name};
pub use names::{NameFault, is_word};
pub use public_key::{PublicKey, PublicKeyError};
pub use timestamp::Timestamp;

// The types of the public API that come from other crates.
pub use rustls;
pub use rustls::pki_types::{CertificateDer, UnixTime};

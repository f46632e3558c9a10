//! TLS of links: the configurations of a node (`Tls`), the protocol on one connection (`connection`), and connections whose records are the
//! kernel's (`kernel`).
//!
//! rustls does the cryptography, through its interface without buffers. This crate moves the bytes, so that an encrypted connection is
//! polled, armed and waited for like any other.

mod connection;
mod kernel;

use core::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::{ClientConfig, ServerConfig};

pub(crate) use connection::{Connection, Taken};
pub(crate) use kernel::{Broken, Control, KernelTls};

/// The TLS configurations of a node, for the connections that it makes and for those that it accepts. They can be replaced while the
/// node runs, and are used for later connections.
pub struct Tls(RwLock<(Arc<ClientConfig>, Arc<ServerConfig>)>);

impl Tls {
    /// Returns these configurations. Both must authenticate the other side: the server's has to require a client certificate.
    pub const fn new(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Self {
        Self(RwLock::new((client, server)))
    }

    /// Replaces the configurations. Connections that exist keep theirs.
    pub fn replace(&self, client: Arc<ClientConfig>, server: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (client, server);
    }

    pub(crate) fn client(&self) -> Result<Connection, rustls::Error> {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).0);
        Connection::client(config)
    }

    pub(crate) fn server(&self) -> Result<Connection, rustls::Error> {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).1);
        Connection::server(config)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

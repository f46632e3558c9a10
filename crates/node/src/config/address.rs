//! Addresses at which nodes listen.

use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use thiserror::Error;

/// An address with its transport: `shm:/run/pronto/n1.sock`, `shm:@name`, `tcp:127.0.0.1:7001`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Shared memory, set up over the Unix socket at this path; a leading `@` marks an abstract name.
    Shm(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
}

/// Reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The text begins neither with `shm:` nor with `tcp:`.
    #[error("{0:?} names no known transport: write shm:PATH or tcp:HOST:PORT")]
    Transport(String),
    /// The text is not a host and a port, or the host cannot be resolved.
    #[error("{0:?} is not HOST:PORT, or the host name cannot be resolved")]
    Host(String),
    /// The path is empty.
    #[error("shm: has no path: write shm:PATH or shm:@NAME")]
    EmptyPath,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("shm", "")) => Err(AddressError::EmptyPath),
            Some(("shm", path)) => Ok(Self::Shm(path.into())),
            Some(("tcp", rest)) => {
                let found = rest.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
                found.map(Self::Tcp).ok_or_else(|| AddressError::Host(rest.into()))
            }
            _ => Err(AddressError::Transport(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(path) => write!(f, "shm:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back_as_written() {
        for text in ["shm:/run/a.sock", "shm:@name", "tcp:127.0.0.1:7001", "tcp:[::1]:7001"] {
            assert_eq!(text.parse::<Address>().map(|a| a.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        assert_eq!("rdma:x".parse::<Address>(), Err(AddressError::Transport("rdma:x".into())));
        assert_eq!("tcp:nowhere".parse::<Address>(), Err(AddressError::Host("nowhere".into())));
        assert_eq!("shm:".parse::<Address>(), Err(AddressError::EmptyPath));
    }
}

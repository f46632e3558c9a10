//! Addresses at which nodes listen.

use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

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
    #[error("{0:?} names no known transport: write shm:PATH, shm:@NAME or tcp:HOST:PORT")]
    Transport(String),
    /// The text is not a host and a port, or the host cannot be resolved.
    #[error("{0:?} is not HOST:PORT, or the host name cannot be resolved")]
    Host(String),
    /// The path is empty.
    #[error("shm: has no path: write shm:PATH or shm:@NAME")]
    EmptyPath,
    /// The path depends on the folder in which a process runs.
    #[error("{0:?} is neither an absolute path nor an abstract name: write shm:/FOLDER/FILE or shm:@NAME")]
    RelativePath(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("shm", "")) => Err(AddressError::EmptyPath),
            Some(("shm", path)) if !path.starts_with(['/', '@']) => {
                Err(AddressError::RelativePath(text.into()))
            }
            Some(("shm", path)) => Ok(Self::Shm(path.into())),
            Some(("tcp", rest)) => {
                let found = rest.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
                found.map(Self::Tcp).ok_or_else(|| AddressError::Host(rest.into()))
            }
            _ => Err(AddressError::Transport(text.into())),
        }
    }
}

impl Address {
    /// Returns the path of the socket, unless its name is abstract.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Shm(path) if path.is_absolute() => Some(path),
            Self::Shm(_) | Self::Tcp(_) => None,
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

    /// Shows: operations.absolute
    #[test]
    fn sockets_have_absolute_paths() {
        for relative in ["shm:here.sock", "shm:./here.sock", "shm:name"] {
            let error = relative.parse::<Address>().map_err(|error| error.to_string());
            let advice =
                "is neither an absolute path nor an abstract name: write shm:/FOLDER/FILE or shm:@NAME";
            assert_eq!(error, Err(format!("{relative:?} {advice}")));
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        assert_eq!("rdma:x".parse::<Address>(), Err(AddressError::Transport("rdma:x".into())));
        assert_eq!("tcp:nowhere".parse::<Address>(), Err(AddressError::Host("nowhere".into())));
        assert_eq!("shm:".parse::<Address>(), Err(AddressError::EmptyPath));
        let text = |address: &str| address.parse::<Address>().map_err(|error| error.to_string());
        let advice = "write shm:PATH, shm:@NAME or tcp:HOST:PORT";
        assert_eq!(text("/run/a.sock"), Err(format!("\"/run/a.sock\" names no known transport: {advice}")));
    }
}

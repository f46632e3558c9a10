//! Errors of connections over verbs.

use core::net::IpAddr;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use pronto_core::fabric::FabricError;
use thiserror::Error;

/// Reason why a device or a link could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// libibverbs is missing, or finds no device.
    #[error("no RDMA device: {0} (is libibverbs installed, and does `ibv_devices` list one?)")]
    NoDevice(Errno),
    /// No port of any device has this address.
    #[error("no active RDMA port has the address {0}; run `rdma link` or `ibv_devinfo -v` to list the ports")]
    NoPort(IpAddr),
    /// The limit of locked memory is too low.
    #[error("{0}")]
    PinLimit(FabricError),
    /// A call of the library failed.
    #[error("the call {what} failed: {errno}")]
    System {
        /// Name of the call.
        what: &'static str,
        /// Error number.
        errno: Errno,
    },
    /// The device offers less than is needed.
    #[error("the device offers {has} {what}, but {needs} are needed")]
    Device {
        /// Name of the resource.
        what: &'static str,
        /// Amount that the device offers.
        has: u64,
        /// Amount that is needed.
        needs: u64,
    },
    /// The peer's offer is malformed.
    #[error("the peer's RDMA offer is malformed")]
    Malformed,
    /// Both sides have devices, but their ports cannot reach each other.
    #[error("cannot reach the peer's RDMA port: verbs completion status {status}")]
    Unreachable {
        /// `ibv_wc_status` of the probe; 0 if it did not complete in time.
        status: u32,
    },
}

/// Returns the error number of the last failed call of the library.
pub(crate) fn last(what: &'static str) -> VerbsError {
    VerbsError::System { what, errno: Errno::last() }
}

/// Returns the error of a failed registration of `wanted` bytes. An exceeded pin limit has an error of its own, which
/// says what to do.
pub(crate) fn not_registered(wanted: usize, errno: Errno) -> FabricError {
    match (errno, getrlimit(Resource::RLIMIT_MEMLOCK)) {
        (Errno::ENOMEM, Ok((limit, _))) => FabricError::PinLimit { wanted: wanted as u64, limit },
        _ => FabricError::System { errno: errno as i32 },
    }
}

impl From<FabricError> for VerbsError {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::System { errno } => {
                Self::System { what: "ibv_reg_mr", errno: Errno::from_raw(errno) }
            }
            other => Self::PinLimit(other),
        }
    }
}

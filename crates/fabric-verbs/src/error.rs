//! Why there is no connection over verbs.

use core::net::IpAddr;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use pronto_core::fabric::FabricError;
use thiserror::Error;

/// Why a device or a link could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// No libibverbs, or none that finds a device.
    #[error("no RDMA device: {0} (is libibverbs installed, and does `ibv_devices` list one?)")]
    NoDevice(Errno),
    /// No port of any device has this address.
    #[error("no active RDMA port has the address {0}; `rdma link` and `ibv_devinfo -v` show what there is")]
    NoPort(IpAddr),
    /// The limit of locked memory is too low.
    #[error("{0}")]
    PinLimit(FabricError),
    /// A call of the library failed.
    #[error("{what}: {errno}")]
    System {
        /// The call.
        what: &'static str,
        /// What it said.
        errno: Errno,
    },
    /// The device has less than is needed.
    #[error("the device offers {has} {what}, {needs} are needed")]
    Device {
        /// What there is too little of.
        what: &'static str,
        /// How much it has.
        has: u64,
        /// How much is needed.
        needs: u64,
    },
    /// The peer's part of the set-up is not what it should be.
    #[error("the peer's RDMA offer is malformed")]
    Malformed,
    /// Both sides have devices, but nothing passes between them.
    #[error("the peer's RDMA port is not reached from ours: verbs completion status {status}")]
    Unreachable {
        /// `ibv_wc_status` of what was tried; 0 if it did not end in time.
        status: u32,
    },
}

/// The error number that the last failed call of the library left.
pub(crate) fn last(what: &'static str) -> VerbsError {
    VerbsError::System { what, errno: Errno::last() }
}

/// What a registration of `wanted` bytes failed with: a full pin limit says so, and what to do.
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

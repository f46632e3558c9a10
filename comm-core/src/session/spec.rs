//! The parameters of a call.

use pronto_wire::Class;

use super::peer_types::TypeKey;
use crate::time::Nanos;

/// The parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// The message type.
    pub key: TypeKey,
    /// The class of the request.
    pub class: Class,
    /// Time that the caller waits; `NEVER` for no deadline.
    pub timeout: Nanos,
}

/// Converts a timeout to its value in headers: microseconds, at least one for a timeout, and 0 for none.
pub(super) fn timeout_us(timeout: Nanos) -> u32 {
    if timeout == Nanos::NEVER {
        return 0;
    }
    u32::try_from(timeout.0 / 1_000).unwrap_or(u32::MAX).max(1)
}

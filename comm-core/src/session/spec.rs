//! What a caller wants of a call.

use pronto_wire::Class;

use super::peer_types::TypeKey;
use crate::time::Nanos;

/// What a caller wants of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// The message type.
    pub key: TypeKey,
    /// The class that the request travels in.
    pub class: Class,
    /// How long the caller waits; `NEVER` for ever.
    pub timeout: Nanos,
}

/// A timeout as it travels: microseconds, at least one if there is a timeout at all, 0 for none.
pub(super) fn timeout_us(timeout: Nanos) -> u32 {
    if timeout == Nanos::NEVER {
        return 0;
    }
    u32::try_from(timeout.0 / 1_000).unwrap_or(u32::MAX).max(1)
}

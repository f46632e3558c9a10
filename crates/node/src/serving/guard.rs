//! Guards for code of the program that runs on the library's threads: a panic in it fails one message and ends no thread.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use pronto_core::Executor as _;
use pronto_core::fabric::{Arrived, Withdrawn};
use pronto_core::note::What;
use pronto_core::session::Inbound;
use pronto_rpc::host::MayWait;
use pronto_rpc::{Route, with_bytes};
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::FailureCode;

use crate::host::{NodeHost, NodeSession, as_handler};
use crate::queue_pair::AnyLease;
use crate::recorder::flight;

/// Counts the panics that the library caught outside of handlers.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    keys: AtomicU64,
}

impl Panics {
    /// Returns the number of messages whose key panicked.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }
}

/// Runs code of the program. Returns `None` if it panics.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(run)).map_err(discard).ok()
}

/// Drops the value of a panic. Its type is the program's, so that its drop may panic as well; the value of that second panic
/// is leaked, which ends the sequence.
#[cold]
fn discard(panic: Box<dyn core::any::Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        core::mem::forget(second);
    }
}

/// Computes the key of a message that is handled in the lane of its key. The caller may hold the engine of the connection, so
/// the key must not wait: its thread counts as one that runs an inline handler.
///
/// # Errors
/// `Malformed` if the message cannot be decoded, `Cancelled` if its sender has withdrawn the payload, `HandlerPanicked` if decoding it
/// or [`pronto_rpc::Message::key`] panics.
pub(crate) fn key_of(
    route: &Route<NodeHost>,
    host: &NodeHost,
    session: &NodeSession,
    inbound: &Inbound<'_, Arrived<AnyLease>>,
) -> Result<u64, FailureCode> {
    let key = || with_bytes(&inbound.payload, |bytes| route.lane_of(bytes));
    if let Some(key) = as_handler(MayWait::Never, || caught(key)) {
        return match key {
            Ok(key) => key.map_err(|_| FailureCode::Malformed),
            Err(Withdrawn) => Err(FailureCode::Cancelled),
        };
    }
    host.panics.keys.fetch_add(1, Ordering::Relaxed);
    host.note(flight::of_message(What::Panicked, session.peer(), inbound.token.call(), inbound.type_id));
    tracing::error!(message = route.name, "the key of a message panicked");
    Err(FailureCode::HandlerPanicked)
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// The value of a panic that panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            // A second panic while the first one unwinds would end the process.
            if !std::thread::panicking() {
                panic_any(Self);
            }
        }
    }

    #[test]
    fn the_value_of_a_panic_may_panic_when_it_is_dropped() {
        assert_eq!(caught(|| -> u8 { panic_any(Bomb) }), None);
        assert_eq!(caught(|| 7), Some(7));
    }
}

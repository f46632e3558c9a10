//! A policy for tower's retry layer.

use core::future::{Ready, ready};

use pronto::{CallError, Executed};
use tower::retry::Policy;

/// Repeats a call whose handler did not run, if the same call may succeed later, a limited number of times. It never executes a request
/// twice. It repeats immediately: a peer that is down stays so for longer, and needs a wait ([`pronto::Node::wait_for_peer_async`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryUnexecuted {
    left: usize,
}

impl RetryUnexecuted {
    /// Returns a policy that repeats a call at most `times` times.
    pub const fn new(times: usize) -> Self {
        Self { left: times }
    }
}

impl<M: Clone, R> Policy<M, R, CallError> for RetryUnexecuted {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut M, outcome: &mut Result<R, CallError>) -> Option<Ready<()>> {
        let error = outcome.as_ref().err()?;
        if error.executed() != Executed::No || !error.is_retryable() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &M) -> Option<M> {
        Some(request.clone())
    }
}

//! One request to several peers, with the replies that arrived in time.

use alloc::vec::Vec;
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::session::Executed;
use pronto_wire::NodeId;

use crate::error::CallError;
use crate::host::Host;
use crate::message::Request;
use crate::peer::Peer;

/// Calls all peers concurrently and waits for all replies, at most `timeout` in total. Returns one result per peer.
pub fn multicall<M: Request, H: Host>(
    peers: &[Peer<H>],
    request: &M,
    timeout: Duration,
) -> Vec<(NodeId, Result<M::Reply, CallError>)> {
    let Some(first) = peers.first() else { return Vec::new() };
    let host = first.host();
    let deadline = host.now() + Nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    let started: Vec<_> = peers.iter().map(|peer| (peer, peer.start_within(request, timeout))).collect();
    let outcome = |peer: &Peer<H>, started: Result<crate::Pending<M, H>, CallError>| match started {
        Ok(pending) => pending.wait_until(deadline),
        // There was no room at first. Waiting for the other calls may have made some.
        Err(error) if error.is_retryable() => {
            let left = deadline.since(host.now());
            if left == Nanos::ZERO {
                return Err(CallError::Deadline { executed: Executed::No });
            }
            peer.call_within(request, Duration::from_nanos(left.0))
        }
        Err(error) => Err(error),
    };
    started.into_iter().map(|(peer, started)| (peer.node(), outcome(peer, started))).collect()
}

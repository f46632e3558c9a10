//! Wait policies per peer: sets overrides at run time, and describes the effective policies for the status.

use std::sync::Arc;

use pronto_core::executor::alone;
use pronto_core::session::Evidence;
use pronto_core::wait::{Decision, WaitHistory, WaitOverride};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::NodeId;

use crate::host::{NodeHost, NodeSession};
use crate::measure::calibrate;
use crate::status::admin::WaitingRequest;
use crate::waits::contention::ContentionCause;

/// Longest polling limit of adaptive waits. `spin` serves for anything longer.
const MOST: Nanos = Nanos::from_secs(1);

/// Reason why an override was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSet {
    #[error("only processes of the node's own user may change how it waits, over shared memory")]
    Stranger,
    #[error("the node has no peer {0}")]
    NoPeer(u16),
    #[error("unknown wait policy: use spin, block or adaptive")]
    NoPolicy,
    #[error("a bound needs the policy adaptive, and must be from 1 ns to 1 s")]
    Bound,
}

/// Sets or removes the wait override for a peer, if the requesting process runs as the same user on this host. Returns the description of the policy from
/// now on.
pub(crate) fn set(host: &Arc<NodeHost>, source: NodeId, request: &WaitingRequest) -> Result<String, NotSet> {
    let asks = host.known_session(source).and_then(|session| session.info(&**host));
    // Over TCP a process of any user may ask, on this host, too.
    if !asks.is_some_and(|link| link.evidence == Evidence::SameUser) {
        return Err(NotSet::Stranger);
    }
    let waiting = read(request)?;
    let session = host.known_session(NodeId(request.peer)).ok_or(NotSet::NoPeer(request.peer))?;
    session.set_wait_override(waiting);
    // Wakes the serving thread, which reads the override.
    host.changed();
    Ok(host.how_to_wait(&session, host.waits.contention()))
}

fn read(request: &WaitingRequest) -> Result<Option<WaitOverride>, NotSet> {
    let policy = match request.policy.as_deref() {
        None => None,
        Some("spin") => Some(WaitPolicy::Spin),
        Some("block") => Some(WaitPolicy::Block),
        Some("adaptive") => Some(WaitPolicy::Adaptive),
        Some(_) => return Err(NotSet::NoPolicy),
    };
    let bound = request.bound_ns.map(Nanos);
    let fits = |bound| bound > Nanos::ZERO && bound <= MOST && policy == Some(WaitPolicy::Adaptive);
    if bound.is_some_and(|bound| !fits(bound)) {
        return Err(NotSet::Bound);
    }
    Ok(policy.map(|policy| WaitOverride { policy, bound }))
}

impl NodeHost {
    /// Describes how threads wait for replies of a peer, and why. `contention` is the reason why adaptive waits sleep immediately, if any.
    pub(crate) fn how_to_wait(&self, session: &NodeSession, contention: Option<ContentionCause>) -> String {
        let (waiting, by) = match session.wait_override() {
            Some(set) => (set, "set at run time"),
            None => (WaitOverride { policy: self.policy, bound: None }, "as configured"),
        };
        let bound = waiting.bound.map(|bound| (bound, "the bound that was set"));
        let learned = session.reply_waits();
        let gap = if session.was_called() {
            describe_gap(learned, "replies take")
        } else {
            "no replies yet".into()
        };
        self.described(waiting.policy, by, bound, learned, &gap, contention)
    }

    /// Describes how the serving thread waits for all peers, and why: it polls as long as the peer with the longest polling time asks
    /// for.
    pub(crate) fn how_to_serve(&self, contention: Option<ContentionCause>) -> String {
        let (configured, learned) =
            (self.serving_waits.configured(self.policy), self.serving_waits.history());
        let polls_for = |set: Option<WaitOverride>| {
            let WaitOverride { policy, bound } = set.unwrap_or(configured);
            let bound = bound.unwrap_or_else(calibrate::wake_up_cost);
            learned.decide_here(policy.into(), alone(bound)).polls_for()
        };
        let of_peers = self.sessions().into_iter().map(|session| (session.wait_override(), session.peer()));
        let (waiting, by, why) = match of_peers.max_by_key(|(set, _)| (polls_for(*set), set.is_none())) {
            Some((Some(set), peer)) => {
                (set, format!("set at run time for peer {peer}"), "the bound that was set")
            }
            Some((None, _)) | None => (configured, "as configured".into(), "its spin-down"),
        };
        let bound = waiting.bound.map(|bound| (bound, why));
        self.described(
            waiting.policy,
            &by,
            bound,
            learned,
            &describe_gap(learned, "messages come after"),
            contention,
        )
    }

    fn described(
        &self,
        policy: WaitPolicy,
        by: &str,
        bound: Option<(Nanos, &str)>,
        learned: &WaitHistory,
        gap: &str,
        contention: Option<ContentionCause>,
    ) -> String {
        match policy {
            WaitPolicy::Block => return format!("block, {by}"),
            WaitPolicy::Spin | WaitPolicy::Adaptive if self.boosting.must_sleep() => {
                return "block: the boost may make threads real-time, and real-time threads never poll"
                    .into();
            }
            WaitPolicy::Spin => return format!("spin, {by}"),
            WaitPolicy::Adaptive => {}
        }
        let (bound, why) = bound.unwrap_or_else(|| (calibrate::wake_up_cost(), "the cost of a wake-up here"));
        let decision = learned.decide_here(policy.into(), alone(bound));
        format!("adaptive, {by}; {gap}; {}", polls(&decision, why, contention))
    }
}

/// Describes the recent wait times of a history.
fn describe_gap(learned: &WaitHistory, event: &str) -> String {
    format!("{event} {} us", learned.gap().0.div_ceil(1_000))
}

/// Describes how long adaptive waits poll, and why. If `contention` prevents polling, describes both that and what they would do
/// otherwise.
fn polls(decision: &Decision, why: &str, contention: Option<ContentionCause>) -> String {
    let us = |span: Nanos| span.0.div_ceil(1_000);
    let bound = decision.bound();
    let polls = if decision.is_from_history() {
        format!("sleeps immediately, as waits are far longer than {} us, {why}", us(bound))
    } else if decision.polls_for() > bound {
        format!("polls for {} us, twice {why}, as less is often just too short", us(decision.polls_for()))
    } else {
        format!("polls for {} us, {why}", us(bound))
    };
    match contention {
        Some(contention) => format!("sleeps immediately: {contention}; otherwise {polls}"),
        None => polls,
    }
}

#[cfg(test)]
mod tests {
    use pronto_progress::Engine;
    use pronto_sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Node, Status};

    fn request(policy: Option<&str>, bound_ns: Option<u64>) -> WaitingRequest {
        WaitingRequest { peer: 2, policy: policy.map(Into::into), bound_ns }
    }

    /// Shows: operations.serves, operations.longest
    #[test]
    fn the_serving_thread_polls_as_long_as_any_peer_asks_for() {
        let node = Node::builder(1).wait(WaitPolicy::Block).start().expect("the node starts");
        let host = &node.host;
        assert_eq!(host.how_to_serve(None), "block, as configured");
        let [two, three] = [2, 3].map(|peer| host.session(NodeId(peer)).expect("a peer slot is free"));
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Block, bound: None }));
        assert_eq!(host.how_to_serve(None), "block, as configured", "peer 3 has no override");
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Spin, bound: None }));
        assert_eq!(host.how_to_serve(None), "spin, set at run time for peer 2");
        two.set_wait_override(None);
        three.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Adaptive, bound: Some(MOST) }));
        let serves = host.how_to_serve(None);
        assert!(serves.starts_with("adaptive, set at run time for peer 3; messages come after "), "{serves}");
    }

    /// Shows: operations.contended
    #[test]
    fn the_bound_is_described_even_if_polling_is_prevented() {
        let decision =
            WaitHistory::default().decide_here(WaitPolicy::Adaptive.into(), alone(Nanos::from_micros(7)));
        assert_eq!(polls(&decision, "its bound", None), "polls for 7 us, its bound");
        assert_eq!(
            polls(&decision, "its bound", Some(ContentionCause::Nodes)),
            "sleeps immediately: there are more nodes on this host than CPUs; otherwise polls for 7 us, its bound"
        );
    }

    #[test]
    fn one_report_does_not_contradict_itself_about_contention() {
        if pronto_skip::for_want_of_two_cpus() {
            return;
        }
        let node = Node::builder(1).engine(Engine::None).start().expect("the node starts");
        let _peer = node.host.session(NodeId(2)).expect("a peer slot is free");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    node.host.waits.count(2, 1);
                    node.host.waits.count(1, 1);
                }
            });
            let differs = |status: &Status| {
                let texts = [&status.serves, &status.peers[0].waits];
                texts.iter().any(|text| text.contains("more nodes on this") != status.contention.is_some())
            };
            let found = (0..5_000).map(|_| node.status()).find(differs);
            done.store(true, Ordering::Relaxed);
            assert!(found.is_none(), "{found:#?}");
        });
    }

    /// Shows: calls.adaptive, operations.reply-time, operations.no-replies
    #[test]
    fn a_peer_that_was_never_called_has_no_reply_time() {
        let node = Node::builder(1).start().expect("the node starts");
        let peer = node.host.session(NodeId(2)).expect("a peer slot is free");
        let waits = node.host.how_to_wait(&peer, None);
        assert!(waits.starts_with("adaptive, as configured; no replies yet; "), "{waits}");
    }

    /// Shows: operations.asked
    #[test]
    fn requests_are_checked() {
        let adaptive = WaitOverride { policy: WaitPolicy::Adaptive, bound: Some(Nanos(20_000)) };
        assert_eq!(read(&request(Some("adaptive"), Some(20_000))), Ok(Some(adaptive)));
        assert_eq!(read(&request(None, None)), Ok(None));
        assert_eq!(read(&request(Some("sleep"), None)), Err(NotSet::NoPolicy));
        assert_eq!(read(&request(Some("spin"), Some(20_000))), Err(NotSet::Bound));
        assert_eq!(read(&request(None, Some(20_000))), Err(NotSet::Bound));
        for bound in [0, MOST.0 + 1] {
            assert_eq!(read(&request(Some("adaptive"), Some(bound))), Err(NotSet::Bound));
        }
    }
}

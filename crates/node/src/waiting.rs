//! How this node waits for each of its peers: said at run time, and told.

use std::sync::Arc;

use pronto_core::executor::alone;
use pronto_core::wait::{Decision, WaitHistory, WaitOverride};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::NodeId;

use crate::admin::WaitingRequest;
use crate::calibrate;
use crate::host::{NodeHost, NodeSession};
use crate::waits::Crowded;

/// No adaptive wait polls for longer: who wants that wants `spin`.
const MOST: Nanos = Nanos::from_secs(1);

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSet {
    #[error("only processes of the node's own host may change how it waits")]
    Elsewhere,
    #[error("the node knows no peer {0}")]
    NoPeer(u16),
    #[error("waits are spin, block or adaptive")]
    NoPolicy,
    #[error("only adaptive waits have a bound, of 1 ns to 1 s")]
    Bound,
}

/// Does what a process of this host asks for. Gives how the node waits for the peer from now on.
pub(crate) fn set(host: &Arc<NodeHost>, source: NodeId, request: &WaitingRequest) -> Result<String, NotSet> {
    let asks = host.known_session(source).and_then(|session| session.info(&**host));
    if !asks.is_some_and(|link| link.local) {
        return Err(NotSet::Elsewhere);
    }
    let waiting = read(request)?;
    let session = host.known_session(NodeId(request.peer)).ok_or(NotSet::NoPeer(request.peer))?;
    session.set_wait_override(waiting);
    // The serving thread reads it, and wakes for it.
    host.changed();
    Ok(host.how_to_wait(&session, host.waits.crowded()))
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
    /// How threads wait for answers of a peer, and why; `crowded` is why adaptive ones sleep at once.
    pub(crate) fn how_to_wait(&self, session: &NodeSession, crowded: Option<Crowded>) -> String {
        let (waiting, by) = match session.wait_override() {
            Some(said) => (said, "said at run time"),
            None => (WaitOverride { policy: self.policy, bound: None }, "as configured"),
        };
        let bound = waiting.bound.map(|bound| (bound, "as said"));
        let learned = session.reply_waits();
        let gap = if session.was_called() { came(learned, "answers take") } else { "no answers yet".into() };
        self.described(waiting.policy, by, bound, learned, &gap, crowded)
    }

    /// How the serving thread waits for all peers, and why: as for the one that wants it to poll longest.
    pub(crate) fn how_to_serve(&self, crowded: Option<Crowded>) -> String {
        let (configured, learned) =
            (self.serving_waits.configured(self.policy), self.serving_waits.history());
        let polls_for = |said: Option<WaitOverride>| {
            let WaitOverride { policy, bound } = said.unwrap_or(configured);
            let bound = bound.unwrap_or_else(calibrate::wake_up_cost);
            learned.decide_here(policy.into(), alone(bound)).polls_for()
        };
        let of_peers = self.sessions().into_iter().map(|session| (session.wait_override(), session.peer()));
        let (waiting, by, why) = match of_peers.max_by_key(|(said, _)| (polls_for(*said), said.is_none())) {
            Some((Some(said), peer)) => (said, format!("said at run time for peer {peer}"), "as said"),
            Some((None, _)) | None => (configured, "as configured".into(), "its spin-down"),
        };
        let bound = waiting.bound.map(|bound| (bound, why));
        self.described(waiting.policy, &by, bound, learned, &came(learned, "messages come after"), crowded)
    }

    fn described(
        &self,
        policy: WaitPolicy,
        by: &str,
        bound: Option<(Nanos, &str)>,
        learned: &WaitHistory,
        gap: &str,
        crowded: Option<Crowded>,
    ) -> String {
        match policy {
            WaitPolicy::Block => return format!("block, {by}"),
            WaitPolicy::Spin | WaitPolicy::Adaptive if self.boosting.must_sleep() => {
                return "block: a boost may make threads real-time, and such threads never poll".into();
            }
            WaitPolicy::Spin => return format!("spin, {by}"),
            WaitPolicy::Adaptive => {}
        }
        let (bound, why) = bound.unwrap_or_else(|| (calibrate::wake_up_cost(), "what a wake-up costs here"));
        let decision = learned.decide_here(policy.into(), alone(bound));
        format!("adaptive, {by}; {gap}; {}", polls(&decision, why, crowded))
    }
}

/// After how long something came, lately.
fn came(learned: &WaitHistory, what: &str) -> String {
    format!("{what} {} us", learned.gap().0.div_ceil(1_000))
}

/// For how long adaptive waits poll, and why; what they would do otherwise, where they may not.
fn polls(decision: &Decision, why: &str, crowded: Option<Crowded>) -> String {
    let us = |span: Nanos| span.0.div_ceil(1_000);
    let bound = decision.bound();
    let polls = if decision.is_learned() {
        format!("sleeps at once, as to poll for {} us, {why}, is in vain", us(bound))
    } else if decision.polls_for() > bound {
        format!("polls for {} us, twice {why}, as less is often just too short", us(decision.polls_for()))
    } else {
        format!("polls for {} us, {why}", us(bound))
    };
    match crowded {
        Some(crowded) => format!("sleeps at once: {crowded}; otherwise {polls}"),
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

    #[test]
    fn the_serving_thread_is_said_to_do_as_who_wants_it_to_poll_longest() {
        let node = Node::builder(1).wait(WaitPolicy::Block).start().expect("it listens nowhere");
        let host = &node.host;
        assert_eq!(host.how_to_serve(None), "block, as configured");
        let [two, three] = [2, 3].map(|peer| host.session(NodeId(peer)).expect("there is room"));
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Block, bound: None }));
        assert_eq!(host.how_to_serve(None), "block, as configured", "which peer 3 wants as well");
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Spin, bound: None }));
        assert_eq!(host.how_to_serve(None), "spin, said at run time for peer 2");
        two.set_wait_override(None);
        three.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Adaptive, bound: Some(MOST) }));
        let serves = host.how_to_serve(None);
        assert!(
            serves.starts_with("adaptive, said at run time for peer 3; messages come after "),
            "{serves}"
        );
    }

    #[test]
    fn what_was_said_is_seen_also_while_processors_are_short() {
        let decision =
            WaitHistory::default().decide_here(WaitPolicy::Adaptive.into(), alone(Nanos::from_micros(7)));
        assert_eq!(polls(&decision, "as said", None), "polls for 7 us, as said");
        assert_eq!(
            polls(&decision, "as said", Some(Crowded::Nodes)),
            "sleeps at once: there are more nodes here than processors; otherwise polls for 7 us, as said"
        );
    }

    #[test]
    fn node_and_peers_agree_on_whether_processors_are_short() {
        let node = Node::builder(1).engine(Engine::None).start().expect("it listens nowhere");
        let _peer = node.host.session(NodeId(2)).expect("there is room");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    node.host.waits.count(2, 1);
                    node.host.waits.count(1, 1);
                }
            });
            let differs = |status: &Status| {
                let told = [&status.serves, &status.peers[0].waits];
                told.iter().any(|text| text.contains("more nodes here") != status.crowded.is_some())
            };
            let found = (0..5_000).map(|_| node.status()).find(differs);
            done.store(true, Ordering::Relaxed);
            assert!(found.is_none(), "{found:#?}");
        });
    }

    #[test]
    fn of_a_peer_that_was_never_called_no_answers_are_told() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let peer = node.host.session(NodeId(2)).expect("there is room");
        let waits = node.host.how_to_wait(&peer, None);
        assert!(waits.starts_with("adaptive, as configured; no answers yet; "), "{waits}");
    }

    #[test]
    fn what_is_asked_for_is_checked() {
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

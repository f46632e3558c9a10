//! The audit log: refused messages, at most one line per second, as peers decide how many they send.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_wire::NodeId;

/// Minimum time between two lines.
const PAUSE: Nanos = Nanos::from_secs(1);

/// A refused message, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) node: NodeId,
    pub(crate) message: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The first refused message since the last line, and the number of others.
    waiting: Option<(Refused, u64)>,
    /// The identity of its sender, once it was looked up: a visitor may have left by the time of the line.
    identity: Option<String>,
    /// Time of the last line.
    last: Option<Nanos>,
}

impl Audit {
    /// Notes a refused message. Returns whether the links thread has to be woken: it logs the message, as the calling thread may hold an
    /// engine lock.
    pub(crate) fn note(&self, refused: Refused) -> bool {
        let mut state = self.0.lock().expect("no holder panics");
        match &mut state.waiting {
            Some((_, others)) => {
                *others += 1;
                false
            }
            waiting => {
                *waiting = Some((refused, 0));
                true
            }
        }
    }

    /// Returns the time from which a line may be logged, `NEVER` if there is none to log.
    pub(crate) fn due(&self) -> Nanos {
        let state = self.0.lock().expect("no holder panics");
        state.waiting.map_or(Nanos::NEVER, |_| state.last.map_or(Nanos::ZERO, |last| last + PAUSE))
    }

    /// Looks the sender of a noted message up, and logs what was noted if a line is due. `identity` returns the name that a node has proved,
    /// as that of a visitor says nothing.
    pub(crate) fn log(&self, now: Nanos, identity: impl FnOnce(NodeId) -> Option<String>) {
        let new = {
            let state = self.0.lock().expect("no holder panics");
            state.waiting.filter(|_| state.identity.is_none()).map(|(refused, _)| refused.node)
        };
        if let Some(node) = new {
            let found = identity(node).unwrap_or_else(|| "unknown".into());
            self.0.lock().expect("no holder panics").identity = Some(found);
        }
        if let Some((Refused { node, message }, others, identity)) = self.take(now) {
            tracing::warn!(target: "pronto::audit", %node, identity, message, others, "not permitted");
        }
    }

    fn take(&self, now: Nanos) -> Option<(Refused, u64, String)> {
        if now < self.due() {
            return None;
        }
        let mut state = self.0.lock().expect("no holder panics");
        state.last = Some(now);
        let identity = state.identity.take().unwrap_or_default();
        state.waiting.take().map(|(refused, others)| (refused, others, identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: operations.allow-refused
    #[test]
    fn the_sender_is_looked_up_before_a_line_is_due() {
        let audit = Audit::default();
        let refused = Refused { node: NodeId(64_001), message: "pronto.status" };
        audit.note(refused);
        audit.log(Nanos::from_millis(5), |_| Some("operator bob".into()));
        audit.note(refused);
        audit.log(Nanos::from_millis(6), |node| (node == refused.node).then(|| "operator carol".into()));
        assert!(audit.due() > Nanos::from_millis(6), "the next line has to wait");
        audit.log(Nanos::from_millis(7), |_| unreachable!("it is known, and the visitor has left"));
        let line = audit.take(Nanos::from_millis(1_005));
        assert_eq!(line, Some((refused, 0, "operator carol".into())));
    }

    /// Shows: operations.allow-refused
    #[test]
    fn there_is_a_line_per_second_with_the_number_of_others() {
        let audit = Audit::default();
        let refused = |node| Refused { node: NodeId(node), message: "bank.deposit" };
        let at = Nanos::from_millis;
        assert_eq!((audit.due(), audit.take(at(5))), (Nanos::NEVER, None));
        assert!(audit.note(refused(2)), "the links thread is woken");
        assert_eq!(audit.take(at(10)), Some((refused(2), 0, String::new())));
        assert!(audit.note(refused(3)));
        assert!(
            !audit.note(refused(4)) && !audit.note(refused(5)),
            "the links thread knows that there are more"
        );
        assert_eq!((audit.due(), audit.take(at(1_009))), (at(1_010), None));
        let line = audit.take(at(1_010));
        assert_eq!(line, Some((refused(3), 2, String::new())), "also without a further message");
        assert_eq!(audit.take(at(9_000)), None);
    }
}

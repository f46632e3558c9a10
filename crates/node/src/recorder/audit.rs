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
    /// The last refused message since the last line, and the number of others.
    waiting: Option<(Refused, u64)>,
    /// Time of the last line.
    last: Option<Nanos>,
}

impl Audit {
    /// Notes a refused message. Returns whether the links thread has to be woken: it logs the message, as the calling thread may hold an
    /// engine lock.
    pub(crate) fn note(&self, refused: Refused) -> bool {
        let mut state = self.0.lock().expect("no holder panics");
        let others = state.waiting.map(|(_, others)| others + 1);
        state.waiting = Some((refused, others.unwrap_or(0)));
        others.is_none()
    }

    /// Returns the time from which a line may be logged, `NEVER` if there is none to log.
    pub(crate) fn due(&self) -> Nanos {
        let state = self.0.lock().expect("no holder panics");
        state.waiting.map_or(Nanos::NEVER, |_| state.last.map_or(Nanos::ZERO, |last| last + PAUSE))
    }

    /// Logs what was noted, if a line is due. `identity` returns the name that a node has proved, as that of a visitor says nothing.
    pub(crate) fn log(&self, now: Nanos, identity: impl FnOnce(NodeId) -> Option<String>) {
        if let Some((Refused { node, message }, others)) = self.take(now) {
            let identity = identity(node).unwrap_or_else(|| "unknown".into());
            tracing::warn!(target: "pronto::audit", %node, identity, message, others, "not permitted");
        }
    }

    fn take(&self, now: Nanos) -> Option<(Refused, u64)> {
        if now < self.due() {
            return None;
        }
        let mut state = self.0.lock().expect("no holder panics");
        state.last = Some(now);
        state.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: operations.allow-refused
    #[test]
    fn there_is_a_line_per_second_with_the_number_of_others() {
        let audit = Audit::default();
        let refused = |node| Refused { node: NodeId(node), message: "bank.deposit" };
        let at = Nanos::from_millis;
        assert_eq!((audit.due(), audit.take(at(5))), (Nanos::NEVER, None));
        assert!(audit.note(refused(2)), "the links thread is woken");
        assert_eq!(audit.take(at(10)), Some((refused(2), 0)));
        assert!(audit.note(refused(3)));
        assert!(
            !audit.note(refused(4)) && !audit.note(refused(5)),
            "the links thread knows that there are more"
        );
        assert_eq!((audit.due(), audit.take(at(1_009))), (at(1_010), None));
        assert_eq!(audit.take(at(1_010)), Some((refused(5), 2)), "also without a further message");
        assert_eq!(audit.take(at(9_000)), None);
    }
}

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
    pending: Option<Refused>,
    last: Option<Nanos>,
    /// Number of refused messages since the last line.
    more: u64,
}

impl Audit {
    /// Notes a refused message. Returns whether the links thread has to log it. The calling thread may hold an engine lock, so that it does
    /// not log itself.
    pub(crate) fn note(&self, refused: Refused, now: Nanos) -> bool {
        let mut state = self.0.lock().expect("no holder panics");
        let is_due = state.pending.is_none() && state.last.is_none_or(|last| now.since(last) >= PAUSE);
        if is_due {
            state.pending = Some(refused);
            state.last = Some(now);
        } else {
            state.more += 1;
        }
        is_due
    }

    /// Logs the noted message, if there is one.
    pub(crate) fn log(&self) {
        if let Some((Refused { node, message }, more)) = self.take() {
            tracing::warn!(target: "pronto::audit", %node, message, more, "not permitted");
        }
    }

    /// Returns the message to log, and the number of others since the last line.
    fn take(&self) -> Option<(Refused, u64)> {
        let mut state = self.0.lock().expect("no holder panics");
        let pending = state.pending.take()?;
        Some((pending, core::mem::take(&mut state.more)))
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
        assert!(audit.note(refused(2), at(10)));
        assert!(!audit.note(refused(3), at(2_000)), "the first is not logged yet");
        assert_eq!(audit.take(), Some((refused(2), 1)));
        assert_eq!(audit.take(), None);
        assert!(audit.note(refused(4), at(2_001)));
        assert_eq!(audit.take(), Some((refused(4), 0)));
        assert!(!audit.note(refused(4), at(3_000)));
        assert!(audit.note(refused(5), at(3_001)));
        assert_eq!(audit.take(), Some((refused(5), 1)));
    }
}

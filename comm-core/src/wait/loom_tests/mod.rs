//! Loom models of waiting.

mod poller_role;
mod sleep;

/// Maximum number of preemptions explored. It is enough to refute every mutant. With three threads, each further preemption takes ten
/// times as long. If `LOOM_MAX_PREEMPTIONS` is set, models of three threads use one less. `cargo xtask soak` sets `PRONTO_SOAK`, and they
/// use one more.
const PREEMPTIONS: usize = 2;

/// Returns the maximum number of preemptions explored, if loom was given the bound `asked`.
pub(crate) fn preemptions(asked: Option<usize>) -> usize {
    let usual = PREEMPTIONS + usize::from(std::env::var_os("PRONTO_SOAK").is_some());
    asked.map_or(usual, |asked| asked.saturating_sub(1))
}

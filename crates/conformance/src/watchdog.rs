//! Ends the process when a call of a test does not return.
//!
//! The duration of a whole test is not limited: over an emulated device on a busy machine, some take minutes. So the
//! watchdog does not time the test. It counts the test's turns: each poll of an end, and each settling of the
//! transport, is one. [`crate::Harness::patience`] limits their number.

use core::time::Duration;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use pronto_sync::atomic::{AtomicU64, Ordering};

/// Longest time without a turn before the process is ended. Only a call that does not return reaches it.
const TURN_LIMIT: Duration = Duration::from_secs(120);

thread_local! {
    /// Number of turns of the tests on this thread.
    static TURNS: Arc<AtomicU64> = Arc::default();
}

/// Counts a turn of the test on the calling thread.
pub(crate) fn turn() {
    TURNS.with(|turns| turns.fetch_add(1, Ordering::Relaxed));
}

/// Watches the tests of the thread that started it, until dropped.
pub(crate) struct Watchdog {
    tests: Sender<Option<String>>,
}

impl Watchdog {
    pub(crate) fn start(provider: &'static str) -> Self {
        let (tests, inbox) = channel();
        let turns = TURNS.with(Arc::clone);
        thread::spawn(move || {
            if let Some(test) = stuck(&inbox, TURN_LIMIT, || turns.load(Ordering::Relaxed)) {
                eprintln!("conformance of {provider}: {test} made no progress within {TURN_LIMIT:?}");
                process::abort();
            }
        });
        Self { tests }
    }

    /// Notes that a test begins.
    pub(crate) fn begin(&self, test: String) {
        self.tell(Some(test));
    }

    /// Notes that the test has ended.
    pub(crate) fn end(&self) {
        self.tell(None);
    }

    fn tell(&self, test: Option<String>) {
        self.tests.send(test).expect("the watchdog lives until this sender is dropped");
    }
}

/// Follows the tests that begin and end, until all are done. Returns the name of a test that made no turn for as long as `limit`.
fn stuck(
    tests: &Receiver<Option<String>>,
    limit: Duration,
    mut turns: impl FnMut() -> u64,
) -> Option<String> {
    while let Ok(begun) = tests.recv() {
        let Some(test) = begun else { continue };
        let mut seen = turns();
        while tests.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let now = turns();
            if now == seen {
                return Some(test);
            }
            seen = now;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_long_test_that_makes_progress_is_left_alone() {
        let (tests, inbox) = channel();
        tests.send(Some("long".to_owned())).unwrap();
        let mut tests = Some(tests);
        let mut count = 0;
        let turns = || {
            count += 1;
            if count == 20 {
                let over = tests.take().expect("the test ends once");
                over.send(None).unwrap();
            }
            count
        };
        assert_eq!(stuck(&inbox, SHORT, turns), None);
        assert_eq!(count, 20, "the limit passed repeatedly");
    }

    #[test]
    fn a_test_without_progress_is_named() {
        let (tests, inbox) = channel();
        for told in [Some("quick"), None, Some("stuck")] {
            tests.send(told.map(str::to_owned)).unwrap();
        }
        assert_eq!(stuck(&inbox, SHORT, || 7).as_deref(), Some("stuck"));
    }

    #[test]
    fn turns_are_those_of_the_thread_that_started_the_watchdog() {
        let count = || TURNS.with(|turns| turns.load(Ordering::Relaxed));
        let before = count();
        turn();
        thread::spawn(turn).join().unwrap();
        assert_eq!(count(), before + 1);
    }
}

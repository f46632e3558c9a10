//! Whether the calling thread is real-time: such a thread never polls, as it would keep its processor from everybody, the one
//! that it waits for included.
//!
//! Boosts are known to their node; this is about what a program has made of its own threads, or somebody else has, by `chrt`. The
//! kernel is asked when a thread waits for the first time, and before each of its sleeps. A thread that is made real-time while it
//! polls for ever is not noticed.

use core::cell::Cell;

use pronto_expedite::schedule;

thread_local! {
    static REAL_TIME: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether the thread was real-time when the kernel was asked last.
#[inline]
pub(crate) fn is_real_time() -> bool {
    REAL_TIME.get().unwrap_or_else(ask)
}

/// Asks the kernel.
#[cold]
pub(crate) fn ask() -> bool {
    let real_time = schedule::policy(0).is_ok_and(is_of_real_time);
    REAL_TIME.set(Some(real_time));
    real_time
}

const fn is_of_real_time(policy: i32) -> bool {
    matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

#[cfg(test)]
mod tests {
    use pronto_core::{Executor as _, Nanos, WaitPolicy};
    use pronto_expedite::schedule::{CALLER, Class, schedule};

    use super::*;
    use crate::Node;

    #[test]
    fn a_real_time_thread_sleeps_at_once_whatever_it_was_asked_to_do() {
        let node = Node::builder(1).wait(WaitPolicy::Spin).start().expect("it listens nowhere");
        let spins = || [WaitPolicy::Spin, WaitPolicy::Adaptive].map(|policy| node.host.spin_time(policy));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(spins()[0], Nanos::NEVER);
                if schedule(CALLER, Class::Fifo(1)).is_err() {
                    // It may not be, here; the test below says what would count.
                    return;
                }
                assert!(ask(), "the kernel is asked before each sleep");
                assert_eq!(spins(), [Nanos::ZERO; 2]);
                schedule(CALLER, Class::Normal).expect("who gave it may take it");
                assert!(!ask());
                assert_eq!(spins()[0], Nanos::NEVER);
            });
            thread.join().expect("no assertion fails");
        });
    }

    #[test]
    fn classes_that_hold_a_processor_are_real_time() {
        for policy in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE] {
            assert!(is_of_real_time(policy) && is_of_real_time(policy | libc::SCHED_RESET_ON_FORK));
        }
        for policy in [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE] {
            assert!(!is_of_real_time(policy));
        }
    }
}

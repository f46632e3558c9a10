//! The scheduling class of the calling thread. A real-time thread never polls, because it would keep its CPU from all other threads,
//! including the one that it waits for.
//!
//! A node knows its own boosts. This module covers classes that the program sets for its threads, or an operator with `chrt`. It
//! queries the class on a thread's first wait, and before a sleep if the cached value is older than [`HOLDS`], because the system call
//! costs more than the rest of the sleep path. After a boost by the node it queries immediately. It does not notice if a thread
//! becomes real-time while it polls without ever sleeping.

use core::cell::Cell;

use pronto_core::Nanos;
use pronto_expedite::schedule;

/// Time for which the cached class is used, and for which a thread may still poll after it became real-time. Chosen by us; no source.
pub(crate) const HOLDS: Nanos = Nanos::from_millis(10);

thread_local! {
    static REAL_TIME: Cell<Option<bool>> = const { Cell::new(None) };
    /// Time from which on the class is queried again before a sleep.
    static ASK_AT: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// Returns whether the thread was real-time at the last query.
#[inline]
pub(crate) fn is_real_time() -> bool {
    REAL_TIME.get().unwrap_or_else(ask)
}

/// Queries the class before a sleep, unless it was queried less than [`HOLDS`] ago. Each node of a process has its own clock, so the
/// time of the next query may also be too far in the future.
#[inline]
pub(crate) fn before_sleep(now: Nanos) {
    let left = ASK_AT.get().since(now);
    if left == Nanos::ZERO || left > HOLDS {
        ASK_AT.set(now + HOLDS);
        ask();
    }
}

/// Discards the cached class of the thread, after a boost.
pub(crate) fn forget() {
    REAL_TIME.set(None);
}

#[cold]
fn ask() -> bool {
    let real_time = schedule::policy(0).is_ok_and(is_of_real_time);
    REAL_TIME.set(Some(real_time));
    #[cfg(test)]
    tests::ASKED.set(tests::ASKED.get() + 1);
    real_time
}

const fn is_of_real_time(policy: i32) -> bool {
    matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

#[cfg(test)]
pub(crate) mod tests {
    use pronto_core::WaitPolicy;
    use pronto_expedite::schedule::{CALLER, Class, schedule};

    use super::*;
    use crate::Node;

    thread_local! {
        /// Number of queries by this thread.
        pub(crate) static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn the_class_is_queried_once_for_many_sleeps_and_immediately_after_a_boost() {
        let start = Nanos::from_secs(5);
        for sleep in 0..1_000 {
            before_sleep(start + Nanos(sleep * (HOLDS.0 / 1_000)));
            assert!(ASKED.get() == 1 && !is_real_time());
        }
        before_sleep(start + HOLDS);
        assert_eq!(ASKED.get(), 2);
        before_sleep(Nanos(7));
        assert_eq!(ASKED.get(), 3, "the clock is that of another node");
        forget();
        assert_eq!((is_real_time(), ASKED.get()), (false, 4));
        assert_eq!((is_real_time(), ASKED.get()), (false, 4));
    }

    /// Shows: operations.real-time-sleeps, operations.real-time
    #[test]
    fn a_real_time_thread_sleeps_immediately_with_every_policy() {
        let node = Node::builder(1).wait(WaitPolicy::Spin).start().expect("it listens nowhere");
        let peer = node.host.session(2.into()).expect("there is room");
        let policies = [WaitPolicy::Spin, WaitPolicy::Adaptive];
        let spins = || policies.map(|policy| peer.decide(policy.into(), &*node.host).polls_for());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(spins()[0], Nanos::NEVER);
                if schedule(CALLER, Class::Fifo(1)).is_err() {
                    // The next test covers the classes.
                    return pronto_skip::because("this process may not make a thread real-time");
                }
                before_sleep(Nanos::ZERO);
                assert_eq!(spins(), [Nanos::ZERO; 2]);
                schedule(CALLER, Class::Normal).expect("leaving the real-time class needs no privilege");
                before_sleep(HOLDS);
                assert_eq!(spins()[0], Nanos::NEVER);
            });
            thread.join().expect("no assertion fails");
        });
    }

    #[test]
    fn classes_that_hold_a_cpu_are_real_time() {
        for policy in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE] {
            assert!(is_of_real_time(policy) && is_of_real_time(policy | libc::SCHED_RESET_ON_FORK));
        }
        for policy in [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE] {
            assert!(!is_of_real_time(policy));
        }
    }
}

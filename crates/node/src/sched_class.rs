//! Whether the calling thread is real-time: such a thread never polls, as it would keep its processor from everybody, the one
//! that it waits for included.
//!
//! Boosts are known to their node; this is about what a program has made of its own threads, or somebody else has, by `chrt`. The
//! kernel is asked when a thread waits for the first time, and before a sleep, [`HOLDS`] after it was asked last: to ask takes longer
//! than all else that a sleep costs here, but for the sleep. At once, where a node has boosted the thread itself. A thread that is made
//! real-time while it polls for ever is not noticed.

use core::cell::Cell;

use pronto_core::Nanos;
use pronto_expedite::schedule;

/// For how long the kernel's answer is believed: so long may a thread still poll before it sleeps that was made real-time. Ours.
pub(crate) const HOLDS: Nanos = Nanos::from_millis(10);

thread_local! {
    static REAL_TIME: Cell<Option<bool>> = const { Cell::new(None) };
    /// When the kernel is asked again, before a sleep.
    static ASK_AT: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// Whether the thread was real-time when the kernel was asked last.
#[inline]
pub(crate) fn is_real_time() -> bool {
    REAL_TIME.get().unwrap_or_else(ask)
}

/// The thread is about to sleep: asks the kernel, if it was not asked lately. Nodes of a process have clocks of their own, so that the
/// time when it is asked again may also lie too far ahead.
#[inline]
pub(crate) fn before_sleep(now: Nanos) {
    let left = ASK_AT.get().since(now);
    if left == Nanos::ZERO || left > HOLDS {
        ASK_AT.set(now + HOLDS);
        ask();
    }
}

/// What was known of the thread holds no more: it was boosted.
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
mod tests {
    use pronto_core::WaitPolicy;
    use pronto_expedite::schedule::{CALLER, Class, schedule};

    use super::*;
    use crate::Node;

    thread_local! {
        /// How often this thread has asked the kernel.
        pub(super) static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn the_kernel_is_asked_once_for_many_sleeps_and_at_once_after_a_boost() {
        let start = Nanos::from_secs(5);
        for sleep in 0..1_000 {
            before_sleep(start + Nanos(sleep * (HOLDS.0 / 1_000)));
            assert!(ASKED.get() == 1 && !is_real_time());
        }
        before_sleep(start + HOLDS);
        assert_eq!(ASKED.get(), 2);
        before_sleep(Nanos(7));
        assert_eq!(ASKED.get(), 3, "by the clock of another node");
        forget();
        assert_eq!((is_real_time(), ASKED.get()), (false, 4));
        assert_eq!((is_real_time(), ASKED.get()), (false, 4));
    }

    #[test]
    fn a_real_time_thread_sleeps_at_once_whatever_it_was_asked_to_do() {
        let node = Node::builder(1).wait(WaitPolicy::Spin).start().expect("it listens nowhere");
        let peer = node.host.session(2.into()).expect("there is room");
        let policies = [WaitPolicy::Spin, WaitPolicy::Adaptive];
        let spins = || policies.map(|policy| peer.decide(policy.into(), &*node.host).polls_for());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(spins()[0], Nanos::NEVER);
                if schedule(CALLER, Class::Fifo(1)).is_err() {
                    // It may not be, here; the test below says what would count.
                    return;
                }
                before_sleep(Nanos::ZERO);
                assert_eq!(spins(), [Nanos::ZERO; 2]);
                schedule(CALLER, Class::Normal).expect("who gave it may take it");
                before_sleep(HOLDS);
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

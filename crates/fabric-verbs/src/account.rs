//! Account of a shared receive queue: the number of posted receives, and the number that is promised to connections.
//!
//! # Invariants
//! 1. `promised + doubtful <= posted <= limit`.
//! 2. Each [`Share`] is in `promised` until it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::VerbsError;

/// Number of doubtful receives at which new connections get a fresh queue: 2 MiB of registered memory. A small queue is
/// replaced when an eighth of it is doubtful.
const MOST_DOUBTFUL: usize = 1024;

/// Receives of one shared receive queue.
#[derive(Debug)]
pub(crate) struct Account {
    /// Number of receives that the queue can hold.
    limit: usize,
    /// Number of receives that were made and posted; some of them are in use.
    posted: usize,
    /// Number of receives promised to connections.
    promised: usize,
    /// Number of receives that connections may have kept when they ended.
    doubtful: usize,
}

impl Account {
    /// Makes the account of a queue that holds at most `limit` receives.
    pub(crate) fn new(limit: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { limit, posted: 0, promised: 0, doubtful: 0 }))
    }

    /// Returns the number of receives promised to connections.
    pub(crate) fn promised(&self) -> usize {
        self.promised
    }

    /// Returns the number of receives that connections may have kept when they ended.
    pub(crate) fn doubtful(&self) -> usize {
        self.doubtful
    }

    /// Returns whether the number of doubtful receives requires a fresh queue for new connections.
    pub(crate) fn is_worn(&self) -> bool {
        self.doubtful >= MOST_DOUBTFUL.min(self.limit / 8)
    }
}

/// Locks an account.
pub(crate) fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives promised to one connection, until dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Mutex<Account>>,
    count: usize,
    /// Number of receives that the connection may keep when it ends.
    may_keep: usize,
}

impl Share {
    /// Promises `count` receives. `post` makes and posts the receive with a given number, counted from 0. It is called
    /// for each missing receive, in steps of `step` as far as the queue has room. If `post` fails, the next share
    /// continues with that number.
    ///
    /// # Errors
    /// The queue holds fewer receives, or `post` fails. Then nothing is promised.
    pub(crate) fn new(
        account: &Arc<Mutex<Account>>,
        count: usize,
        step: usize,
        mut post: impl FnMut(usize) -> Result<(), VerbsError>,
    ) -> Result<Self, VerbsError> {
        let mut state = lock(account);
        let needed = state.promised + state.doubtful + count;
        if needed > state.limit {
            let (has, needs) = (state.limit as u64, needed as u64);
            return Err(VerbsError::Device { what: "shared receives", has, needs });
        }
        let wanted = needed.next_multiple_of(step).min(state.limit);
        while state.posted < wanted {
            // Receives beyond `needed` are posted in advance.
            match post(state.posted) {
                Ok(()) => state.posted += 1,
                Err(_) if state.posted >= needed => break,
                Err(error) => return Err(error),
            }
        }
        state.promised += count;
        Ok(Self { account: Arc::clone(account), count, may_keep: 0 })
    }

    /// Notes that the peer can send from now on. If the connection ends in the middle of a message, it may keep the
    /// receive that it had begun to fill: the device does not report it.
    pub(crate) fn connected(&mut self) {
        self.may_keep = 1;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = lock(&self.account);
        state.promised -= self.count;
        state.doubtful += self.may_keep;
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    /// Receives of one connection.
    const DEPTH: usize = 161;

    /// Makes a share of [`DEPTH`] receives; `post` posts the receive with a given number.
    fn share_with(
        account: &Arc<Mutex<Account>>,
        post: impl FnMut(usize) -> Result<(), VerbsError>,
    ) -> Result<Share, VerbsError> {
        Share::new(account, DEPTH, 128, post)
    }

    fn share(account: &Arc<Mutex<Account>>) -> Result<Share, VerbsError> {
        share_with(account, |_| Ok(()))
    }

    #[test]
    fn unconnected_shares_return_all_their_receives() {
        let account = Account::new(16_384);
        for _ in 0..20_000 {
            let dropped = share(&account).expect("shares that were never connected return their receives");
            assert_eq!(lock(&account).promised(), DEPTH, "a share is promised");
            drop(dropped);
        }
        let left = lock(&account);
        assert_eq!((left.promised(), left.doubtful()), (0, 0));
        assert!(left.posted < 2 * DEPTH);
    }

    #[test]
    fn a_queue_is_worn_by_ended_connections_and_not_by_existing_ones() {
        let account = Account::new(16_384);
        let held: Vec<_> = (0..90).map(|_| share(&account).unwrap()).collect();
        for ended in 0..MOST_DOUBTFUL {
            assert_eq!(lock(&account).doubtful(), ended);
            assert!(!lock(&account).is_worn());
            let mut share = share(&account).unwrap();
            share.connected();
        }
        assert!(lock(&account).is_worn());
        assert_eq!(lock(&account).promised(), held.len() * DEPTH);
    }

    #[test]
    fn a_share_beyond_the_queue_is_rejected_and_takes_nothing() {
        let account = Account::new(2 * DEPTH);
        let held = [share(&account).unwrap(), share(&account).unwrap()];
        for _ in 0..3 {
            let refused = share(&account).unwrap_err();
            let (has, needs) = (2 * DEPTH as u64, 3 * DEPTH as u64);
            assert_eq!(refused, VerbsError::Device { what: "shared receives", has, needs });
        }
        assert_eq!(lock(&account).promised(), 2 * DEPTH);
        drop(held);
        assert_eq!(lock(&account).promised(), 0);
    }

    #[test]
    fn no_more_receives_are_posted_than_the_queue_holds() {
        let account = Account::new(2 * DEPTH);
        let mut posted = 0;
        let mut post = |_| {
            posted += 1;
            Ok(())
        };
        let held = [share_with(&account, &mut post).unwrap(), share_with(&account, &mut post).unwrap()];
        assert_eq!(lock(&account).promised(), held.len() * DEPTH);
        assert_eq!(posted, 2 * DEPTH, "posted beyond the limit");
    }

    #[test]
    fn after_a_failure_posting_continues_with_the_failed_receive() {
        let account = Account::new(16_384);
        let (mut posted, mut failures) = (Vec::new(), 0);
        let mut post = |number| {
            if number == 5 && failures < 2 {
                failures += 1;
                return Err(VerbsError::System { what: "ibv_post_srq_recv", errno: Errno::ENOMEM });
            }
            posted.push(number);
            Ok(())
        };
        for _ in 0..2 {
            assert!(share_with(&account, &mut post).is_err());
        }
        let share = share_with(&account, &mut post).unwrap();
        assert_eq!((failures, lock(&account).promised()), (2, DEPTH));
        assert!(posted.into_iter().eq(0..256), "each receive is posted once");
        drop(share);
    }
}

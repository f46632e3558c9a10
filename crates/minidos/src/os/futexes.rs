//! Futex operations, and the locks and barriers built from them, as in Drepper's "Futexes are tricky".

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::homes::FutexClient;
use super::{Os, OsError};
use crate::account::Cause;
use crate::messages::{FutexOperation, FutexOutcome, FutexRequest, Stamp, TaskId};
use crate::network::RESPONSE_LIMIT;
use crate::page::{Access, Address};

impl Os {
    /// Sleeps until woken if the word at `address` is still `seen`.
    pub(crate) fn futex_wait(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        seen: u32,
    ) -> Result<(), OsError> {
        self.check_mapped(task, address, size_of::<u32>(), Access::Read)?;
        let page = address.page();
        let home = page.home(self.network.nodes());
        let outcome = if home == self.network.me() {
            self.check_home(page)?;
            let (to, woken) = sync_channel(1);
            self.with_home(|home| home.handle_wait(address, seen, FutexClient::Here(to)))?;
            woken.recv_timeout(RESPONSE_LIMIT).map_err(|_| OsError::NotWoken { address })?
        } else {
            self.causes.count(Cause::Slept);
            self.network.call(home, request(task, address, FutexOperation::Wait, seen))?.outcome
        };
        if outcome == FutexOutcome::Misplaced { Err(OsError::Misplaced { address }) } else { Ok(()) }
    }

    /// Wakes up to `most` tasks that sleep on the word at `address`.
    pub(crate) fn futex_wake(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        most: u32,
    ) -> Result<(), OsError> {
        self.check_mapped(task, address, size_of::<u32>(), Access::Read)?;
        let home = address.page().home(self.network.nodes());
        if home == self.network.me() {
            let (to, _) = sync_channel(1);
            return self.with_home(|home| {
                home.handle_wake(address, most, FutexClient::Here(to));
                Ok(())
            });
        }
        self.causes.count(Cause::Woke);
        self.network.call(home, request(task, address, FutexOperation::Wake, most))?;
        Ok(())
    }

    /// Acquires the lock whose word lies at `address`.
    pub(crate) fn lock(self: &Arc<Self>, task: TaskId, address: Address) -> Result<(), OsError> {
        let mut mark = LOCKED;
        loop {
            // A task that has slept does not know whether it was the last sleeper, so it marks the lock as contended.
            let next = |word| if word == FREE { mark } else { CONTENDED };
            let before = self.update_word(task, address, next)?;
            if before == FREE {
                return Ok(());
            }
            self.futex_wait(task, address, CONTENDED)?;
            mark = CONTENDED;
        }
    }

    /// Releases the lock.
    pub(crate) fn unlock(self: &Arc<Self>, task: TaskId, address: Address) -> Result<(), OsError> {
        let before = self.update_word(task, address, |_| FREE)?;
        if before == CONTENDED { self.futex_wake(task, address, 1) } else { Ok(()) }
    }

    /// Waits until `parties` tasks have reached the barrier at `address`. Its two words are the number of tasks that have arrived,
    /// and the number of times that the barrier has opened.
    pub(crate) fn barrier(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        parties: u32,
    ) -> Result<(), OsError> {
        let [arrived, opened] = self.update_words(task, address, |[arrived, opened]| {
            if arrived + 1 == parties { [0, opened.wrapping_add(1)] } else { [arrived + 1, opened] }
        })?;
        let generation = address.plus(4);
        if arrived + 1 == parties {
            return self.futex_wake(task, generation, u32::MAX);
        }
        let mut now = opened.to_le_bytes();
        while u32::from_le_bytes(now) == opened {
            self.futex_wait(task, generation, opened)?;
            self.read(task, generation, &mut now)?;
        }
        Ok(())
    }

    fn update_word(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        change: impl FnOnce(u32) -> u32,
    ) -> Result<u32, OsError> {
        let before = self.update(task, address, |word| change(u32::from_le_bytes(word)).to_le_bytes())?;
        Ok(u32::from_le_bytes(before))
    }

    /// Changes two adjacent words atomically.
    fn update_words(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        change: impl FnOnce([u32; 2]) -> [u32; 2],
    ) -> Result<[u32; 2], OsError> {
        let before = self.update(task, address, |pair| join(change(split(pair))))?;
        Ok(split(before))
    }
}

fn request(task: TaskId, address: Address, operation: FutexOperation, value: u32) -> FutexRequest {
    FutexRequest { stamp: Stamp::default(), task, address: address.0, operation, value }
}

fn split(pair: [u8; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = pair;
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn join(words: [u32; 2]) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (words[0].to_le_bytes(), words[1].to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

/// The lock is free.
const FREE: u32 = 0;

/// The lock is taken, and no task sleeps.
const LOCKED: u32 = 1;

/// The lock is taken, and tasks may be sleeping.
const CONTENDED: u32 = 2;

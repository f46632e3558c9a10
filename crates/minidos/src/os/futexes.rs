//! Sleeping and waking, and what tasks make of it: locks and barriers, as in Drepper's "Futexes are tricky".

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::homes::FutexClient;
use super::{Os, OsError};
use crate::account::Cause;
use crate::messages::{FutexOperation, FutexOutcome, FutexRequest, Stamp, TaskId};
use crate::network::PATIENCE;
use crate::page::{Access, Address};

impl Os {
    /// Sleeps until woken, if the word at `address` is still `seen`.
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
            self.at_home(|home| home.handle_wait(address, seen, FutexClient::Here(to)))?;
            woken.recv_timeout(PATIENCE).map_err(|_| OsError::NotWoken { address })?
        } else {
            self.causes.count(Cause::Slept);
            self.network.call(home, request(task, address, FutexOperation::Wait, seen))?.outcome
        };
        if outcome == FutexOutcome::Misplaced { Err(OsError::Misplaced { address }) } else { Ok(()) }
    }

    /// Wakes at most `most` tasks that sleep on the word at `address`.
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
            return self.at_home(|home| {
                home.handle_wake(address, most, FutexClient::Here(to));
                Ok(())
            });
        }
        self.causes.count(Cause::Woke);
        self.network.call(home, request(task, address, FutexOperation::Wake, most))?;
        Ok(())
    }

    /// Takes the lock whose word lies at `address`.
    pub(crate) fn lock(self: &Arc<Self>, task: TaskId, address: Address) -> Result<(), OsError> {
        let mut taken = LOCKED;
        loop {
            // Who has slept cannot know that it was the last sleeper, and leaves the mark.
            let next = |word| if word == FREE { taken } else { CONTENDED };
            let before = self.update_word(task, address, next)?;
            if before == FREE {
                return Ok(());
            }
            self.futex_wait(task, address, CONTENDED)?;
            taken = CONTENDED;
        }
    }

    /// Gives the lock back.
    pub(crate) fn unlock(self: &Arc<Self>, task: TaskId, address: Address) -> Result<(), OsError> {
        let before = self.update_word(task, address, |_| FREE)?;
        if before == CONTENDED { self.futex_wake(task, address, 1) } else { Ok(()) }
    }

    /// Waits until `parties` tasks have come to the barrier whose two words lie at `address`: who has come, and how
    /// often it has opened.
    pub(crate) fn barrier(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        parties: u32,
    ) -> Result<(), OsError> {
        let [come, opened] = self.update_words(task, address, |[come, opened]| {
            if come + 1 == parties { [0, opened.wrapping_add(1)] } else { [come + 1, opened] }
        })?;
        let generation = address.plus(4);
        if come + 1 == parties {
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

    /// Changes two words that lie side by side, in one moment.
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

/// Nobody has the lock.
const FREE: u32 = 0;

/// Somebody has it, and nobody sleeps.
const LOCKED: u32 = 1;

/// Somebody has it, and somebody may sleep.
const CONTENDED: u32 = 2;

//! Panics in an engine: some messages panic the thread that receives them while it holds the engine.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Mutex;

use super::node::lock;
use crate::random::Random;

/// The panics of one node.
#[derive(Debug)]
pub(super) struct Panics {
    one_in: u32,
    random: Mutex<Random>,
}

/// The payload of such a panic.
struct Planned;

impl Panics {
    pub(super) const fn new(one_in: u32, random: Random) -> Self {
        Self { one_in, random: Mutex::new(random) }
    }

    /// Returns whether this story has panics.
    pub(super) const fn may_happen(&self) -> bool {
        self.one_in != 0
    }

    /// Panics at random, without a message.
    pub(super) fn maybe(&self) {
        let panics = lock(&self.random).one_in(self.one_in);
        if panics {
            resume_unwind(Box::new(Planned));
        }
    }
}

/// Runs `run`. Returns none if it ended with a planned panic; other panics propagate.
pub(super) fn survived<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(panic) if panic.is::<Planned>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

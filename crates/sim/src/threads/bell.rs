//! The hand-over of control between threads of the operating system.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A bell for one thread, which sleeps until it is rung.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present or the next wait.
    pub(super) fn ring(&self) {
        *self.lock() = true;
        self.changed.notify_one();
    }

    /// Sleeps until the bell is rung.
    pub(super) fn wait(&self) {
        let mut rung = self.lock();
        while !core::mem::take(&mut *rung) {
            rung = self.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

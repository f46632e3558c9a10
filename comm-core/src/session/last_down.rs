//! The cause of a session's last end, which the errors of its calls name.

use pronto_sync::TryLock;

use super::link::DownCause;
use crate::executor::Executor;
use crate::wait::back_off::BackOff;

/// The cause of the last end. Its lock is held while the cause is copied, and never while another one is taken.
#[derive(Debug)]
pub(super) struct LastDown(TryLock<Option<DownCause>>);

impl LastDown {
    pub(super) fn new() -> Self {
        Self(TryLock::new(None))
    }

    /// Records a cause. The engine's holder does so before it ends the calls of the session.
    pub(super) fn set(&self, cause: DownCause, executor: &impl Executor) {
        self.with(executor, |last| *last = Some(cause));
    }

    /// Returns the cause, or `None` if no session has ended.
    pub(super) fn read(&self, executor: &impl Executor) -> Option<DownCause> {
        self.with(executor, |last| *last)
    }

    #[cold]
    fn with<T>(&self, executor: &impl Executor, access: impl FnOnce(&mut Option<DownCause>) -> T) -> T {
        let mut back_off = BackOff::default();
        loop {
            if let Some(mut last) = self.0.try_lock() {
                return access(&mut last);
            }
            back_off.pause(executor);
        }
    }
}

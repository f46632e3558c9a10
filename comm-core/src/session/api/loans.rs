//! Send memory for senders outside of the engine.

use pronto_wire::Class;

use super::Session;
use crate::buf::Loan;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::session::send_error::SendError;
use crate::session::shared::Turn;

impl<Q: QueuePair> Session<Q> {
    /// Returns a buffer for a sender that does not hold the engine. If the thread's arena has no room, first processes send completions,
    /// unless another thread holds the engine. This frees memory that was used a moment before and is still in the cache. Without it, a
    /// caller whose first poll always finds its response would process no completions, and would cycle through all send memory.
    ///
    /// # Errors
    /// The errors of [`Shared::loan`](crate::session::Shared::loan).
    #[inline]
    pub fn loan_after_reaping(
        &self,
        class: Class,
        len: usize,
        owner: u32,
        executor: &impl Executor,
    ) -> Result<Loan, SendError> {
        match self.rings[class.index()].loan_of_arena(len, owner) {
            Some(loan) => Ok(loan),
            None => {
                self.reap(executor);
                self.loan(class, len, owner).inspect_err(|refused| {
                    if *refused == SendError::NoRing {
                        self.want_link(executor);
                    }
                })
            }
        }
    }

    /// Processes send completions, unless another thread holds the engine.
    #[cold]
    #[inline(never)]
    pub(super) fn reap(&self, executor: &impl Executor) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.reap_sends(Turn::new(self, executor));
            engine.release();
            self.recheck(executor);
        }
    }
}

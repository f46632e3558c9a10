//! Send memory for those who have something to send.

use pronto_wire::Class;

use super::Session;
use crate::buf::Loan;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::session::refusal::Refused;
use crate::session::shared::Turn;

impl<Q: QueuePair> Session<Q> {
    /// The same for a sender outside of the engine. Where the strip of its thread does not do, it first takes in which sends have
    /// completed, if nobody else is at it: a stream then comes back to memory that it has used a moment ago. A caller that finds
    /// each answer when it looks takes in nothing else, and would walk through all send memory, out of every cache.
    ///
    /// # Errors
    /// As [`Shared::loan`](crate::session::Shared::loan).
    #[inline]
    pub fn loan_after_reaping(
        &self,
        class: Class,
        len: usize,
        owner: u32,
        executor: &impl Executor,
    ) -> Result<Loan, Refused> {
        match self.rings[class.index()].loan_of_strip(len, owner) {
            Some(loan) => Ok(loan),
            None => {
                self.reap(executor);
                self.loan(class, len, owner)
            }
        }
    }

    /// Takes in which sends have completed, unless another thread holds the engine.
    #[cold]
    #[inline(never)]
    pub(super) fn reap(&self, executor: &impl Executor) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.reap_sends(Turn::new(self, executor));
            engine.release();
            self.look_once_more(executor);
        }
    }
}

//! Writes with an immediate: the sender writes, then publishes a line that says so, in its place among the messages.

use pronto_core::fabric::{FabricError, PostError, Received, Region, RemoteRange};

use crate::form::{self, Words};
use crate::lease::ShmLease;
use crate::queue_pair::ShmQueuePair;

impl ShmQueuePair {
    /// Writes, then says so. The line is published after the bytes, so that whoever reads it finds them.
    pub(crate) fn write_with_immediate(
        &mut self,
        (local, local_offset): (&Region, u64),
        remote: RemoteRange,
        immediate: u32,
    ) -> Result<(), PostError> {
        if remote.len == 0 {
            return Err(PostError::NotGranted);
        }
        self.held.write(local, local_offset, remote)?;
        self.sending.post_immediate(immediate);
        Ok(())
    }

    /// Takes this immediate in, and those behind it, up to the next message.
    #[cold]
    pub(crate) fn take_immediates(
        &mut self,
        words: &Words,
    ) -> Result<Option<Received<ShmLease>>, FabricError> {
        let mut line = *words;
        loop {
            self.immediates.push(form::immediate_of(&line)).map_err(|fault| self.fail(fault.into()))?;
            match self.receiving.poll().map_err(|fault| self.fail(fault.into()))? {
                None => return Ok(None),
                Some((next, form::IMMEDIATE)) => line = next,
                Some((next, form)) if self.receiving.is_inline(form) => {
                    return Ok(Some(form::message(&next, form)));
                }
                Some((next, form)) => return self.take_elsewhere(&next, form),
            }
        }
    }
}

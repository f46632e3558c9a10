//! Immediates that have arrived and were not polled yet, for providers to keep.

use alloc::collections::VecDeque;

use super::error::PeerFault;

/// Immediates in their order, at most as many as a side can receive messages: each has taken a receive of its own.
#[derive(Debug)]
pub struct Immediates {
    waiting: VecDeque<u32>,
    most: usize,
}

impl Immediates {
    /// For a queue pair of this receive depth, messages. Takes no memory before the first comes.
    pub fn new(receive_depth: u32) -> Self {
        Self { waiting: VecDeque::new(), most: receive_depth as usize }
    }

    /// Takes one that has arrived.
    ///
    /// # Errors
    /// The peer has sent more than it may before any was polled.
    pub fn push(&mut self, immediate: u32) -> Result<(), PeerFault> {
        if self.waiting.len() >= self.most {
            return Err(PeerFault::Overrun);
        }
        self.waiting.push_back(immediate);
        Ok(())
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_and_no_more_than_the_depth() {
        let mut immediates = Immediates::new(2);
        assert_eq!(immediates.pop(), None);
        for lap in 0..3 {
            assert_eq!(immediates.push(lap), Ok(()));
            assert_eq!(immediates.push(u32::MAX), Ok(()));
            assert_eq!(immediates.push(7), Err(PeerFault::Overrun));
            assert_eq!(
                [immediates.pop(), immediates.pop(), immediates.pop()],
                [Some(lap), Some(u32::MAX), None]
            );
        }
    }
}

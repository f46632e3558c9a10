//! Receive buffers: one pool per node, shared by all its connections, with a budget in bytes for the buffers that it
//! keeps.
//!
//! A connection's receive depth is a promise to the peer: the peer sends that many messages without waiting. A
//! connection that holds fewer leases is therefore always served, even beyond the budget. Otherwise, a message without
//! a buffer would stop the stream, and with it the replies behind it. The users of the leases may be waiting for
//! exactly those replies, and then no lease would ever return.
//!
//! A connection that holds more leases than its depth shares the budget with the others. The peer gets a credit for a
//! message only after the user of an earlier one has finished with it, so the missing lease returns without another
//! message.
//!
//! # Invariants
//! 1. `allocated` counts the bytes of every buffer that exists, leased or free. It exceeds the budget only by buffers
//!    for connections within their depths; buffers above the budget return to the system, not to the pool. So it is at
//!    most the budget, plus depth times longest payload (rounded up to a size class) of each connection. Pages of a new
//!    buffer take memory only when bytes arrive in them.
//! 2. `held` of an account changes only under the pool's lock, so that a connection either sees a lease come back or is
//!    woken by it.

use core::mem;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::fabric::{OutOfBounds, Payload};
use pronto_sync::atomic::AtomicUsize;

use crate::error::SetupError;

/// Minimum buffer size, bytes: a shorter payload is sent inline or does not need a class of its own.
const SMALLEST: usize = 256;
/// Number of size classes: powers of two from 256 B to 256 MiB, the longest frame.
const CLASSES: usize = 21;

/// Receive buffers of a node, shared by all its connections and bounded in bytes.
#[derive(Debug)]
pub struct ReceivePool {
    budget: usize,
    state: Mutex<State>,
    returned: EventFd,
}

#[derive(Debug)]
struct State {
    free: [Vec<Box<[u8]>>; CLASSES],
    allocated: usize,
    waiting: bool,
}

impl ReceivePool {
    /// Makes a pool that keeps at most `budget` bytes. It allocates more while connections need it to receive the
    /// messages that their depths promise. Nothing is allocated initially.
    pub fn new(budget: usize) -> Result<Arc<Self>, SetupError> {
        let returned = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let state = State { free: [const { Vec::new() }; CLASSES], allocated: 0, waiting: false };
        Ok(Arc::new(Self { budget, state: Mutex::new(state), returned }))
    }

    /// Returns the number of bytes of all buffers that exist, leased or free.
    pub fn allocated(&self) -> usize {
        self.lock().allocated
    }

    /// Returns the budget in bytes.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Checks that one message of `len` bytes fits the budget.
    pub(crate) fn check(&self, len: u32) -> Result<(), SetupError> {
        let needed = class_of(len as usize).map_or(usize::MAX, |class| SMALLEST << class);
        if needed > self.budget {
            return Err(SetupError::PoolTooSmall { budget: self.budget, needed });
        }
        Ok(())
    }

    /// Returns the descriptor that becomes readable when a buffer is returned while a connection waits for one. A
    /// sleeping thread watches it next to the connections' channels. After an event, call [`clear`](Self::clear), then
    /// poll every connection whose channel is not waited for as readable.
    pub fn channel(&self) -> BorrowedFd<'_> {
        self.returned.as_fd()
    }

    /// Consumes the event. Call this before polling the connections, or an event may be lost.
    pub fn clear(&self) {
        // An error means that there was no event, which is fine.
        let _ = self.returned.read();
    }

    fn take(&self, len: usize, Account { held, depth, .. }: &Account) -> Option<Box<[u8]>> {
        let class = class_of(len)?;
        let size = SMALLEST << class;
        let mut state = self.lock();
        // Relaxed: the lock orders it (invariant 2).
        let served = held.load(Ordering::Relaxed);
        if let Some(buffer) = state.free[class].pop() {
            held.store(served + 1, Ordering::Relaxed);
            return Some(buffer);
        }
        let evicted = state.make_room(size, self.budget);
        if state.allocated + size > self.budget && served >= *depth {
            state.waiting = true;
            return None;
        }
        state.allocated += size;
        held.store(served + 1, Ordering::Relaxed);
        drop(state);
        drop(evicted);
        Some(vec![0; size].into_boxed_slice())
    }

    fn put(&self, buffer: Box<[u8]>, held: &AtomicUsize) {
        let mut state = self.lock();
        held.store(held.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        let surplus = if state.allocated > self.budget {
            state.allocated -= buffer.len();
            Some(buffer)
        } else {
            let class = class_of(buffer.len()).expect("came out of this pool");
            state.free[class].push(buffer);
            None
        };
        let wake = mem::take(&mut state.waiting);
        drop(state);
        drop(surplus);
        if wake {
            // The counter cannot overflow before 2^64 - 1 events, and a reader takes them all.
            let _ = self.returned.write(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes free buffers, the largest first, until `size` more bytes fit the budget or none is left.
    fn make_room(&mut self, size: usize, budget: usize) -> Vec<Box<[u8]>> {
        let mut evicted = Vec::new();
        for free in self.free.iter_mut().rev() {
            while self.allocated + size > budget {
                let Some(buffer) = free.pop() else { break };
                self.allocated -= buffer.len();
                evicted.push(buffer);
            }
        }
        evicted
    }
}

/// Returns the index of the smallest class that holds `len` bytes.
fn class_of(len: usize) -> Option<usize> {
    let size = len.max(SMALLEST).checked_next_power_of_two()?;
    let class = (size / SMALLEST).trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// One connection's account with the pool.
#[derive(Debug)]
pub(crate) struct Account {
    pool: Arc<ReceivePool>,
    held: AtomicUsize,
    /// Number of leases that the connection may hold regardless of the budget.
    depth: usize,
}

impl Account {
    /// Opens an account for a connection with up to `depth` messages in flight.
    pub(crate) fn new(pool: &Arc<ReceivePool>, depth: u32) -> Arc<Self> {
        // At least one: a connection that can receive nothing would never end.
        let depth = usize::try_from(depth).unwrap_or(usize::MAX).max(1);
        Arc::new(Self { pool: Arc::clone(pool), held: AtomicUsize::new(0), depth })
    }

    /// Leases a buffer for `len` bytes. Returns `None` if the connection holds as many leases as its depth and the
    /// budget is used up; the caller can retry when a lease returns.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<Lease> {
        let buffer = self.pool.take(len, self)?;
        Some(Lease { account: Arc::clone(self), buffer, len })
    }
}

/// A received payload in a buffer of the pool, to which it returns when dropped.
#[derive(Debug)]
pub struct Lease {
    account: Arc<Account>,
    buffer: Box<[u8]>,
    len: usize,
}

impl Lease {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }
}

impl Payload for Lease {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let end = offset.checked_add(out.len());
        let bytes = end.and_then(|end| self.bytes().get(offset..end));
        let bytes = bytes.ok_or(OutOfBounds { offset, wanted: out.len(), len: self.len })?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn as_private(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.account.pool.put(mem::take(&mut self.buffer), &self.account.held);
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn event(pool: &ReceivePool) -> bool {
        poll(&mut [PollFd::new(pool.channel(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_warm_pool_reuses_returned_buffers() {
        let account = Account::new(&ReceivePool::new(1 << 20).unwrap(), 1);
        let first = account.take(300).unwrap();
        let at = first.buffer.as_ptr();
        drop(first);
        assert_eq!(account.take(512).unwrap().buffer.as_ptr(), at);
        assert_eq!(account.pool.allocated(), 512);
    }

    #[test]
    fn an_empty_pool_lends_nothing_and_signals_a_returned_buffer() {
        let pool = ReceivePool::new(1024).unwrap();
        let account = Account::new(&pool, 1);
        let lease = account.take(1000).unwrap();
        assert!(account.take(100).is_none());
        assert!(!event(&pool));
        drop(lease);
        assert!(event(&pool));
        pool.clear();
        assert!(!event(&pool));
        // The free buffer of 1024 bytes makes way for the smaller class.
        assert!(account.take(100).is_some());
        assert_eq!(pool.allocated(), 256);
    }

    #[test]
    fn there_is_no_event_when_no_connection_waits() {
        let pool = ReceivePool::new(1024).unwrap();
        drop(Account::new(&pool, 1).take(1000));
        assert!(!event(&pool));
    }

    /// Shows: operations.receive-budget
    #[test]
    fn a_connection_within_its_depth_is_served_beyond_the_budget() {
        let pool = ReceivePool::new(1024).unwrap();
        let (greedy, modest) = (Account::new(&pool, 1), Account::new(&pool, 3));
        let held = greedy.take(1000).unwrap();
        assert!(greedy.take(1000).is_none());
        let served = [(); 3].map(|()| modest.take(1000).unwrap());
        assert!(modest.take(1000).is_none());
        assert_eq!(pool.allocated(), 4096);
        drop(served);
        assert_eq!(pool.allocated(), 1024, "buffers beyond the budget are freed");
        drop(held);
    }

    #[test]
    fn lengths_find_their_class() {
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(256), Some(0));
        assert_eq!(class_of(257), Some(1));
        assert_eq!(class_of((1 << 28) - 1), Some(CLASSES - 1));
        assert_eq!(class_of((1 << 28) + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }
}

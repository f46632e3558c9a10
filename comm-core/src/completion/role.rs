//! Who polls a peer's completion queues, and who sleeps meanwhile.
//!
//! Among the threads that wait for something from one peer, one holds the role: it polls, or sleeps in the completion
//! channel. The others sleep on their own words and are woken when their end comes, or when the role is theirs to take.
//!
//! # Invariants
//! 1. At most one thread holds the role.
//! 2. Whoever gives the role up looks for an enlisted follower afterwards and wakes one; whoever strikes itself from the
//!    list does the same if the role is free. So with followers left, the role is held or somebody is on the way to it.
//! 3. A follower enlists, arms its word, then looks at the role once more before it sleeps.
//! 4. While the server polls for good, nobody sleeps in the channel, and sleepers need no holder: the server finds their ends. A server
//!    that no longer does wakes one of them, who takes the role.

use alloc::boxed::Box;

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const BITS: u16 = 64;

pub(super) const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held by a thread that sleeps in the channel.
const ASLEEP: u32 = 2;

/// The role of one peer's poller, and the list of those who would take it.
#[derive(Debug)]
pub struct Role {
    pub(super) holder: AtomicU32,
    /// One bit per waiter slot: enlisted followers.
    pub(super) followers: Box<[AtomicU64]>,
    /// What the node's serving thread does, which alone writes it.
    pub(super) server: AtomicU32,
}

impl Role {
    /// The role for waiters in `slots` slots; nobody has it.
    pub fn new(slots: u16) -> Self {
        let words = slots.div_ceil(BITS);
        Self {
            holder: AtomicU32::new(FREE),
            followers: (0..words).map(|_| AtomicU64::new(0)).collect(),
            server: AtomicU32::new(Server::Awake as u32),
        }
    }

    /// Takes the role if it is free.
    pub fn claim(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == FREE
            // SYNC: sees what the last holder did; pairs with the release in `release`.
            && self.holder.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the role up. If there are followers, one of them is named: wake it. If `None`, nobody waits for the role.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn release(&self) -> Option<u16> {
        // SYNC: publishes what was polled; pairs with `claim`.
        self.holder.store(FREE, Ordering::Release);
        self.successor()
    }

    /// The holder is about to sleep in the channel, or awake again. What it waits for must then be left to it: whoever took
    /// it out of the queue would take the event as well.
    pub fn holder_sleeps(&self, sleeps: Server) {
        let state = if matches!(sleeps, Server::Sleeps) { ASLEEP } else { HELD };
        // Relaxed: whoever polls looks at it under the engine's lock, which the holder takes after this.
        self.holder.store(state, Ordering::Relaxed);
    }

    /// Whether the holder sleeps in the channel.
    pub fn is_asleep(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == ASLEEP
    }

    /// Whether nobody holds the role.
    pub fn is_free(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == FREE
    }

    /// The waiter in this slot is about to sleep as a follower. It arms its word next, and then looks at
    /// [`Role::is_free`] once more.
    pub fn enlist(&self, slot: u16) {
        self.followers[usize::from(slot / BITS)].fetch_or(1 << (slot % BITS), Ordering::Relaxed);
    }

    /// The waiter in this slot sleeps no more, for whatever reason. If the role is free and another follower is enlisted,
    /// that one is named: wake it, unless the caller takes the role itself.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn strike(&self, slot: u16) -> Option<u16> {
        self.followers[usize::from(slot / BITS)].fetch_and(!(1 << (slot % BITS)), Ordering::Relaxed);
        // SYNC: orders leaving the list before the look at the role; pairs with the fence in `successor`. Without it a
        // holder could name this waiter, which is awake and needs no waking, while this waiter still sees the role held:
        // neither wakes the next.
        fence(Ordering::SeqCst);
        if self.is_free() { self.successor() } else { None }
    }

    /// What the server does from now on. After saying that it sleeps it looks at [`Role::is_free`]: if it is, arming is its own
    /// business, else the holder's when it gives the role up. A follower that relied on a server which polls is named: wake it.
    #[must_use = "a follower that is not woken sleeps although nobody polls for it"]
    pub fn server_is(&self, server: Server) -> Option<u16> {
        let polled = self.is_left_to_server();
        self.server.store(server as u32, Ordering::Relaxed);
        // SYNC: orders the store before the look at the role; pairs with the fence in `successor`.
        fence(Ordering::SeqCst);
        if polled && self.is_free() { self.successor() } else { None }
    }

    /// Whether the server sleeps and relies on the channel.
    pub fn server_relies_on_channel(&self) -> bool {
        self.server.load(Ordering::Relaxed) == Server::Sleeps as u32
    }

    /// Whether the server polls for good, so that who would sleep may leave what it waits for to it.
    pub fn is_left_to_server(&self) -> bool {
        self.server.load(Ordering::Relaxed) == Server::Polls as u32
    }

    /// Every enlisted follower.
    pub fn followers(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.followers).flat_map(|(word, bits)| {
            let bits = bits.load(Ordering::Relaxed);
            (0..BITS).filter(move |bit| bits & 1 << bit != 0).map(move |bit| word * BITS + bit)
        })
    }

    /// An enlisted follower, if there is one that the server does not poll for.
    pub(super) fn successor(&self) -> Option<u16> {
        // SYNC: orders giving the role up before reading the list; pairs with the fence of arming a follower's word, which
        // stands between its enlisting and its second look at the role.
        fence(Ordering::SeqCst);
        if self.is_left_to_server() {
            return None;
        }
        (0u16..).zip(&self.followers).find_map(|(word, bits)| {
            let bits = bits.load(Ordering::Relaxed);
            (bits != 0).then(|| word * BITS + u16::try_from(bits.trailing_zeros()).expect("below 64"))
        })
    }
}

/// What the node's serving thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Server {
    /// Polls for a while, or works.
    Awake,
    /// Sleeps until a channel has an event.
    Sleeps,
    /// Polls, and does not sleep before it has said so.
    Polls,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_holder_and_an_orderly_succession() {
        let role = Role::new(70);
        assert!(role.claim());
        assert!(!role.claim());
        role.enlist(3);
        role.enlist(69);
        assert!(role.followers().eq([3, 69]));
        assert_eq!(role.release(), Some(3));
        assert_eq!(role.strike(3), Some(69), "the role is free and 69 still waits");
        assert!(role.claim());
        assert_eq!(role.strike(69), None);
        assert_eq!(role.release(), None);
    }

    #[test]
    fn who_relies_on_a_server_that_polls_is_named_when_it_no_longer_does() {
        let role = Role::new(2);
        assert_eq!(role.server_is(Server::Polls), None);
        role.enlist(0);
        role.enlist(1);
        assert!(role.claim());
        assert_eq!(role.release(), None, "the server polls for both");
        assert_eq!(role.server_is(Server::Sleeps), Some(0));
        assert!(role.claim() && role.server_relies_on_channel());
        assert_eq!(role.strike(0), None);
        assert_eq!(role.release(), Some(1));
        assert_eq!(role.server_is(Server::Polls), None);
        assert!(role.claim());
        assert_eq!(role.server_is(Server::Awake), None, "the role's holder hands over");
        assert_eq!(role.release(), Some(1));
    }
}

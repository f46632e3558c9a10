//! Caps: a boost is paid for by the thread, by its user and by the processor, and the poorest of them decides.
//!
//! A boosted thread passes everybody, so what it can take is bounded three times: a thread by itself, all threads of a
//! user, so that making more of them gains nothing, and all boosts together, so that half of a processor stays for who
//! has none. The user's account is kept per processor, as the processor's is, so no account is charged from two
//! processors at once; a thread that moves pays where it ran. Expedite has the first bound only (section 3.4); fairness between many
//! flagged threads it leaves to the scheduler (section 4.3).

use super::budget::{Budget, Cap, Quantum, Terms};
use super::share::Share;
use super::time::Nanos;

/// A thread's cap: a tenth of a processor. There lies the knee of the paper's rule: a small simulation of its kernel kept
/// 92 % of the boosts of a thread that used 8 % of a processor, and 65 % at 13 %.
pub const THREAD: Share = Share::percent(10);

/// All threads of a user, on one processor: ours; room for two busy threads.
pub const USER: Share = Share::percent(25);

/// All boosts on one processor: ours; what is not boosted keeps at least half.
pub const PROCESSOR: Share = Share::percent(50);

/// The window of all caps: ten ticks of the paper's clock (10 ms, section 3.2), about an epoch of its kernel under load
/// (75 ms in a simulation of the experiment of section 4). Ours.
pub const WINDOW: Nanos = Nanos::from_millis(100);

/// What a thread earns that is to use little of a processor in all, boosted or not: the boost is kept while it uses less
/// than half a grant per epoch, 2 % of a processor, and lost above.
///
/// The paper loses the boost at 1.6 ms per 50 ms (figure 5, 3.2 %), which does not follow from its rule of ten ticks: a
/// simulation of that rule keeps 97 % of the boosts. Two per cent states the intent, with an epoch of 100 ms and half
/// carried over. With use `u` per epoch the budget converges to `2 * grant - u` after a refill and `2 * (grant - u)`
/// before one, so a floor of one grant is missed at the end of epochs from `u = grant / 2` on.
pub const LITTLE: Quantum =
    Quantum { epoch: Nanos::from_millis(100), grant: Nanos::from_millis(4), floor: Nanos::from_millis(4) };

/// Whose account it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    /// The boosted thread itself.
    Thread,
    /// All threads of its user on this processor.
    User,
    /// All boosted threads on this processor.
    Processor,
}

/// The terms of the three accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Of each thread.
    pub thread: Terms,
    /// Of each user, per processor.
    pub user: Terms,
    /// Of each processor.
    pub processor: Terms,
}

/// The three budgets that pay for one thread's boost. In the kernel the latter two are copied in and out under the
/// lock of the processor at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts {
    /// The thread's.
    pub thread: Budget,
    /// Its user's on this processor.
    pub user: Budget,
    /// This processor's.
    pub processor: Budget,
}

impl Caps {
    /// 10, 25 and 50 % of a processor over 100 ms. A boost begins only if `floor`, one dispatch slice, can be paid.
    pub fn standard(floor: Nanos) -> Self {
        let terms = |share| Terms::capped(Cap { share, window: WINDOW }, floor);
        Self { thread: terms(THREAD), user: terms(USER), processor: terms(PROCESSOR) }
    }

    /// The same, but that a thread must use [`LITTLE`].
    pub fn for_sleepers(floor: Nanos) -> Self {
        Self { thread: Terms::quantum(LITTLE), ..Self::standard(floor) }
    }
}

impl Accounts {
    /// Three fresh accounts.
    pub const fn new(caps: &Caps, now: Nanos) -> Self {
        Self {
            thread: Budget::new(&caps.thread, now),
            user: Budget::new(&caps.user, now),
            processor: Budget::new(&caps.processor, now),
        }
    }

    /// The accounts at `now`, after `spent` more of boosted processor time.
    #[must_use]
    pub fn settled(self, caps: &Caps, spent: Nanos, now: Nanos) -> Self {
        Self {
            thread: self.thread.charged(spent).refilled(&caps.thread, now),
            user: self.user.charged(spent).refilled(&caps.user, now),
            processor: self.processor.charged(spent).refilled(&caps.processor, now),
        }
    }

    /// What the poorest of the three has left.
    pub fn left(&self) -> Nanos {
        self.thread.left().min(self.user.left()).min(self.processor.left())
    }

    /// How long the thread may run boosted, if all three can pay.
    ///
    /// # Errors
    /// Who cannot: of several, the narrowest, as the thread's own behaviour is what its author can change.
    pub fn allowance(&self, caps: &Caps) -> Result<Nanos, Payer> {
        self.thread.allowance(&caps.thread).ok_or(Payer::Thread)?;
        self.user.allowance(&caps.user).ok_or(Payer::User)?;
        self.processor.allowance(&caps.processor).ok_or(Payer::Processor)?;
        Ok(self.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Nanos = Nanos::from_micros(200);

    #[test]
    fn the_poorest_decides() {
        let caps = Caps::standard(FLOOR);
        let fresh = Accounts::new(&caps, Nanos::ZERO);
        assert_eq!(fresh.allowance(&caps), Ok(Nanos(833_333)), "the thread's own grant is the smallest");
        let mut poor = fresh;
        poor.processor = poor.processor.charged(Nanos(4_166_666 - 200_000));
        assert_eq!(poor.allowance(&caps), Ok(FLOOR));
        poor.processor = poor.processor.charged(Nanos(1));
        assert_eq!(poor.allowance(&caps), Err(Payer::Processor));
        poor.user = poor.user.charged(WINDOW);
        assert_eq!(poor.allowance(&caps), Err(Payer::User));
        poor.thread = poor.thread.charged(WINDOW);
        assert_eq!(poor.allowance(&caps), Err(Payer::Thread));
    }

    #[test]
    fn everybody_pays_the_same_time() {
        let caps = Caps::standard(FLOOR);
        let accounts = Accounts::new(&caps, Nanos::ZERO).settled(&caps, Nanos(1_000), Nanos::ZERO);
        let left = [accounts.thread, accounts.user, accounts.processor].map(|budget| budget.left().0);
        assert_eq!(left, [833_333 - 1_000, 2_083_333 - 1_000, 4_166_666 - 1_000]);
    }
}

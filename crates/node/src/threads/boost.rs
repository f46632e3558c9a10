//! The booster of a node: the requested boost, and the one that was obtained.

use core::fmt;
use std::sync::{Mutex, PoisonError};

use pronto_core::{BoostError, Nanos, Tier};
use pronto_expedite::scx::{Refused, Renewal};
use pronto_expedite::{Missing, Obtained};
use serde::Deserialize;

use crate::threads::sched_class;

/// Scheduling boost for the threads that handle a node's messages, so that they get a CPU sooner when a message arrives.
///
/// A node whose boost may make threads real-time (all but `Slice`, `Scx` and `None`) never polls, whatever its wait policy is, because a
/// polling real-time thread keeps all other threads off its CPU.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Boost {
    /// The best boost that this process may use: the module, a real-time class, a short time slice, or none.
    Auto,
    /// Boost by the kernel module `expedite`.
    Module,
    /// Real-time class, within a budget of a tenth of a CPU for each thread.
    Fifo,
    /// Short time slice, which needs no privilege.
    Slice,
    /// Reserved share of a CPU in each period. The threads cannot be bound to a CPU.
    Deadline,
    /// Boost by the BPF scheduler that `pronto expedite scx` loads, while it runs.
    Scx,
    /// No boost.
    #[default]
    None,
}

impl Boost {
    /// Returns the requested tier, or `None` for `Auto`.
    const fn tier(self) -> Option<Tier> {
        match self {
            Self::Auto => None,
            Self::Module => Some(Tier::Module),
            Self::Fifo => Some(Tier::Fifo),
            Self::Slice => Some(Tier::Slice),
            Self::Deadline => Some(Tier::Deadline),
            Self::Scx => Some(Tier::Scx),
            Self::None => Some(Tier::None),
        }
    }
}

/// Time between two checks whether a boost lasts that may end, and between two attempts to restore it. Chosen by us; no source.
const CHECKED: Nanos = Nanos::from_secs(1);

/// The booster of a node.
#[derive(Debug)]
pub(crate) struct Boosting {
    obtained: Obtained,
    /// Whether the tier may make threads real-time.
    must_sleep: bool,
    needs_descriptors: bool,
    failures: Mutex<Failures>,
    /// Reason for no boost that was logged last, if there is no boost now.
    logged: Mutex<Option<Refused>>,
}

/// Counts of threads and channels for which the boost failed.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    threads: u64,
    channels: u64,
    last: Option<BoostError>,
}

impl Boosting {
    pub(crate) fn new(wanted: Boost) -> Self {
        let obtained = pronto_expedite::obtain(wanted.tier());
        if wanted != Boost::Auto && !obtained.missing.is_empty() {
            tracing::warn!(boost = %obtained, "messages are handled without a boost");
        } else if wanted != Boost::None {
            tracing::info!(boost = %obtained, "boost of message handlers");
        }
        let tier = obtained.booster.tier();
        let logged = obtained.missing.iter().find_map(|(_, why)| match why {
            Missing::Scx(why) => Some(*why),
            _ => None,
        });
        Self {
            obtained,
            must_sleep: tier.may_be_real_time(),
            needs_descriptors: tier == Tier::Module,
            failures: Mutex::default(),
            logged: Mutex::new(logged),
        }
    }

    /// Checks whether the boost lasts, and restores it if possible. Returns the time of the next check. Only the links thread calls
    /// this, since it makes system calls.
    pub(crate) fn renew(&self, now: Nanos) -> Nanos {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        match self.obtained.renew() {
            None => return Nanos::NEVER,
            Some(Renewal::Missing(why)) if *logged != Some(why) => {
                tracing::warn!(boost = %self.obtained, "messages are handled without a boost");
                *logged = Some(why);
            }
            Some(Renewal::Renewed { refused, why }) => {
                tracing::info!(boost = %self.obtained, refused, "boost of message handlers");
                *logged = None;
                if let Some(why) = why {
                    self.note(|failures| failures.threads += refused, why.into());
                }
            }
            Some(_) => {}
        }
        now + CHECKED
    }

    /// Returns whether a thread that handles messages must sleep when it waits.
    #[inline]
    pub(crate) const fn must_sleep(&self) -> bool {
        self.must_sleep
    }

    /// Returns whether only threads that wait on descriptors are boosted.
    pub(crate) const fn needs_descriptors(&self) -> bool {
        self.needs_descriptors
    }

    /// Boosts the calling thread, which handles messages from now on.
    pub(crate) fn adopt(&self) {
        if let Err(error) = self.obtained.booster.adopt() {
            tracing::warn!(%error, "a thread handles messages without a boost");
            self.note(|failures| failures.threads += 1, error);
        }
        sched_class::forget();
    }

    /// Boosts the threads that wait for messages on this descriptor.
    pub(crate) fn watch(&self, fd: i32) {
        if let Err(error) = self.obtained.booster.watch(fd) {
            tracing::debug!(fd, %error, "no boost for threads waiting on this channel");
            self.note(|failures| failures.channels += 1, error);
        }
    }

    pub(crate) fn before_wait(&self) {
        self.obtained.booster.before_wait();
    }

    pub(crate) fn worked(&self) {
        self.obtained.booster.worked();
    }

    fn note(&self, count: impl FnOnce(&mut Failures), error: BoostError) {
        // The counts are consistent even if a lock holder panicked.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut failures);
        failures.last = Some(error);
    }
}

impl fmt::Display for Boosting {
    /// Writes the obtained boost, why better ones are not available, and how many threads and channels are not boosted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.obtained)?;
        let Failures { threads, channels, last } =
            *self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = last {
            write!(f, "; not boosted: {threads} threads and {channels} channels: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pronto_core::Booster;
    use pronto_sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A booster that counts the reports of threads.
    #[derive(Debug, Default)]
    struct Reports {
        before_wait: AtomicU32,
        worked: AtomicU32,
    }

    impl Booster for Reports {
        fn tier(&self) -> Tier {
            Tier::None
        }

        fn adopt(&self) -> Result<(), BoostError> {
            Ok(())
        }

        fn watch(&self, _: i32) -> Result<(), BoostError> {
            Ok(())
        }

        fn before_wait(&self) {
            self.before_wait.fetch_add(1, Ordering::Relaxed);
        }

        fn worked(&self) {
            self.worked.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_booster_gets_the_reports_of_threads() {
        let reports = Arc::new(Reports::default());
        let mut boosting = Boosting::new(Boost::None);
        boosting.obtained.booster = Arc::<Reports>::clone(&reports);
        boosting.before_wait();
        boosting.worked();
        boosting.worked();
        let count = |count: &AtomicU32| count.load(Ordering::Relaxed);
        assert_eq!((count(&reports.before_wait), count(&reports.worked)), (1, 2));
    }

    /// Shows: operations.not-boosted
    #[test]
    fn failed_boosts_are_reported() {
        let boosting = Boosting::new(Boost::None);
        assert_eq!(boosting.to_string(), "none");
        boosting.note(|failures| failures.channels += 2, BoostError::Unsupported);
        let text = boosting.to_string();
        assert!(
            text.starts_with("none; not boosted: 0 threads and 2 channels: threads waiting on"),
            "{text}"
        );
    }

    /// Shows: operations.real-time-sleeps
    #[test]
    fn threads_that_may_be_real_time_must_sleep() {
        assert!(!Boosting::new(Boost::None).must_sleep());
        assert!(!Boosting::new(Boost::Slice).must_sleep());
        let fifo = Boosting::new(Boost::Fifo);
        assert_eq!(fifo.must_sleep(), fifo.to_string() == "fifo");
    }
}

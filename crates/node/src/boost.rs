//! What a node asks of the booster, and what it got.

use core::fmt;
use std::sync::{Mutex, PoisonError};

use pronto_core::{BoostError, Tier};
use pronto_expedite::Obtained;
use serde::Deserialize;

use crate::standing;

/// How the threads that handle a node's messages get onto their processors when one arrives.
///
/// A node with a tier that may make threads real-time (all but `Slice` and `None`) never polls, whatever its waiting policy
/// says: a real-time thread that polls keeps its processor from everybody.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Boost {
    /// The best of the module, a real-time class, a short time slice and nothing that this process may have.
    Auto,
    /// By the kernel module `expedite`.
    Module,
    /// Real-time, within a budget of a tenth of a processor for each thread.
    Fifo,
    /// A short time slice; needs no privilege.
    Slice,
    /// A share of the processor in each period; its threads cannot be bound to a processor.
    Deadline,
    /// As any thread.
    #[default]
    None,
}

impl Boost {
    /// The tier that is named, if one is.
    const fn tier(self) -> Option<Tier> {
        match self {
            Self::Auto => None,
            Self::Module => Some(Tier::Module),
            Self::Fifo => Some(Tier::Fifo),
            Self::Slice => Some(Tier::Slice),
            Self::Deadline => Some(Tier::Deadline),
            Self::None => Some(Tier::None),
        }
    }
}

/// The booster of a node.
#[derive(Debug)]
pub(crate) struct Boosting {
    obtained: Obtained,
    /// Its tier may make threads real-time.
    must_sleep: bool,
    failures: Mutex<Failures>,
}

/// Threads and channels that are not boosted though they should be.
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
            tracing::info!(boost = %obtained, "how handlers are boosted");
        }
        let must_sleep = obtained.booster.tier().may_be_real_time();
        Self { obtained, must_sleep, failures: Mutex::default() }
    }

    /// Whether a thread that handles messages must sleep when it waits.
    #[inline]
    pub(crate) const fn must_sleep(&self) -> bool {
        self.must_sleep
    }

    /// Whether threads are boosted only where they wait on descriptors.
    pub(crate) fn needs_descriptors(&self) -> bool {
        self.obtained.booster.tier() == Tier::Module
    }

    /// The calling thread handles messages from now on.
    pub(crate) fn adopt(&self) {
        if let Err(error) = self.obtained.booster.adopt() {
            tracing::warn!(%error, "a thread handles messages without a boost");
            self.note(|failures| failures.threads += 1, error);
        }
        standing::forget();
    }

    /// Threads wait for messages on this descriptor.
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
        // Counts are whole whatever happened to their last user.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut failures);
        failures.last = Some(error);
    }
}

impl fmt::Display for Boosting {
    /// What was got, why nothing better, and what does without it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.obtained)?;
        let Failures { threads, channels, last } =
            *self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = last {
            write!(f, "; without it {threads} threads and {channels} channels: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_boosted_is_said() {
        let boosting = Boosting::new(Boost::None);
        assert_eq!(boosting.to_string(), "none");
        boosting.note(|failures| failures.channels += 2, BoostError::Unsupported);
        let text = boosting.to_string();
        assert!(text.starts_with("none; without it 0 threads and 2 channels: threads waiting on"), "{text}");
    }

    #[test]
    fn who_may_be_real_time_must_sleep() {
        assert!(!Boosting::new(Boost::None).must_sleep());
        assert!(!Boosting::new(Boost::Slice).must_sleep());
        let fifo = Boosting::new(Boost::Fifo);
        assert_eq!(fifo.must_sleep(), fifo.to_string() == "fifo");
    }
}

//! Slice and caps of the scheduler's boosts.

use pronto_sched_policy::policy::boost::SLICE;
use pronto_sched_policy::policy::budget::{Cap, Terms};
use pronto_sched_policy::policy::caps::{CPU, Payer, THREAD, USER, WINDOW};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;

use crate::shared::{RawParameters, RawTerms, VERSION};

/// Slice and caps, as the parameters of the kernel module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time that a flagged thread runs boosted after it was woken.
    pub slice: Nanos,
    /// Maximum boosted share of a CPU within any 100 ms, for each thread.
    pub thread: Share,
    /// Maximum boosted share of a CPU within any 100 ms, for all threads of a user on it.
    pub user: Share,
    /// Maximum boosted share of a CPU within any 100 ms, for all threads on it.
    pub cpu: Share,
}

/// A cap that is above zero and never covers a single slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cap of the {} never covers a slice: shorten the slice, or set the cap higher or to 0", name(*.0))]
pub struct NeverCovers(pub Payer);

fn name(payer: Payer) -> &'static str {
    match payer {
        Payer::Thread => "thread",
        Payer::User => "user",
        Payer::Cpu => "CPU",
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { slice: SLICE, thread: THREAD, user: USER, cpu: CPU }
    }
}

impl Settings {
    /// Returns the parameters of the BPF program for a machine with `cpus` possible CPUs.
    ///
    /// # Errors
    /// A cap never covers a slice.
    pub(crate) fn parameters(&self, cpus: u32) -> Result<RawParameters, NeverCovers> {
        let terms = |payer, share: Share| {
            let terms = Terms::capped(Cap { share, window: WINDOW }, self.slice);
            if share > Share::NONE && terms.most() < self.slice {
                return Err(NeverCovers(payer));
            }
            Ok(RawTerms { epoch: terms.epoch().0, grant: terms.grant().0, floor: self.slice.0 })
        };
        Ok(RawParameters {
            version: VERSION,
            cpus,
            slice: self.slice.0,
            thread: terms(Payer::Thread, self.thread)?,
            user: terms(Payer::User, self.user)?,
            cpu: terms(Payer::Cpu, self.cpu)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_are_those_of_the_policy() {
        let parameters = Settings::default().parameters(2).unwrap();
        assert_eq!((parameters.cpus, parameters.slice), (2, 200_000));
        assert_eq!(parameters.thread, RawTerms { epoch: 10_000_000, grant: 833_333, floor: 200_000 });
        assert_eq!((parameters.user.grant, parameters.cpu.grant), (2_083_333, 4_166_666));
    }

    /// Shows: operations.scx-caps
    #[test]
    fn a_cap_below_a_slice_is_refused() {
        let settings = Settings { slice: Nanos::from_micros(1_700), ..Settings::default() };
        assert_eq!(settings.parameters(1), Err(NeverCovers(Payer::Thread)));
        let none = Settings { thread: Share::NONE, ..settings };
        assert!(none.parameters(1).is_ok());
    }
}

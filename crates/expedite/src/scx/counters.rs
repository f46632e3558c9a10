//! The counters of the BPF scheduler: `struct counters` of `kernel/scx/pronto_scx.h`.

use core::time::Duration;

/// Declares the counters once, in the order of the header: the fields, their names, and the order of their values in a reply.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Wake-ups of flagged threads since the scheduler was loaded, by result. A name that the counters of the kernel module
        /// ([`Counts`](crate::Counts)) have, too, means the same there.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names of all counters, as in `pronto_scx.h`.
            pub const NAMES: &[&'static str] = &[$(stringify!($name)),*];

            /// Number of counters.
            pub const NUMBER: usize = Self::NAMES.len();

            /// Returns the counters with these values, in the order of [`Counters::NAMES`].
            #[must_use]
            pub const fn from_values([$($name),*]: [u64; Self::NUMBER]) -> Self {
                Self { $($name),* }
            }

            /// Returns all counters by their names.
            #[must_use]
            pub const fn by_name(&self) -> [(&'static str, u64); Self::NUMBER] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Boosts.
    boosts,
    /// No boost: a CPU was idle.
    idle,
    /// No boost: the thread has a positive nice value or the class `SCHED_IDLE`, or is in a group with `cpu.idle`.
    behind,
    /// No boost: the thread's own budget was spent.
    denied_thread,
    /// No boost: its user's budget on that CPU was spent.
    denied_user,
    /// No boost: the CPU's budget was spent.
    denied_cpu,
    /// No boost: the scheduler stores too many accounts.
    denied_memory,
    /// Slices that ended because another thread waited for the CPU.
    preempted,
    /// Time that threads ran boosted, in nanoseconds.
    boosted_ns,
}

impl Counters {
    pub(super) fn values(&self) -> [u64; Self::NUMBER] {
        self.by_name().map(|(_, value)| value)
    }

    /// Returns the number of wake-ups without a boost because a budget was spent, or memory was short.
    #[must_use]
    pub const fn denied(&self) -> u64 {
        self.denied_thread + self.denied_user + self.denied_cpu + self.denied_memory
    }

    /// Returns the time that threads ran boosted.
    #[must_use]
    pub const fn boosted_time(&self) -> Duration {
        Duration::from_nanos(self.boosted_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;

    /// Counters that the module does not have: it counts boosts by path, and its boosts end in other ways.
    const OWN: [&str; 2] = ["boosts", "preempted"];

    #[test]
    fn the_names_are_those_of_the_module_or_its_own() {
        let module = Counts::default().by_name().map(|(name, _)| name);
        let others: Vec<_> = Counters::NAMES.iter().filter(|name| !module.contains(name)).copied().collect();
        assert_eq!(others, OWN);
        assert!(Counters::default().by_name().iter().map(|(name, _)| name).eq(Counters::NAMES));
    }
}

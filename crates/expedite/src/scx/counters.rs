//! The counters of the BPF scheduler: `struct counters` of `kernel/scx/pronto_scx.h`.

use core::time::Duration;

/// Wake-ups of flagged threads since the scheduler was loaded, by result: `struct counters` of `kernel/scx/pronto_scx.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Boosts.
    pub boosts: u64,
    /// No boost: a CPU was idle.
    pub idle: u64,
    /// No boost: the thread has a positive nice value or the class `SCHED_IDLE`, or is in a group with `cpu.idle`.
    pub behind: u64,
    /// No boost: the thread's own budget was spent.
    pub denied_thread: u64,
    /// No boost: its user's budget on that CPU was spent.
    pub denied_user: u64,
    /// No boost: the CPU's budget was spent.
    pub denied_cpu: u64,
    /// No boost: the scheduler stores too many accounts.
    pub denied_memory: u64,
    /// Slices that ended because another thread waited for the CPU.
    pub preempted: u64,
    /// Time that threads ran boosted, in nanoseconds.
    pub boosted_ns: u64,
}

impl Counters {
    /// Number of counters.
    pub const NUMBER: usize = 9;

    /// Returns the counters with these values, in the order of [`Counters::by_name`].
    #[must_use]
    pub const fn from_values(values: [u64; Self::NUMBER]) -> Self {
        let [
            boosts,
            idle,
            behind,
            denied_thread,
            denied_user,
            denied_cpu,
            denied_memory,
            preempted,
            boosted_ns,
        ] = values;
        Self {
            boosts,
            idle,
            behind,
            denied_thread,
            denied_user,
            denied_cpu,
            denied_memory,
            preempted,
            boosted_ns,
        }
    }

    fn values(&self) -> [u64; Self::NUMBER] {
        self.by_name().map(|(_, value)| value)
    }

    /// Returns all counters by their names in `pronto_scx.h`.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, u64); Self::NUMBER] {
        [
            ("boosts", self.boosts),
            ("idle", self.idle),
            ("behind", self.behind),
            ("denied_thread", self.denied_thread),
            ("denied_user", self.denied_user),
            ("denied_cpu", self.denied_cpu),
            ("denied_memory", self.denied_memory),
            ("preempted", self.preempted),
            ("boosted_ns", self.boosted_ns),
        ]
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

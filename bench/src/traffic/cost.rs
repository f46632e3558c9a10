//! Costs of messages other than time: CPU time and context switches.

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::sample::approximate;

/// Resources that a process has used so far, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// CPU time of all threads, user and system, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Number of context switches, voluntary and involuntary.
    pub(crate) switches: u64,
}

impl Cost {
    /// Returns the cost of this process so far.
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        Ok(Self::of(UsageWho::RUSAGE_SELF)?.0)
    }

    /// Returns the cost so far of this process and of its ended children, and the number of times that their threads slept and were
    /// woken.
    pub(crate) fn with_children() -> anyhow::Result<(Self, u64)> {
        let (mine, theirs) = (Self::of(UsageWho::RUSAGE_SELF)?, Self::of(UsageWho::RUSAGE_CHILDREN)?);
        Ok((mine.0.and(theirs.0), mine.1 + theirs.1))
    }

    fn of(who: UsageWho) -> anyhow::Result<(Self, u64)> {
        let usage = getrusage(who).context("reading the resource usage")?;
        let ns = |time: TimeVal| {
            let ns = time.tv_sec() * 1_000_000_000 + time.tv_usec() * 1_000;
            u64::try_from(ns).unwrap_or_default()
        };
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        let cost = Self {
            cpu_ns: ns(usage.user_time()) + ns(usage.system_time()),
            switches: u64::try_from(switches).unwrap_or_default(),
        };
        Ok((cost, u64::try_from(usage.voluntary_context_switches()).unwrap_or_default()))
    }

    /// Returns the difference to an earlier cost.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }

    /// Returns the sum of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { cpu_ns: self.cpu_ns + other.cpu_ns, switches: self.switches + other.switches }
    }

    /// Returns the CPU time in nanoseconds and the context switches per message.
    pub(crate) fn each(self, messages: u64) -> (f64, f64) {
        let messages = approximate(messages.max(1));
        (approximate(self.cpu_ns) / messages, approximate(self.switches) / messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_only_grows() {
        let before = Cost::of_this_process().unwrap();
        // The kernel counts in ticks at worst, so the loop ends.
        let used = (0..u64::MAX)
            .map(|_| Cost::of_this_process().unwrap().since(before))
            .find(|used| used.cpu_ns > 0);
        assert!(
            used.is_some_and(|used| Cost::of_this_process().unwrap().since(before).cpu_ns >= used.cpu_ns)
        );
    }

    #[test]
    fn a_cost_is_shared_by_its_messages() {
        let one = Cost { cpu_ns: 1_000, switches: 3 };
        let sum = one.and(Cost { cpu_ns: 500, switches: 1 });
        assert_eq!(sum.each(8), (187.5, 0.5));
        assert_eq!(sum.since(one), Cost { cpu_ns: 500, switches: 1 });
        assert_eq!(Cost::default().each(0), (0.0, 0.0));
    }
}

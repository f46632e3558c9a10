//! Resources that a rank has used: time on a CPU, page faults, switches, messages.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use zerocopy::IntoBytes as _;

use crate::comm::{Comm, CommError, Rank, Tag, Traffic};
use crate::outcome::Clock;

/// Tag of a report to rank 0.
const REPORT: Tag = Tag(6);
/// Number of values in a report.
const VALUES: usize = 9;

/// Resources that a process has used in an interval, with all of its threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Time of the job, seconds.
    pub seconds: f64,
    /// Time on a CPU in the program, seconds.
    pub user_seconds: f64,
    /// Time on a CPU in the kernel, seconds.
    pub system_seconds: f64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Voluntary context switches: the thread waited.
    pub voluntary_switches: u64,
    /// Involuntary context switches: the thread was preempted.
    pub involuntary_switches: u64,
    /// Messages that were sent.
    pub traffic: Traffic,
}

/// The beginning of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    begun: Instant,
    earlier: Usage,
}

impl Meter {
    /// Begins an interval. `traffic` is what the rank has sent until now.
    pub fn start(clock: &impl Clock, traffic: Traffic) -> Self {
        Self { earlier: Usage::now(traffic), begun: clock.now() }
    }

    /// Returns the time since the beginning, seconds.
    pub fn seconds(&self, clock: &impl Clock) -> f64 {
        clock.now().saturating_duration_since(self.begun).as_secs_f64()
    }

    /// Returns what was used since the beginning.
    #[must_use]
    pub fn stop(&self, clock: &impl Clock, traffic: Traffic) -> Usage {
        let seconds = self.seconds(clock);
        Usage::now(traffic).since(self.earlier, seconds)
    }
}

impl Usage {
    /// Returns the resources that this process has used since its start.
    fn now(traffic: Traffic) -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel has the process's usage");
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        Self {
            seconds: 0.0,
            user_seconds: seconds(usage.user_time()),
            system_seconds: seconds(usage.system_time()),
            major_faults: count(usage.major_page_faults()),
            voluntary_switches: count(usage.voluntary_context_switches()),
            involuntary_switches: count(usage.involuntary_context_switches()),
            traffic,
        }
    }

    /// Returns what was used after `earlier`, in `seconds`.
    fn since(self, earlier: Self, seconds: f64) -> Self {
        Self {
            seconds,
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
            major_faults: self.major_faults - earlier.major_faults,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            traffic: self.traffic.since(earlier.traffic),
        }
    }

    /// Returns the usage of all ranks at rank 0, and nothing at the others.
    ///
    /// # Errors
    /// A rank has ended.
    pub fn gather(self, comm: &mut impl Comm) -> Result<Vec<Self>, CommError> {
        if comm.rank() != Rank(0) {
            comm.send(Rank(0), REPORT, self.values().as_bytes())?;
            return Ok(Vec::new());
        }
        let mut all = vec![self];
        for rank in 1..comm.size() {
            let mut values = [0.0; VALUES];
            comm.receive(Rank(rank), REPORT, values.as_mut_bytes())?;
            all.push(Self::from_values(values));
        }
        Ok(all)
    }

    /// Returns a message. Counts are exact below 2^53.
    const fn values(self) -> [f64; VALUES] {
        let Traffic { messages, bytes, collectives } = self.traffic;
        [
            self.seconds,
            self.user_seconds,
            self.system_seconds,
            self.major_faults as f64,
            self.voluntary_switches as f64,
            self.involuntary_switches as f64,
            messages as f64,
            bytes as f64,
            collectives as f64,
        ]
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, converted from u64")]
    const fn from_values(values: [f64; VALUES]) -> Self {
        let [seconds, user_seconds, system_seconds, counts @ ..] = values;
        let [major, voluntary, involuntary, messages, bytes, collectives] = counts;
        Self {
            seconds,
            user_seconds,
            system_seconds,
            major_faults: major as u64,
            voluntary_switches: voluntary as u64,
            involuntary_switches: involuntary as u64,
            traffic: Traffic {
                messages: messages as u64,
                bytes: bytes as u64,
                collectives: collectives as u64,
            },
        }
    }
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calcula;
    use crate::outcome::SystemClock;

    #[test]
    fn a_report_survives_its_message() {
        let traffic = Traffic { messages: 1, bytes: 1 << 50, collectives: 3 };
        let usage = Usage { seconds: 1.5, ..Usage::now(traffic) };
        assert_eq!(Usage::from_values(usage.values()), usage);
    }

    #[test]
    fn differences_are_those_of_the_interval() {
        let used = calcula::run(calcula::Until::Seconds(0.02), &SystemClock).usage;
        assert!(used.user_seconds + used.system_seconds > 0.001, "{used:?}");
        assert!(used.seconds >= 0.02, "{used:?}");
    }
}

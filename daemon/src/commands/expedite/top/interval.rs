//! The counts of an interval, summed over the threads of each owner.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use pronto_expedite::{Counts, Device, ThreadState, Totals};

use super::owner::{By, Owner};

/// The counters at one time.
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) totals: Totals,
    pub(super) threads: BTreeMap<i32, (Owner, ThreadState)>,
}

impl Seen {
    pub(super) fn now(device: &Device, by: By) -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "rates are in real time")]
        let at = Instant::now();
        Ok(Self { at, totals: device.totals()?, threads: threads(device, by) })
    }
}

/// Returns the threads that the module knows, as far as this user may see them, each with its owner.
fn threads(device: &Device, by: By) -> BTreeMap<i32, (Owner, ThreadState)> {
    let numbers = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let of_process = |pid: u32| {
        let tids = numbers(&format!("/proc/{pid}/task")).into_iter().map(u32::cast_signed);
        tids.filter_map(move |tid| {
            let state = device.query(tid).ok()?;
            Some((tid, (Owner::of(pid, tid, by)?, state)))
        })
    };
    numbers("/proc").into_iter().flat_map(of_process).collect()
}

/// The counts since a time.
pub(super) struct Interval {
    begin: Instant,
    end: Instant,
    totals_before: Totals,
    pub(super) totals: Totals,
    pub(super) rows: BTreeMap<Owner, Row>,
}

/// The sum over some threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) threads: BTreeSet<i32>,
    pub(super) counts: Counts,
    /// Of the thread that was read last: the time that it may run boosted now.
    pub(super) left: Duration,
}

impl Interval {
    pub(super) fn begin(at: &Seen) -> Self {
        Self { begin: at.at, end: at.at, totals_before: at.totals, totals: at.totals, rows: BTreeMap::new() }
    }

    /// Adds what has happened between two times, of which the first one is the end of the interval until now.
    pub(super) fn add(&mut self, before: &Seen, after: &Seen) {
        debug_assert!(before.at == self.end && after.at >= before.at, "no time is left out or counted twice");
        for (tid, (owner, state)) in &after.threads {
            let earlier = before.threads.get(tid).map(|(_, state)| state.counts).unwrap_or_default();
            // The module forgets a thread without arrivals, and counts from zero when it sees it again.
            let was_forgotten = earlier.calls > state.counts.calls;
            let earlier = if was_forgotten { Counts::default() } else { earlier };
            let row = self.rows.entry(owner.clone()).or_default();
            row.threads.insert(*tid);
            row.counts = row.counts.plus(&state.counts.since(&earlier));
            row.left = state.left;
        }
        self.end = after.at;
        self.totals = after.totals;
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.end.duration_since(self.begin)
    }

    /// Returns the counts over all threads.
    pub(super) fn counts(&self) -> Counts {
        self.totals.counts.since(&self.totals_before.counts)
    }

    /// Returns the counts of threads that have no row: they have ended, or belong to other users. The counters are not all read at
    /// the same time, so that this is inexact by the arrivals in between.
    pub(super) fn others(&self) -> Counts {
        let known = self.rows.values().fold(Counts::default(), |sum, row| sum.plus(&row.counts));
        self.counts().since(&known)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns counters of two threads of one owner each, or of the same one, with `calls` arrivals together.
    pub(in super::super) fn seen(calls: u64, at: Instant, owners: [Owner; 2]) -> Seen {
        let state = |calls: u64| {
            let mut state = ThreadState::default();
            state.counts.calls = calls;
            state.counts.direct = calls / 2;
            state.counts.denied_user = calls - calls / 2;
            state.counts.boosted_time = Duration::from_millis(calls);
            state
        };
        let mut totals = Totals::default();
        totals.counts = state(calls).counts;
        totals.flags = 3;
        let [first, second] = owners;
        let few = calls / 5;
        let threads = [(7, (first, state(calls - few))), (8, (second, state(few)))];
        Seen { at, totals, threads: threads.into() }
    }

    pub(in super::super) fn thread(tid: i32) -> Owner {
        Owner::Thread { pid: 5, tid, name: "handler".into() }
    }

    pub(in super::super) fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "any time will do")]
        Instant::now()
    }

    #[test]
    fn the_counts_of_several_readings_are_summed() {
        let group = Owner::Cgroup("/a".into());
        let at = |second: u64, calls| {
            seen(calls, begin() + Duration::from_secs(second), [group.clone(), group.clone()])
        };
        fn begin() -> Instant {
            static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            *BEGIN.get_or_init(start)
        }
        let readings = [at(0, 10), at(1, 20), at(2, 40)];
        let mut interval = Interval::begin(&readings[0]);
        interval.add(&readings[0], &readings[1]);
        interval.add(&readings[1], &readings[2]);
        assert_eq!((interval.elapsed(), interval.counts().calls), (Duration::from_secs(2), 30));
        let row = &interval.rows[&group];
        assert_eq!((row.counts.calls, row.threads.len()), (30, 2));
        assert_eq!(interval.others().calls, 0);
    }

    #[test]
    fn a_thread_that_was_not_known_before_counts_from_zero() {
        let start = start();
        let owners = || [thread(7), thread(8)];
        let before = Seen { threads: BTreeMap::new(), ..seen(0, start, owners()) };
        let calls = |before: &Seen, after: &Seen| {
            let mut interval = Interval::begin(before);
            interval.add(before, after);
            interval.rows[&thread(7)].counts.calls
        };
        assert_eq!(calls(&before, &seen(4, start + Duration::from_secs(1), owners())), 4);
        let forgotten = seen(4, start + Duration::from_secs(5), owners());
        assert_eq!(calls(&seen(9, start, owners()), &forgotten), 4, "it was forgotten in between");
    }

    #[test]
    fn arrivals_of_threads_that_have_ended_are_those_of_others() {
        let start = start();
        let before = seen(10, start, [thread(7), thread(8)]);
        let mut after = seen(20, start + Duration::from_secs(1), [thread(7), thread(8)]);
        after.threads.remove(&8);
        let mut interval = Interval::begin(&before);
        interval.add(&before, &after);
        assert_eq!(interval.others().calls, 2);
    }
}

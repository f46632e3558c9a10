//! The recorder of wake-ups in `kernel/wakeups`: the times from a wake-up to the moment when the thread gets a CPU, as the kernel's own
//! clock and tracepoints measure them.

use core::time::Duration;
use std::path::Path;

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Attached, LoadError, Messages, OpenError};

/// Folder of the sources.
const FOLDER: &str = "kernel/wakeups";

/// `PRONTO_WAKEUPS_VERSION`.
const VERSION: u32 = 1;

/// `COUNTS`: four for each power of two.
const COUNTS: usize = 160;

/// `struct parameters`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawParameters {
    version: u32,
    process: u32,
}

/// Wake-ups by the time until the thread ran (`struct times`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct Times {
    counts: [u64; COUNTS],
    longest: u64,
}

/// The record since the start (`struct report`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct Report {
    /// Wake-ups that were not recorded, because more than 16,384 threads were waiting for a CPU.
    pub missed: u64,
    /// Of threads that got the CPU in the fair class.
    pub ordinary: Times,
    /// Of threads that got the CPU in a real-time class: boosted by the module, or by their own choice.
    pub real_time: Times,
}

/// Reason why wake-ups cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel does not load it.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel does not attach it to its tracepoints.
    #[error("the kernel does not attach the program to its tracepoints: {0}")]
    Attach(Errno),
}

/// Records wake-ups until it is dropped.
#[derive(Debug)]
pub struct Recorder(Attached);

impl Recorder {
    /// Starts to record the wake-ups of all threads of a process, or of the machine.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn start(file: &Path, process: Option<u32>, messages: Messages) -> Result<Self, RecordError> {
        let mut object = crate::open(file, FOLDER, messages)?;
        let parameters = object.map(c".rodata.parameters");
        let is_set = parameters.is_some_and(|map| {
            map.initial::<RawParameters>().is_some_and(|found| found.version == VERSION)
                && map.write(RawParameters { version: VERSION, process: process.unwrap_or(0) })
        });
        if !is_set || object.map(c".data.report").and_then(|map| map.initial::<Report>()).is_none() {
            return Err(OpenError::OtherVersion { path: file.into(), folder: FOLDER }.into());
        }
        object.load()?;
        object.attach(&[c"on_wakeup", c"on_switch"]).map(Self).map_err(RecordError::Attach)
    }

    /// Returns what was recorded since the start.
    #[must_use]
    pub fn report(&self) -> Report {
        // It had this size before it was loaded.
        self.0.object().map(c".data.report").and_then(|map| map.read()).unwrap_or(Report::NONE)
    }
}

impl Report {
    const NONE: Self = Self { missed: 0, ordinary: Times::NONE, real_time: Times::NONE };
}

impl Times {
    const NONE: Self = Self { counts: [0; COUNTS], longest: 0 };

    /// Returns the number of wake-ups.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the longest time.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Returns a time that this share of the wake-ups did not exceed, at most a quarter too long; `None` without wake-ups.
    #[must_use]
    pub fn quantile(&self, percent: u64) -> Option<Duration> {
        let wanted = u128::from(self.count()) * u128::from(percent);
        let mut seen = 0;
        let (end, _) = self.parts().find(|(_, count)| {
            seen += u128::from(*count) * 100;
            *count > 0 && seen >= wanted
        })?;
        Some(end.min(self.longest()))
    }

    /// Returns the counts, each with the end of its times.
    pub fn parts(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.counts.iter().enumerate().map(|(place, count)| (end(place), *count))
    }
}

/// Returns the time at which the place behind this one begins.
fn end(place: usize) -> Duration {
    let next = place + 1;
    let nanos = if next < 4 { next as u64 } else { (4 | (next as u64 % 4)) << (next / 4 - 1) };
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the program.
    const HEADER: &str = include_str!("../../../kernel/wakeups/pronto_wakeups.h");

    fn times(entries: &[(usize, u64)], longest: u64) -> Times {
        let mut times = Times { longest, ..Times::NONE };
        for (place, count) in entries {
            times.counts[*place] = *count;
        }
        times
    }

    #[test]
    fn the_structures_are_those_of_the_header() {
        assert!(HEADER.contains(&format!("#define PRONTO_WAKEUPS_VERSION {VERSION}\n")));
        assert!(HEADER.contains(&format!("#define COUNTS {COUNTS}\n")));
        assert_eq!((size_of::<RawParameters>(), size_of::<Report>()), (8, 8 + 2 * (160 + 1) * 8));
    }

    #[test]
    fn places_cover_all_times() {
        let ends: Vec<u128> = (0..9).map(|place| end(place).as_nanos()).collect();
        assert_eq!(ends, [1, 2, 3, 4, 5, 6, 7, 8, 10]);
        assert_eq!(end(COUNTS - 1).as_nanos(), 1 << 41);
    }

    #[test]
    fn quantiles_are_ends_of_places() {
        let times = times(&[(4, 50), (8, 49), (20, 1)], 60);
        assert_eq!(times.count(), 100);
        let nanos = [0, 50, 51, 99, 100].map(|percent| times.quantile(percent).unwrap().as_nanos());
        assert_eq!(nanos, [5, 5, 10, 10, 60]);
        assert_eq!(Times::NONE.quantile(50), None);
    }
}

//! CPUs and CPU sets, in the kernel's list format.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::error::{ListFault, beginning};

/// Largest number of a CPU or node: kernels are built for at most 8,192 CPUs (`NR_CPUS` on x86; fewer on arm64).
pub const MAX_CPU: u32 = 8_191;

/// A logical CPU, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(pub u32);

/// A NUMA node, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaNode(pub u32);

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A set of CPUs. Parsed from and displayed in the kernel's list format, for example `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<Cpu>);

impl Cpus {
    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set contains `cpu`.
    #[must_use]
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns the intersection with `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns whether the two sets intersect.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// Returns whether the set is a subset of `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Iterates over the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<Cpu> for Cpus {
    fn from_iter<I: IntoIterator<Item = Cpu>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for Cpus {
    type Err = ListFault;

    fn from_str(text: &str) -> Result<Self, ListFault> {
        numbers(text).map(|numbers| numbers.into_iter().map(Cpu).collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.iter().map(|cpu| cpu.0).peekable();
        let mut before = "";
        while let Some(first) = left.next() {
            let mut last = first;
            while let Some(next) = left.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{before}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            before = ",";
        }
        Ok(())
    }
}

/// Parses a list in the kernel's format (bitmap_parselist in `lib/bitmap-str.c`). An empty text is an empty list.
pub(crate) fn numbers(text: &str) -> Result<BTreeSet<u32>, ListFault> {
    let number = |text: &str| {
        let number = text.parse().map_err(|_| ListFault::NotANumber { part: beginning(text) })?;
        if number > MAX_CPU { Err(ListFault::TooGreat { number }) } else { Ok(number) }
    };
    let mut found = BTreeSet::new();
    let text = text.trim();
    if text.is_empty() {
        return Ok(found);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(ListFault::Backwards { first, last });
        }
        found.extend(first..=last);
    }
    Ok(found)
}

/// Returns the CPUs that the calling thread may run on (sched_getaffinity(2)), a subset of those of its control group.
///
/// # Errors
/// Returns the kernel's error; EINVAL if the kernel supports more CPUs than the C library's CPU set can hold.
pub fn allowed() -> Result<Cpus, Errno> {
    let mask = sched_getaffinity(Pid::from_raw(0))?;
    let is_in = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| mask.is_set(cpu) == Ok(true));
    let most = u32::try_from(CpuSet::count()).unwrap_or(MAX_CPU);
    Ok((0..most).filter(is_in).map(Cpu).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for list in ["", "0", "0-3", "0-3,8", "1,3,5-6,8191"] {
            assert_eq!(list.parse::<Cpus>().unwrap().to_string(), list);
        }
        assert_eq!("0-1\n".parse::<Cpus>().unwrap().len(), 2);
    }

    #[test]
    fn malformed_lists_are_rejected() {
        let fault = |list: &str| list.parse::<Cpus>().unwrap_err();
        let no_number = |part: &str| ListFault::NotANumber { part: part.into() };
        assert_eq!(fault("0-3,"), no_number(""));
        assert_eq!(fault("-1"), no_number(""));
        assert_eq!(fault("0-3:1/2"), no_number("3:1/2"));
        assert_eq!(fault("(null)"), no_number("(null)"));
        assert_eq!(fault("3-0"), ListFault::Backwards { first: 3, last: 0 });
        assert_eq!(fault("0-4294967295"), ListFault::TooGreat { number: u32::MAX });
        assert_eq!(fault(&"x".repeat(5000)), no_number(&"x".repeat(40)));
    }

    #[test]
    fn a_thread_may_run_somewhere() {
        let here = Cpu(u32::try_from(nix::sched::sched_getcpu().unwrap()).unwrap());
        assert!(allowed().unwrap().contains(here));
    }
}

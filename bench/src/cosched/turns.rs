//! Turns of emulated CPUs: an emulator with a clock that counts instructions runs one CPU after the other.

use core::time::Duration;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::clock;
use crate::placement::{Cpu, pin};
use crate::workers;

/// Time for which all CPUs compute.
const TIME: Duration = Duration::from_millis(300);

/// Shorter gaps between two readings of the clock are interrupts.
const SHORTEST: Duration = Duration::from_micros(20);

/// Share of gaps that are not longer than the returned one.
const MOST: usize = 90;

/// The scheduler's slice.
const SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// Returns how long a turn of a CPU is: while all of them compute, a thread observes how long its CPU stands still, which is one turn of each
/// other CPU. Zero if the CPUs run at the same time.
pub(crate) fn length(cpus: &[Cpu]) -> anyhow::Result<Duration> {
    let gaps = workers::each(cpus, |cpu| {
        pin(*cpu)?;
        anyhow::Ok(gaps())
    });
    let mut gaps: Vec<_> =
        gaps.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
    gaps.sort_unstable();
    let others = u32::try_from(cpus.len().saturating_sub(1).max(1)).unwrap_or(u32::MAX);
    Ok(gaps.get(gaps.len() * MOST / 100).copied().unwrap_or_default() / others)
}

/// Returns the gaps between readings of the clock.
fn gaps() -> Vec<Duration> {
    let end = clock::now() + TIME;
    let mut gaps = Vec::new();
    let mut last = clock::now();
    while last < end {
        let now = clock::now();
        if now - last >= SHORTEST {
            gaps.push(now - last);
        }
        last = now;
    }
    gaps
}

/// Returns the scheduler's slice. Mounts debugfs if need be.
pub(crate) fn slice() -> anyhow::Result<Duration> {
    if !Path::new(SLICE).exists() {
        let mut mount = std::process::Command::new("mount");
        let _mounted = mount.args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output();
    }
    let ns = fs::read_to_string(SLICE).with_context(|| format!("reading {SLICE}"))?;
    Ok(Duration::from_nanos(ns.trim().parse().context("the scheduler's slice")?))
}

//! Independent tools as victims: `cyclictest`, an ordinary thread that wakes at fixed intervals, and `hackbench`, which passes messages
//! among many processes.

use core::time::Duration;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// Longest recorded delay in microseconds.
const LONGEST_US: u64 = 50_000;

/// A `cyclictest` on the handlers' CPU.
#[derive(Debug)]
pub(crate) struct Cyclictest(Child);

/// Delays of its wake-ups in microseconds, with their counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late(Vec<(u64, u64)>);

impl Cyclictest {
    /// Starts it for `wakes` wake-ups.
    pub(crate) fn start(interval: Duration, wakes: u32) -> anyhow::Result<Self> {
        let mut command = on_the_handlers_cpu("cyclictest");
        command
            .args(["--quiet", "--default-system", "--policy=other"])
            .arg(format!("--interval={}", interval.as_micros()))
            .arg(format!("--loops={wakes}"))
            .arg(format!("--histogram={LONGEST_US}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Ok(Self(child.context("starting cyclictest")?))
    }

    /// Waits for its end, and returns its delays.
    pub(crate) fn end(mut self) -> anyhow::Result<Late> {
        let mut text = String::new();
        let stdout = self.0.stdout.as_mut().context("cyclictest has no standard output")?;
        stdout.read_to_string(&mut text).context("reading from cyclictest")?;
        let status = self.0.wait().context("waiting for cyclictest")?;
        anyhow::ensure!(status.success(), "cyclictest ended with {status}");
        Late::parse(&text)
    }
}

impl Late {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let row = |line: &str| {
            let (us, count) = line.split_once(' ')?;
            Some((us.trim().parse().ok()?, count.trim().parse().ok()?))
        };
        let mut counts: Vec<(u64, u64)> =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect();
        // Longer delays have a separate line.
        let beyond = text.lines().find_map(|line| line.strip_prefix("# Histogram Overflows: "));
        let beyond = beyond.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        counts.push((LONGEST_US, beyond));
        counts.retain(|(_, count)| *count > 0);
        if counts.is_empty() {
            bail!("cyclictest reports no delays: {text}");
        }
        Ok(Self(counts))
    }

    /// Adds other delays.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.extend(&other.0);
        self.0.sort_unstable();
    }

    /// Returns the delay in microseconds that `share` of the wake-ups do not exceed.
    pub(crate) fn at(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().map(|(_, count)| count).sum();
        let wanted = crate::sample::approximate(all) * share;
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += count;
            crate::sample::approximate(seen) >= wanted
        });
        found.map_or(0, |(us, _)| *us)
    }
}

/// Runs a small `hackbench` on the handlers' CPU. Returns its time in seconds, by its own clock.
pub(crate) fn hackbench() -> anyhow::Result<f64> {
    let mut command = on_the_handlers_cpu("hackbench");
    let output = command
        .args(["-g", "1", "-f", "4", "-l", "200", "-s", "100"])
        .output()
        .context("starting hackbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let time = text.lines().find_map(|line| line.strip_prefix("Time: "));
    time.and_then(|time| time.trim().parse().ok())
        .with_context(|| format!("hackbench reports no time: {output:?}"))
}

/// Returns the command of a program on the handlers' CPU.
fn on_the_handlers_cpu(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "echo 0 > /sys/fs/cgroup/pronto-handlers/cgroup.procs && exec \"$@\"",
        "sh",
        program,
    ]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclictests_histogram_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000010 000004\n000020 000005\n000700 000000\n\
                    # Total: 000000010\n# Histogram Overflows: 00001\n";
        let mut late = Late::parse(text).unwrap();
        assert_eq!((late.at(0.4), late.at(0.5), late.at(0.9), late.at(1.0)), (10, 20, 20, LONGEST_US));
        late.add(&Late(vec![(5, 10)]));
        assert_eq!(late.at(0.5), 5);
        assert!(Late::parse("nothing").is_err());
    }
}

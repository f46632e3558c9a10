//! The computation: the report's `burn_cycles`, one process on each CPU, at some nice value.

use core::hint::black_box;
use core::time::Duration;

use anyhow::Context as _;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pronto_expedite::schedule::{CALLER, set_nice};

use super::{Ran, numbers};
use crate::child::{self, Child};
use crate::clock;
use crate::placement::{Cpu, pin};
use crate::side::{Arguments, Side};

/// The computing child.
pub(crate) const SIDE: Side =
    Side { name: "burn-cycles", arguments: &["cpu", "nice"], more: None, run: serve };

/// A process that computes on command.
#[derive(Debug)]
pub(crate) struct Burner(Child);

impl Burner {
    /// Starts the process. The inner error is the reason why this nice value is not permitted.
    pub(crate) fn start(cpu: Cpu, nice: i32) -> anyhow::Result<Result<Self, String>> {
        let mut child = Child::spawn(&SIDE, [cpu.0.to_string(), nice.to_string()])?;
        Ok(match child.hear()?.as_str() {
            "ready" => Ok(Self(child)),
            refused => Err(refused.to_owned()),
        })
    }

    /// Makes it compute `steps` steps from `at` on; `neighbour` is the process that shares its CPU.
    pub(crate) fn begin(&mut self, steps: u64, at: u64, neighbour: Option<u32>) -> anyhow::Result<()> {
        self.0.tell(&format!("{steps} {at} {}", neighbour.unwrap_or(0)))
    }

    /// Waits until it has finished.
    pub(crate) fn end(&mut self) -> anyhow::Result<Ran> {
        self.0.hear()?.parse()
    }
}

/// Computes on command, until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    pin(arguments.cpu("cpu")?)?;
    if let Err(errno) = set_nice(CALLER, arguments.get("nice")?) {
        return child::say(&format!("{errno}"));
    }
    child::say("ready")?;
    while let Some(line) = child::listen()? {
        let [steps, at, neighbour] = numbers(&line)?;
        child::say(&burnt(steps, at, neighbour)?.line())?;
    }
    Ok(())
}

fn burnt(steps: u64, at: u64, neighbour: u64) -> anyhow::Result<Ran> {
    let other = process_clock(neighbour)?;
    // Read before the wait, so that all CPU time of the other process counts.
    let others = read(other)?;
    clock::sleep_until_shared(at);
    let (since, own) = (clock::shared_ns(), clock::thread_ns());
    burn_cycles(steps);
    let (end, cpu_ns) = (clock::shared_ns(), clock::thread_ns() - own);
    let other_ns = read(other)?.saturating_sub(others);
    Ok(Ran { late_ns: since - at, wall_ns: end - at, cpu_ns, other_ns })
}

/// Returns the CPU time clock of a process; `None` for 0.
fn process_clock(process: u64) -> anyhow::Result<Option<ClockId>> {
    if process == 0 {
        return Ok(None);
    }
    let process = Pid::from_raw(process.try_into().context("invalid process id")?);
    Ok(Some(clock_getcpuclockid(process).context("finding the CPU time clock of another process")?))
}

fn read(clock: Option<ClockId>) -> anyhow::Result<u64> {
    let Some(clock) = clock else { return Ok(0) };
    let time = Duration::from(clock_gettime(clock).context("reading the CPU time of another process")?);
    u64::try_from(time.as_nanos()).context("five centuries")
}

/// The report's loop. It needs no memory, so only a lack of CPU time can stretch it.
fn burn_cycles(steps: u64) {
    let mut x = black_box(0.5_f64);
    for _ in 0..steps {
        x += x.sin();
    }
    black_box(x);
}

/// Returns the number of steps that take about `span` on this CPU when it is warm.
pub(crate) fn steps_for(span: Duration) -> u64 {
    let fastest = (0..TRIALS).map(|_| {
        let since = clock::now();
        burn_cycles(TRIAL);
        since.elapsed()
    });
    let fastest = fastest.min().unwrap_or_default();
    let steps = span.as_nanos() * u128::from(TRIAL) / fastest.as_nanos().max(1);
    u64::try_from(steps).unwrap_or(u64::MAX)
}

/// A few milliseconds each.
const TRIAL: u64 = 400_000;
const TRIALS: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_the_requested_time() {
        let [short, long] = [10, 1_000].map(|ms| steps_for(Duration::from_millis(ms)));
        assert!(short > 0 && long > 10 * short, "{short} {long}");
    }

    #[test]
    fn a_burner_counts_its_own_time_and_that_of_the_other_process() {
        let (at, me) = (clock::shared_ns(), u64::from(std::process::id()));
        let ran = burnt(200_000, at, me).unwrap();
        assert!(ran.cpu_ns > 0 && ran.cpu_ns <= ran.wall_ns && ran.other_ns >= ran.cpu_ns, "{ran:?}");
        assert_eq!(burnt(1, at, 0).unwrap().other_ns, 0);
    }
}

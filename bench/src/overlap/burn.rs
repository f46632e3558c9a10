//! The computation: the report's `burn_cycles`, one process on each processor, at some nice value.

use core::hint::black_box;
use core::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pronto_expedite::schedule::{CALLER, set_nice};

use super::{Ran, sleep_until};
use crate::child::{self, Child};
use crate::clock;
use crate::placement::{Cpu, pin};

/// The hidden command of a computing child.
pub(crate) const BURN: &str = "burn-cycles";

/// A process that computes when it is told to.
#[derive(Debug)]
pub(crate) struct Burner(Child);

impl Burner {
    /// Starts the process. Nothing, with the reason, if this nice value is not allowed here.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(cpu: Cpu, nice: i32) -> anyhow::Result<Result<Self, String>> {
        let mut child = Child::spawn([BURN, &cpu.0.to_string(), &nice.to_string()])?;
        Ok(match child.hear()?.as_str() {
            "ready" => Ok(Self(child)),
            refused => Err(refused.to_owned()),
        })
    }

    /// Has it compute so many steps from `at` on; `beside` is the process that shares its processor.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn begin(&mut self, steps: u64, at: u64, beside: Option<u32>) -> anyhow::Result<()> {
        self.0.tell(&format!("{steps} {at} {}", beside.unwrap_or(0)))
    }

    /// Waits until it is through.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn end(&mut self) -> anyhow::Result<Ran> {
        self.0.hear()?.parse()
    }
}

pub(crate) fn command() -> Command {
    // A nice value may begin with a minus sign.
    let value = |name: &'static str| Arg::new(name).required(true).allow_hyphen_values(true);
    Command::new(BURN).hide(true).args(["cpu", "nice"].map(value))
}

/// Computes as it is told to, until the parent ends this process.
pub(crate) fn command_main(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    pin(Cpu(value("cpu")?.parse().context("a CPU's number")?))?;
    let nice = value("nice")?.parse().context("a nice value")?;
    if let Err(errno) = set_nice(CALLER, nice) {
        return child::say(&format!("{errno}"));
    }
    child::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [steps, at, beside] = numbers[..] else { anyhow::bail!("not three numbers: {line}") };
        child::say(&burnt(steps, at, beside)?.line())?;
    }
    Ok(())
}

fn burnt(steps: u64, at: u64, beside: u64) -> anyhow::Result<Ran> {
    let other = process_clock(beside)?;
    // Before the wait: what the other one takes first counts, too.
    let others = read(other)?;
    sleep_until(at);
    let (since, own) = (clock::shared_ns(), clock::thread_ns());
    burn_cycles(steps);
    let (end, cpu_ns) = (clock::shared_ns(), clock::thread_ns() - own);
    let other_ns = read(other)?.saturating_sub(others);
    Ok(Ran { late_ns: since - at, wall_ns: end - at, cpu_ns, other_ns })
}

/// The processor time of a process; none for 0.
fn process_clock(process: u64) -> anyhow::Result<Option<ClockId>> {
    if process == 0 {
        return Ok(None);
    }
    let process = Pid::from_raw(process.try_into().context("a process's number")?);
    Ok(Some(clock_getcpuclockid(process).context("the processor time of another process")?))
}

fn read(clock: Option<ClockId>) -> anyhow::Result<u64> {
    let Some(clock) = clock else { return Ok(0) };
    let time = Duration::from(clock_gettime(clock).context("reading the time of another process")?);
    u64::try_from(time.as_nanos()).context("five centuries")
}

/// The report's loop. It needs no memory, so nothing but the processor's time can stretch it.
fn burn_cycles(steps: u64) {
    let mut x = black_box(0.5_f64);
    for _ in 0..steps {
        x += x.sin();
    }
    black_box(x);
}

/// How many steps take about so long on this processor, when it is warm.
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
    fn steps_grow_with_the_time_asked_for() {
        let [short, long] = [10, 1_000].map(|ms| steps_for(Duration::from_millis(ms)));
        assert!(short > 0 && long > 10 * short, "{short} {long}");
    }

    #[test]
    fn a_burner_counts_its_own_time_and_that_of_the_process_beside() {
        let (at, me) = (clock::shared_ns(), u64::from(std::process::id()));
        let ran = burnt(200_000, at, me).unwrap();
        assert!(ran.cpu_ns > 0 && ran.cpu_ns <= ran.wall_ns && ran.other_ns >= ran.cpu_ns, "{ran:?}");
        assert_eq!(burnt(1, at, 0).unwrap().other_ns, 0);
    }
}

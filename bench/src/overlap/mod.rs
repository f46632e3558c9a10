//! A ping-pong next to a computation on each CPU (overlap report): the two programs, one run of both, and its results.

pub(crate) mod burn;
pub(crate) mod claims;
pub(crate) mod ping;
pub(crate) mod row;

use core::str::FromStr;

use anyhow::Context as _;

use crate::clock;

/// Result of a program of a run. Times are those of [`clock::shared_ns`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Delay of its start, in nanoseconds after the requested time.
    pub(crate) late_ns: u64,
    /// Time from the requested start to its end, in nanoseconds.
    pub(crate) wall_ns: u64,
    /// CPU time that it used meanwhile, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// CPU time that the other program on its CPU used meanwhile, in nanoseconds.
    pub(crate) other_ns: u64,
}

/// One run: all four processes, alone and together, in quick succession.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Computation of each CPU, without messages.
    pub(crate) burn_alone: [Ran; 2],
    /// Side that sends first, without a computation.
    pub(crate) ping_alone: Ran,
    /// Computation of each CPU, with the messages.
    pub(crate) burn: [Ran; 2],
    /// Side that sends first, with the computations.
    pub(crate) ping: Ran,
    /// Time between the starts of the first and the last of the four processes, in nanoseconds.
    pub(crate) skew_ns: u64,
}

impl Run {
    /// Runs the computations and the ping-pong, each alone and then together.
    pub(crate) fn once(
        burners: &mut [burn::Burner; 2],
        steps: u64,
        pair: &mut ping::Pair,
        job: ping::Job,
    ) -> anyhow::Result<Self> {
        let burn_alone = alone(burners, steps)?;
        pair.begin(job, soon())?;
        let [ping_alone, _] = pair.end()?;
        let (burn, [ping, pong]) = together(burners, steps, pair, job)?;
        let late = [burn[0], burn[1], ping, pong].map(|ran| ran.late_ns);
        let skew_ns = late.iter().max().zip(late.iter().min()).map_or(0, |(last, first)| last - first);
        Ok(Self { burn_alone, ping_alone, burn, ping, skew_ns })
    }
}

/// A short computation on each CPU, without messages and with them, in quick succession.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Without messages.
    pub(crate) alone: [Ran; 2],
    /// With messages.
    pub(crate) together: [Ran; 2],
}

impl Unit {
    /// Runs both. Odd units begin with the messages, so that a drift of the machine favours neither.
    pub(crate) fn once(
        burners: &mut [burn::Burner; 2],
        steps: u64,
        pair: &mut ping::Pair,
        job: ping::Job,
        number: usize,
    ) -> anyhow::Result<Self> {
        if number % 2 == 1 {
            let (together, _) = together(burners, steps, pair, job)?;
            return Ok(Self { together, alone: alone(burners, steps)? });
        }
        let alone = alone(burners, steps)?;
        Ok(Self { alone, together: together(burners, steps, pair, job)?.0 })
    }
}

/// Runs the computations without messages.
fn alone(burners: &mut [burn::Burner; 2], steps: u64) -> anyhow::Result<[Ran; 2]> {
    let at = soon();
    burners.iter_mut().try_for_each(|burner| burner.begin(steps, at, None))?;
    ended(burners)
}

/// Runs the computations and both sides of the ping-pong; returns the results in this order.
fn together(
    burners: &mut [burn::Burner; 2],
    steps: u64,
    pair: &mut ping::Pair,
    job: ping::Job,
) -> anyhow::Result<([Ran; 2], [Ran; 2])> {
    let at = soon();
    for (burner, pinger) in burners.iter_mut().zip(pair.processes()) {
        burner.begin(steps, at, Some(pinger))?;
    }
    pair.begin(job, at)?;
    let burn = ended(burners)?;
    Ok((burn, pair.end()?))
}

fn ended(burners: &mut [burn::Burner; 2]) -> anyhow::Result<[Ran; 2]> {
    let [one, other] = burners;
    Ok([one.end()?, other.end()?])
}

impl Ran {
    /// Returns the line for the parent.
    fn line(self) -> String {
        let Self { late_ns, wall_ns, cpu_ns, other_ns } = self;
        format!("{late_ns} {wall_ns} {cpu_ns} {other_ns}")
    }
}

impl FromStr for Ran {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let [late_ns, wall_ns, cpu_ns, other_ns] = numbers(line)?;
        Ok(Self { late_ns, wall_ns, cpu_ns, other_ns })
    }
}

/// Reads a line of numbers.
fn numbers<const N: usize>(line: &str) -> anyhow::Result<[u64; N]> {
    let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
    let numbers = numbers.ok().and_then(|numbers| <[u64; N]>::try_from(numbers).ok());
    numbers.with_context(|| format!("expected {N} numbers, got {line:?}"))
}

/// Returns a common start time, far enough ahead that all processes know it in time.
fn soon() -> u64 {
    clock::shared_ns() + AHEAD_NS
}

/// Ten times as long as it takes to inform four processes.
const AHEAD_NS: u64 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_are_written() {
        let ran = Ran { late_ns: 1, wall_ns: 20, cpu_ns: 15, other_ns: 4 };
        assert_eq!(ran.line().parse::<Ran>().unwrap(), ran);
        assert!("1 2 3".parse::<Ran>().is_err() && "1 2 3 x".parse::<Ran>().is_err());
    }
}

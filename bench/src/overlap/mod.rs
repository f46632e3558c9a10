//! A ping-pong beside a computation on each processor (overlap report): the two programs, one run of both, and what it tells.

pub(crate) mod burn;
pub(crate) mod claims;
pub(crate) mod ping;
pub(crate) mod row;

use core::str::FromStr;

use anyhow::Context as _;

use crate::clock;

/// What a program of a run says when it is over. Times are those of [`clock::shared_ns`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// When it first ran, nanoseconds after it was told to.
    pub(crate) late_ns: u64,
    /// From when it was told to run until it was through, nanoseconds.
    pub(crate) wall_ns: u64,
    /// Processor time that it took meanwhile, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Processor time that the other program on its processor took meanwhile, nanoseconds.
    pub(crate) other_ns: u64,
}

/// One run: all four processes alone and together, within a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The computation of each processor, without messages.
    pub(crate) burn_alone: [Ran; 2],
    /// The side that sends first, without a computation.
    pub(crate) ping_alone: Ran,
    /// The computation of each processor beside the messages.
    pub(crate) burn: [Ran; 2],
    /// The side that sends first, beside the computations.
    pub(crate) ping: Ran,
    /// Between the first and the last of the four processes to run, nanoseconds.
    pub(crate) skew_ns: u64,
}

impl Run {
    /// Has the computations and the ping-pong run, each alone and then together.
    ///
    /// # Errors
    /// If a process fails.
    pub(crate) fn once(
        burners: &mut [burn::Burner; 2],
        steps: u64,
        pair: &mut ping::Pair,
        job: ping::Job,
    ) -> anyhow::Result<Self> {
        let at = soon();
        burners.iter_mut().try_for_each(|burner| burner.begin(steps, at, None))?;
        let burn_alone = ended(burners)?;
        pair.begin(job, soon())?;
        let [ping_alone, _] = pair.end()?;
        let at = soon();
        for (burner, pinger) in burners.iter_mut().zip(pair.processes()) {
            burner.begin(steps, at, Some(pinger))?;
        }
        pair.begin(job, at)?;
        let burn = ended(burners)?;
        let [ping, pong] = pair.end()?;
        let late = [burn[0], burn[1], ping, pong].map(|ran| ran.late_ns);
        let skew_ns = late.iter().max().zip(late.iter().min()).map_or(0, |(last, first)| last - first);
        Ok(Self { burn_alone, ping_alone, burn, ping, skew_ns })
    }
}

fn ended(burners: &mut [burn::Burner; 2]) -> anyhow::Result<[Ran; 2]> {
    let [one, other] = burners;
    Ok([one.end()?, other.end()?])
}

impl Ran {
    /// One line, for the parent.
    fn line(self) -> String {
        let Self { late_ns, wall_ns, cpu_ns, other_ns } = self;
        format!("{late_ns} {wall_ns} {cpu_ns} {other_ns}")
    }
}

impl FromStr for Ran {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let numbers = numbers.with_context(|| format!("a child said {line}"))?;
        let [late_ns, wall_ns, cpu_ns, other_ns] = numbers[..] else {
            anyhow::bail!("a child said {line}");
        };
        Ok(Self { late_ns, wall_ns, cpu_ns, other_ns })
    }
}

/// When everybody shall begin: far enough ahead that all have been told.
fn soon() -> u64 {
    clock::shared_ns() + AHEAD_NS
}

/// Sleeps until then; the processor is somebody else's meanwhile.
fn sleep_until(at: u64) {
    loop {
        let left = at.saturating_sub(clock::shared_ns());
        if left == 0 {
            return;
        }
        std::thread::park_timeout(core::time::Duration::from_nanos(left));
    }
}

/// Telling four processes takes a tenth of that.
const AHEAD_NS: u64 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_read_as_it_was_meant() {
        let ran = Ran { late_ns: 1, wall_ns: 20, cpu_ns: 15, other_ns: 4 };
        assert_eq!(ran.line().parse::<Ran>().unwrap(), ran);
        assert!("1 2 3".parse::<Ran>().is_err() && "1 2 3 x".parse::<Ran>().is_err());
    }
}

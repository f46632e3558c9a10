//! One round of a participant: what its program prints, and the rounds together.

use core::time::Duration;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::sample::{Recorder, a_to_a, approximate};
use crate::traffic::cost::Cost;
use crate::traffic::speed::Speed;

/// What the rounds of a participant gave.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// What was measured, as it says itself.
    pub(crate) version: Option<String>,
    /// Calls one by one, of all rounds.
    pub(crate) calls: Recorder,
    /// The median call of each round, nanoseconds.
    pub(crate) medians: Vec<u64>,
    /// Calls with several open.
    pub(crate) load: Speed,
    /// One-way messages, if it has them.
    pub(crate) stream: Speed,
    /// What all processes of the rounds have used, their start included.
    pub(crate) cost: Cost,
    /// How often their threads were woken.
    pub(crate) wakes: u64,
    /// Calls and one-way messages under load.
    pub(crate) under_load: u64,
}

impl Rounds {
    /// Runs the program of a round, and takes in what it prints.
    ///
    /// # Errors
    /// If it does not end in time or fails, or prints something else.
    pub(crate) fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let output = command.stdin(Stdio::null()).output().context("starting a round")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", output.status, said.lines().next_back().unwrap_or("it said nothing"));
        }
        self.take(&String::from_utf8_lossy(&output.stdout))
    }

    /// Takes in a round as it was printed.
    ///
    /// # Errors
    /// If it is not as `bench/peers/src/main.rs` describes, or nothing was called.
    pub(crate) fn take(&mut self, text: &str) -> anyhow::Result<()> {
        let mut round = Recorder::new();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            if kind == "version" {
                self.version = Some(rest.to_owned());
                continue;
            }
            let numbers = rest.split_once(' ').context("two numbers")?;
            let (first, second) = (numbers.0.parse::<u64>(), numbers.1.parse::<u64>());
            let (first, second) =
                first.ok().zip(second.ok()).with_context(|| format!("no numbers: `{line}`"))?;
            match kind {
                "single" => {
                    round.record_singles(Duration::from_nanos(first), second);
                    self.calls.record_singles(Duration::from_nanos(first), second);
                }
                "batch" => self.calls.record_batch(u32::try_from(first)?, Duration::from_nanos(second)),
                "load" => self.load_of(first, Duration::from_nanos(second)),
                "stream" => self.stream_of(first, Duration::from_nanos(second)),
                _ => bail!("a line of no kind: `{line}`"),
            }
        }
        self.end(&round)
    }

    /// So many calls with several open.
    pub(crate) fn load_of(&mut self, calls: u64, time: Duration) {
        self.under_load += calls;
        self.load.round(calls, time);
    }

    /// So many one-way messages.
    pub(crate) fn stream_of(&mut self, messages: u64, time: Duration) {
        self.under_load += messages;
        self.stream.round(messages, time);
    }

    /// Of each call or one-way message of all rounds: processor nanoseconds, context switches, and wake-ups.
    pub(crate) fn each(&self) -> [f64; 3] {
        let messages = self.calls.operations() + self.under_load;
        let (cpu_ns, switches) = self.cost.each(messages);
        [cpu_ns, switches, approximate(self.wakes) / approximate(messages.max(1))]
    }

    /// Counts a round, of which the calls are `round`'s and in [`Self::calls`], too.
    ///
    /// # Errors
    /// If nothing was called in it.
    pub(crate) fn end(&mut self, round: &Recorder) -> anyhow::Result<()> {
        let sample = round.sample();
        anyhow::ensure!(sample.count > 0, "a round without a call");
        self.medians.push(sample.p50_ns);
        Ok(())
    }

    /// A/A of the rounds' medians.
    pub(crate) fn a_to_a(&self) -> f64 {
        a_to_a(&self.medians.iter().copied().map(approximate).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_read_as_they_are_printed() {
        let mut rounds = Rounds::default();
        rounds
            .take("version UCX 1.13\nbatch 10 2000\nsingle 100 1\nsingle 200 5\nload 3000 1000000\n")
            .unwrap();
        rounds.take("single 400 9\nload 1000 1000000\nstream 7000 1000000\n").unwrap();
        assert_eq!((rounds.version.as_deref(), &rounds.medians[..]), (Some("UCX 1.13"), &[200, 400][..]));
        assert_eq!(rounds.calls.sample().count, 15);
        rounds.cost = Cost { cpu_ns: 110_250, switches: 2205 };
        rounds.wakes = 1102;
        assert_eq!(rounds.each().map(|each| (each * 10.0).round() / 10.0), [10.0, 0.2, 0.1]);
        assert!(
            (rounds.load.per_second() - 2e6).abs() < 1.0 && (rounds.stream.per_second() - 7e6).abs() < 1.0
        );
        assert!((rounds.a_to_a() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_round_is_refused() {
        for text in ["", "load 5 5\n", "single 5\n", "single x 5\n", "double 5 5\n"] {
            assert!(Rounds::default().take(text).is_err(), "{text}");
        }
        assert!(Rounds::default().run(&mut Command::new("false")).is_err());
    }
}

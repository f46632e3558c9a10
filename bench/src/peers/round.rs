//! One round of a participant as its program prints it, and all rounds together.

use core::time::Duration;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{MORE_SIZES, start};
use crate::sample::{Recorder, a_to_a, approximate};
use crate::traffic::cost::Cost;
use crate::traffic::speed::Speed;

/// Single calls of one length.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Calls of all rounds.
    pub(crate) all: Recorder,
    /// Median call of each round in nanoseconds.
    medians: Vec<u64>,
}

impl Calls {
    /// Adds the calls of one round. Fails if there are none.
    pub(crate) fn end(&mut self, round: &Recorder) -> anyhow::Result<()> {
        let sample = round.sample();
        anyhow::ensure!(sample.count > 0, "a round without a call");
        self.all.as_round(|all| all.add(round));
        self.medians.push(sample.p50_ns);
        Ok(())
    }

    /// Returns the A/A of the rounds' medians.
    pub(crate) fn a_to_a(&self) -> f64 {
        a_to_a(&self.medians.iter().copied().map(approximate).collect::<Vec<_>>())
    }
}

/// Results of the rounds of a participant.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Version, as the participant reports it.
    pub(crate) version: Option<String>,
    /// Single calls of all rounds.
    pub(crate) calls: Calls,
    /// Single calls of the lengths [`MORE_SIZES`].
    pub(crate) more: [Calls; MORE_SIZES.len()],
    /// Rates of calls with several open.
    pub(crate) load: Speed,
    /// Rates of one-way messages, if the participant has them.
    pub(crate) stream: Speed,
    /// Cost of all processes of the rounds, including their start.
    pub(crate) cost: Cost,
    /// Number of wake-ups of their threads.
    pub(crate) wakes: u64,
    /// Number of calls and one-way messages under load.
    pub(crate) under_load: u64,
}

impl Rounds {
    /// Runs the program of a round, and reads its output. Fails if the program fails or does not end in time.
    pub(crate) fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        self.take(&start::output(command)?)
    }

    /// Reads the output of a round, in the format that `bench/peers/src/main.rs` describes.
    pub(crate) fn take(&mut self, text: &str) -> anyhow::Result<()> {
        let mut round = Recorder::new();
        let mut size = None;
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            if kind == "version" {
                self.version = Some(rest.to_owned());
                continue;
            }
            if kind == "size" {
                self.calls_of(size)?.end(&core::mem::take(&mut round))?;
                size = Some(rest.parse().with_context(|| format!("expected a length, got `{line}`"))?);
                continue;
            }
            let numbers = rest.split_once(' ').context("expected two numbers")?;
            let (first, second) = (numbers.0.parse::<u64>(), numbers.1.parse::<u64>());
            let (first, second) =
                first.ok().zip(second.ok()).with_context(|| format!("expected two numbers, got `{line}`"))?;
            match kind {
                "single" => round.record_singles(Duration::from_nanos(first), second),
                "batch" => round.record_batch(u32::try_from(first)?, Duration::from_nanos(second)),
                "load" => self.load_of(first, Duration::from_nanos(second)),
                "stream" => self.stream_of(first, Duration::from_nanos(second)),
                _ => bail!("unknown line: `{line}`"),
            }
        }
        self.calls_of(size)?.end(&round)
    }

    /// Returns the calls of a length: one of [`MORE_SIZES`], or else [`PAYLOAD`](super::PAYLOAD).
    pub(crate) fn calls_with(&self, size: usize) -> &Calls {
        let index = MORE_SIZES.iter().position(|known| *known == size);
        index.map_or(&self.calls, |index| &self.more[index])
    }

    /// Returns the calls of a length; `None` is [`PAYLOAD`](super::PAYLOAD).
    pub(crate) fn calls_of(&mut self, size: Option<usize>) -> anyhow::Result<&mut Calls> {
        let Some(size) = size else { return Ok(&mut self.calls) };
        let index = MORE_SIZES.iter().position(|known| *known == size);
        let index = index.with_context(|| format!("calls of {size} bytes were not asked for"))?;
        Ok(&mut self.more[index])
    }

    /// Adds a round of calls with several open.
    pub(crate) fn load_of(&mut self, calls: u64, time: Duration) {
        self.under_load += calls;
        self.load.round(calls, time);
    }

    /// Adds a round of one-way messages.
    pub(crate) fn stream_of(&mut self, messages: u64, time: Duration) {
        self.under_load += messages;
        self.stream.round(messages, time);
    }

    /// Returns CPU nanoseconds, context switches and wake-ups per call or one-way message of all rounds.
    pub(crate) fn each(&self) -> [f64; 3] {
        let messages = self.calls.all.operations()
            + self.more.iter().map(|calls| calls.all.operations()).sum::<u64>()
            + self.under_load;
        let (cpu_ns, switches) = self.cost.each(messages);
        [cpu_ns, switches, approximate(self.wakes) / approximate(messages.max(1))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_read_from_their_output() {
        let mut rounds = Rounds::default();
        rounds
            .take("version UCX 1.13\nbatch 10 2000\nsingle 100 1\nsingle 200 5\nload 3000 1000000\n")
            .unwrap();
        rounds
            .take("single 400 9\nload 1000 1000000\nstream 7000 1000000\nsize 4096\nsingle 900 5\n")
            .unwrap();
        assert_eq!(
            (rounds.version.as_deref(), &rounds.calls.medians[..]),
            (Some("UCX 1.13"), &[200, 400][..])
        );
        assert_eq!(rounds.calls.all.sample().count, 15);
        assert_eq!((rounds.more[1].all.sample().count, &rounds.more[1].medians[..]), (5, &[900][..]));
        rounds.cost = Cost { cpu_ns: 110_250, switches: 2205 };
        rounds.wakes = 1102;
        assert_eq!(rounds.each().map(|each| (each * 10.0).round() / 10.0), [10.0, 0.2, 0.1]);
        assert!(
            (rounds.load.per_second() - 2e6).abs() < 1.0 && (rounds.stream.per_second() - 7e6).abs() < 1.0
        );
        assert!((rounds.calls.a_to_a() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_fast_round_does_not_give_the_median() {
        let mut rounds = Rounds::default();
        for round in ["single 100 9000\n", "single 200 100\n", "single 300 100\n"] {
            rounds.take(round).unwrap();
        }
        assert_eq!(rounds.calls.all.sample().p50_ns, 200);
    }

    #[test]
    fn malformed_output_is_refused() {
        for text in [
            "",
            "load 5 5\n",
            "single 5\n",
            "single x 5\n",
            "double 5 5\n",
            "single 5 5\nsize 7\nsingle 5 5\n",
        ] {
            assert!(Rounds::default().take(text).is_err(), "{text}");
        }
        assert!(Rounds::default().run(&mut Command::new("false")).is_err());
    }
}

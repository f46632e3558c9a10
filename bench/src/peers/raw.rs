//! Bare sockets and a bare cache line: what nothing can be built above of without taking longer.

use core::time::Duration;
use std::io::{Read, Write};

use anyhow::Context as _;

use super::round::Rounds;
use super::{PAYLOAD, WINDOW};
use crate::clock;
use crate::floor;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// What is bare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A line that both sides write; no load, as there is nothing to pipeline.
    CacheLine,
    /// TCP on the loopback interface, asking again and again.
    Spinning,
    /// The same, asleep in `read`.
    Blocking,
}

impl Raw {
    /// One round.
    ///
    /// # Errors
    /// If a thread cannot be pinned, or the sockets fail.
    pub(crate) fn round(self, cpus: CpuPair, budget: Duration, rounds: &mut Rounds) -> anyhow::Result<()> {
        let mut round = Recorder::new();
        let half = budget / 2;
        match self {
            Self::CacheLine => floor::cache_line(cpus, half, &mut round)?,
            Self::Spinning => floor::tcp_spinning(cpus, PAYLOAD, half, &mut round)?,
            Self::Blocking => floor::tcp_blocking(cpus, PAYLOAD, half, &mut round)?,
        }
        match self {
            Self::CacheLine => {}
            Self::Spinning => load(cpus, half, floor::tcp_spinning_pair()?, rounds)?,
            Self::Blocking => load(cpus, half, floor::tcp_pair()?, rounds)?,
        }
        rounds.calls.add(&round);
        rounds.end(&round)
    }
}

/// Windows of payloads in one write, given back as they come.
fn load<S: Read + Write + Send>(
    cpus: CpuPair,
    budget: Duration,
    (mut near, mut far): (S, S),
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let partner = move || {
        let mut buffer = [0; PAYLOAD * WINDOW];
        loop {
            match far.read(&mut buffer).context("reading a window")? {
                0 => return Ok(()),
                len => far.write_all(&buffer[..len]).context("giving a window back")?,
            }
        }
    };
    let caller = move || {
        let mut buffer = [7; PAYLOAD * WINDOW];
        let (started, mut calls) = (clock::now(), 0);
        while started.elapsed() < budget {
            near.write_all(&buffer).and_then(|()| near.read_exact(&mut buffer)).context("a window")?;
            calls += WINDOW as u64;
        }
        Ok((calls, started.elapsed()))
    };
    let (calls, took) = face_to_face(cpus, partner, caller)?;
    rounds.load_of(calls, took);
    Ok(())
}

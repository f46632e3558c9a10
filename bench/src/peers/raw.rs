//! Bare sockets and a bare cache line: the floor of everything built on them.

use core::time::Duration;
use std::io::{Read, Write};

use anyhow::Context as _;

use super::round::Rounds;
use super::{MORE_SIZES, PAYLOAD, WINDOW};
use crate::clock;
use crate::floor;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// A bare mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A cache line that both sides write; it has no load, because it cannot be pipelined.
    CacheLine,
    /// TCP on the loopback interface, both sides polling.
    Spinning,
    /// TCP on the loopback interface, both sides blocking in `read`.
    Blocking,
}

impl Raw {
    /// Runs one round.
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
        rounds.calls.end(&round)?;
        for size in MORE_SIZES {
            let mut round = Recorder::new();
            match self {
                // A cache line has one length.
                Self::CacheLine => break,
                Self::Spinning => floor::tcp_spinning(cpus, size, half / 2, &mut round)?,
                Self::Blocking => floor::tcp_blocking(cpus, size, half / 2, &mut round)?,
            }
            rounds.calls_of(Some(size))?.end(&round)?;
        }
        Ok(())
    }
}

/// Sends windows of payloads in one write each; the partner returns the bytes as they arrive.
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
                len => far.write_all(&buffer[..len]).context("returning a window")?,
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

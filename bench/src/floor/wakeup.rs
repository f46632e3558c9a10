//! Two threads that wake each other in turns, by futex and by eventfd: the floor of any call between blocking sides.

use core::time::Duration;

use anyhow::Context as _;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::raw::{futex_wait, futex_wake};
use super::word::SleepWord;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// Measures round trips of two threads that each sleep on a word and wake the other.
pub(crate) fn futex(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let (ping, pong) = (SleepWord::default(), SleepWord::default());
    let partner = || {
        let mut turn = 1;
        while wait_beyond(&ping, turn - 1) == turn {
            open(&pong, turn);
            turn += 1;
        }
        Ok(())
    };
    let caller = || {
        let mut turn = 1;
        into.repeat(budget, || {
            open(&ping, turn);
            wait_beyond(&pong, turn - 1);
            turn += 1;
        });
        open(&ping, END);
        Ok(())
    };
    face_to_face(cpus, partner, caller)
}

/// Measures round trips of two threads that each block in reading an eventfd.
pub(crate) fn eventfd(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let new = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("creating an eventfd");
    let (ping, pong) = (new()?, new()?);
    let partner = || {
        while ping.read()? == CALL {
            pong.write(CALL)?;
        }
        Ok(())
    };
    let caller = || {
        let result = into.round(budget, || {
            ping.write(CALL)?;
            pong.read().map(drop)
        });
        // One write gives one read; any other count ends the partner.
        ping.write(CALL + 1)?;
        result.context("an eventfd round trip")
    };
    face_to_face(cpus, partner, caller)
}

fn open(word: &SleepWord, turn: u32) {
    word.publish(turn);
    futex_wake(word);
}

/// Sleeps while the word is `last`. Returns the next value.
fn wait_beyond(word: &SleepWord, last: u32) -> u32 {
    loop {
        let seen = word.read();
        if seen != last {
            return seen;
        }
        futex_wait(word, last);
    }
}

/// Value that ends the partner; turns would reach it only after hours at full speed.
const END: u32 = u32::MAX;

/// Value that a call and its reply add to the counter of an eventfd.
const CALL: u64 = 1;

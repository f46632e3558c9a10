//! Two threads that wake each other in turns, by futex and by eventfd: the floor of any call whose sides block.

use core::convert::Infallible;
use core::time::Duration;

use anyhow::Context as _;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::raw::{futex_wait, futex_wake};
use super::word::SleepWord;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// Round trips of two threads that sleep on a word each and wake the other one.
///
/// # Errors
/// If a thread cannot be pinned.
pub fn futex(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
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
        let Ok(()) = into.round(budget, || {
            open(&ping, turn);
            wait_beyond(&pong, turn - 1);
            turn += 1;
            Ok::<(), Infallible>(())
        });
        open(&ping, END);
        Ok(())
    };
    face_to_face(cpus, partner, caller)
}

/// Round trips of two threads that block in reading an eventfd each.
///
/// # Errors
/// If a thread cannot be pinned, or no eventfd can be had.
pub fn eventfd(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let new = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("making an eventfd");
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

/// Sleeps while the word is `last`; gives the value that came after it.
fn wait_beyond(word: &SleepWord, last: u32) -> u32 {
    loop {
        let seen = word.look();
        if seen != last {
            return seen;
        }
        futex_wait(word, last);
    }
}

/// Ends the partner; turns would have to be taken for hours at full speed to come here.
const END: u32 = u32::MAX;

/// What a call and its answer add to the counter of an eventfd.
const CALL: u64 = 1;

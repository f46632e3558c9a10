//! A cache line going to another core and back: the floor of any call over shared memory.

use core::convert::Infallible;
use core::time::Duration;

use super::word::SpinWord;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// Round trips of one line that both sides write: the caller writes odd numbers, the partner the even ones after them.
///
/// A batch of these can be twice as quick as each alone: most likely since the caller then writes before the partner has
/// looked at the line again, and need not take it away from it. A call has work to do between two messages, so its floor
/// is the percentile, with a clock reading in that place, and not the batch.
///
/// # Errors
/// If a thread cannot be pinned.
pub fn one_line(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let line = SpinWord::default();
    ping_pong(cpus, budget, into, &line, &line)
}

/// Round trips over two lines with one writer each, as a ring in each direction has them.
///
/// # Errors
/// If a thread cannot be pinned.
pub fn two_lines(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let (ping, pong) = (SpinWord::default(), SpinWord::default());
    ping_pong(cpus, budget, into, &ping, &pong)
}

fn ping_pong(
    cpus: CpuPair,
    budget: Duration,
    into: &mut Recorder,
    ping: &SpinWord,
    pong: &SpinWord,
) -> anyhow::Result<()> {
    let partner = || {
        let mut turn = 1;
        loop {
            let seen = ping.look();
            if seen == turn {
                pong.publish(turn + 1);
                turn += 2;
            } else if seen == END {
                return Ok(());
            }
        }
    };
    let caller = || {
        let mut turn = 1;
        let Ok(()) = into.round(budget, || {
            ping.publish(turn);
            // No pause in the loop: one takes a fifth of the round trip that is measured.
            while pong.look() != turn + 1 {}
            turn += 2;
            Ok::<(), Infallible>(())
        });
        ping.publish(END);
        Ok(())
    };
    face_to_face(cpus, partner, caller)
}

/// Never a turn: those would have to be counted for centuries to come here.
const END: u64 = u64::MAX;

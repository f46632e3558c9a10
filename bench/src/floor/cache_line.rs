//! A cache line that moves to another core and back: the floor of any call over shared memory.

use core::time::Duration;

use super::word::SpinWord;
use crate::placement::{CpuPair, face_to_face};
use crate::sample::Recorder;

/// Measures round trips of one line that both sides write: the caller writes odd numbers, the partner the even ones after them.
///
/// A batch of round trips can be twice as fast as single ones, most likely because the caller then writes before the partner has read
/// the line again. A call has work between two messages, so its floor is the percentile, with a clock reading in that place, and not
/// the batch.
pub(crate) fn one_line(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let line = SpinWord::default();
    ping_pong(cpus, budget, into, &line, &line)
}

/// Measures round trips over two lines with one writer each, like rings in both directions.
pub(crate) fn two_lines(cpus: CpuPair, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
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
            let seen = ping.read();
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
        into.repeat(budget, || {
            ping.publish(turn);
            // No pause in the loop, because it takes a fifth of the measured round trip.
            while pong.read() != turn + 1 {}
            turn += 2;
        });
        ping.publish(END);
        Ok(())
    };
    face_to_face(cpus, partner, caller)
}

/// Value that ends the partner; turns would reach it only after centuries.
const END: u64 = u64::MAX;

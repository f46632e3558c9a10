//! The senders: each sends a message, waits for the answer, sleeps, and so on; some at once, or one alone.

use core::time::Duration;
use std::thread;

use anyhow::Context as _;
use pronto_expedite::schedule::{CALLER, Class, schedule};

use super::handler::Line;
use crate::clock;
use crate::wakeup::Delays;

/// Sends `count` messages on each line, one every `interval` more or less: so that they keep step with no tick, each pause is
/// up to a fifth shorter or longer. Lines begin one after the other within an interval, with a message that is not counted.
/// Each sender is scheduled as `class` says. Returns how long each message took to its handler, line by line.
///
/// # Errors
/// If a handler is gone.
pub(crate) fn ping_all(
    lines: &mut [Line],
    count: u32,
    interval: Duration,
    class: Class,
) -> anyhow::Result<Vec<Delays>> {
    let lines_there_are = u32::try_from(lines.len().max(1)).unwrap_or(u32::MAX);
    thread::scope(|scope| {
        let senders: Vec<_> = (0_u32..)
            .zip(lines)
            .map(|(index, line)| {
                let begins = interval * index / lines_there_are;
                scope.spawn(move || {
                    schedule(CALLER, class).context("scheduling a sender")?;
                    ping(line, count, interval, begins, index)
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().expect("a sender does not panic")).collect()
    })
}

fn ping(
    line: &mut Line,
    count: u32,
    interval: Duration,
    begins: Duration,
    seed: u32,
) -> anyhow::Result<Delays> {
    let mut delays = Delays::default();
    let mut random = u64::from(seed) + 1;
    let mut next = clock::now() + begins;
    for number in 0..=count {
        while let Some(left) = next.checked_duration_since(clock::now()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
        let delay = line.ping()?;
        if number > 0 {
            delays.record(delay);
        }
        // Knuth's generator for 64 bits (MMIX).
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let fifth = interval / 5;
        let more = u64::try_from(fifth.as_nanos()).unwrap_or(0) * 2;
        next += interval - fifth + Duration::from_nanos((random >> 33) % more.max(1));
        // Who is late does not hurry: the handler would find its messages waiting.
        next = next.max(clock::now() + interval / 4);
    }
    Ok(delays)
}

//! The senders: each repeatedly sends a message, waits for the reply, and sleeps; several concurrently, or one alone.

use core::time::Duration;

use anyhow::Context as _;
use minidos::random::Random;
use pronto_expedite::schedule::{CALLER, Class, schedule};

use super::handler::Line;
use crate::clock;
use crate::sample::Recorder;
use crate::workers;

/// Sends `count` messages on each line, about one every `interval`: each pause is up to a fifth shorter or longer, so that messages are
/// not in step with any tick. Lines begin one after the other within an interval, with a message that is not counted. Each sender has
/// the class `class`. Returns the time of each message to its handler, line by line.
pub(crate) fn ping_all(
    lines: &mut [Line],
    count: u32,
    interval: Duration,
    class: Class,
) -> anyhow::Result<Vec<Recorder>> {
    let line_count = u32::try_from(lines.len().max(1)).unwrap_or(u32::MAX);
    let lines = (0_u32..).zip(lines);
    let sender = |(index, line): (u32, &mut Line)| {
        schedule(CALLER, class).context("scheduling a sender")?;
        ping(line, count, interval, interval * index / line_count, index)
    };
    workers::each(lines, sender).into_iter().collect()
}

fn ping(
    line: &mut Line,
    count: u32,
    interval: Duration,
    begins: Duration,
    seed: u32,
) -> anyhow::Result<Recorder> {
    let mut delays = Recorder::default();
    let mut random = Random::new(seed.into());
    let mut next = clock::now() + begins;
    for number in 0..=count {
        clock::sleep_until(next);
        let delay = line.ping()?;
        if number > 0 {
            delays.record_single(Duration::from_nanos(delay));
        }
        let fifth = interval / 5;
        let more = 2 * clock::nanos(fifth);
        next += interval - fifth + Duration::from_nanos(random.bits() % more.max(1));
        // A late sender does not catch up, because the handler would find queued messages.
        next = next.max(clock::now() + interval / 4);
    }
    Ok(delays)
}

//! The measured parts of a call, each with a recorder.

use core::time::Duration;

use crate::clock;
use crate::sample::Recorder;

/// A step of a call, or a sequence of steps, that can be carried out alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The caller's program, from the start of a call to the doorbell.
    Start,
    /// Queries of a call to its node, other than those to its session.
    Around,
    /// Encoding of a request.
    Encode,
    /// Lookup of the peer's number for a type.
    Type,
    /// The session, from an encoded payload to the doorbell.
    Session,
    /// The provider: one message posted, and the doorbell.
    EngineThreads,
    /// The provider: one message polled, and its receive reposted.
    Poll,
    /// An empty poll of a session.
    EmptyPoll,
    /// The callee's turn that receives a request without running its handler.
    Receive,
    /// The callee's turn that receives a request, runs its handler and posts the reply.
    Serve,
    /// A handler with its codec.
    Handler,
    /// The node's dispatch, with a handler of 32 bytes.
    Dispatch,
    /// That handler alone.
    Handler32,
    /// The session's wait for a reply that has arrived; on the fast path, the poll that finds it.
    Wait,
    /// The wait, and the decoding of the reply.
    Finish,
    /// Part of [`Session`](Self::Session) or [`Start`](Self::Start) until the request has left.
    RequestLeaves,
    /// The rest of that step.
    RequestEnds,
    /// Part of [`Serve`](Self::Serve) until the first poll.
    ServeBegins,
    /// Until the reply has left.
    ServeAnswers,
    /// The rest of that step.
    ServeEnds,
    /// Part of [`TakeIn`](Self::Receive) until the first poll.
    InBegins,
    /// Until the request is handed over.
    InHanded,
    /// The rest of that step.
    InEnds,
    /// Part of [`Wait`](Self::Wait) until the first poll.
    WaitBegins,
    /// The rest of that step.
    WaitFinds,
}

/// Number of parts.
const COUNT: usize = Part::WaitFinds as usize + 1;

/// Measurements of every part.
#[derive(Debug)]
pub(crate) struct Parts {
    seen: [Recorder; COUNT],
    /// Time between two consecutive clock readings.
    clock: Duration,
}

impl Parts {
    /// Measures the cost of the clock, and starts without other measurements.
    pub(crate) fn new() -> Self {
        let mut empty: Vec<Duration> = (0..CLOCK_READINGS)
            .map(|_| {
                let before = clock::now();
                clock::now() - before
            })
            .collect();
        empty.sort_unstable();
        Self { seen: core::array::from_fn(|_| Recorder::new()), clock: empty[empty.len() / 2] }
    }

    /// Runs `work`, which carries out `ops` operations, between two clock readings.
    pub(crate) fn time<R>(&mut self, part: Part, ops: u32, work: impl FnOnce() -> R) -> R {
        let before = clock::now();
        let done = work();
        self.took(part, ops, (clock::now() - before).saturating_sub(self.clock));
        done
    }

    fn took(&mut self, part: Part, ops: u32, time: Duration) {
        let recorder = &mut self.seen[part as usize];
        recorder.record_single(time / ops.max(1));
        recorder.record_batch(ops, time);
    }

    /// Records the pieces of a step in nanoseconds, each with a clock reading in it.
    pub(crate) fn pieces<const N: usize>(&mut self, parts: [Part; N], ns: impl Iterator<Item = f64>) {
        for (part, ns) in parts.into_iter().zip(ns) {
            self.took(part, 1, Duration::from_secs_f64(ns / 1e9).saturating_sub(self.clock));
        }
    }

    /// Divides the time of a step without clock readings among its pieces, in nanoseconds; 0 without measurements.
    pub(crate) fn split<const N: usize>(&self, whole: Part, pieces: [Part; N]) -> [f64; N] {
        let seen = pieces.map(|piece| self.ns(piece));
        let (all, whole) = (seen.iter().sum::<f64>(), self.ns(whole));
        seen.map(|ns| if all > 0.0 { whole * ns / all } else { 0.0 })
    }

    /// Returns the median over batches in nanoseconds.
    pub(crate) fn ns(&self, part: Part) -> f64 {
        self.seen[part as usize].sample().batch_ns
    }

    /// Returns the provider's own time for a message in nanoseconds.
    pub(crate) fn provider_ns(&self) -> f64 {
        self.ns(Part::EngineThreads) + self.ns(Part::Poll)
    }

    /// Returns the time between two consecutive clock readings in nanoseconds.
    pub(crate) fn clock_ns(&self) -> f64 {
        self.clock.as_secs_f64() * 1e9
    }
}

/// Enough for a median.
const CLOCK_READINGS: usize = 1001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_median_of_its_batches() {
        let mut parts = Parts::new();
        for time in [90, 100, 5000] {
            parts.took(Part::EngineThreads, 10, Duration::from_nanos(time));
        }
        assert!((parts.ns(Part::EngineThreads) - 10.0).abs() < 0.1, "{}", parts.ns(Part::EngineThreads));
        assert!(parts.ns(Part::Poll) == 0.0, "it was not measured");
    }

    #[test]
    fn a_step_is_divided_among_its_pieces() {
        let mut parts = Parts { clock: Duration::from_nanos(20), ..Parts::new() };
        let pieces = [Part::WaitBegins, Part::WaitFinds];
        assert!(parts.split(Part::Wait, pieces).iter().all(|ns| *ns == 0.0), "it was not measured");
        parts.took(Part::Wait, 10, Duration::from_nanos(800));
        parts.pieces(pieces, [50.0, 110.0].into_iter());
        let [begins, finds] = parts.split(Part::Wait, pieces);
        assert!((begins - 20.0).abs() < 0.5 && (finds - 60.0).abs() < 0.5, "{begins} {finds}");
    }
}

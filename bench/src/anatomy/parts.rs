//! What is measured: parts of a call, each with a recorder.

use core::time::Duration;

use crate::clock;
use crate::sample::Recorder;

/// A step of a call, or a run of them, as it can be carried out alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The caller's program, from the start of a call to the doorbell.
    Start,
    /// What a call asks its node beside its session.
    Around,
    /// A request into its payload.
    Encode,
    /// The peer's number for a type.
    Knows,
    /// The session, from an encoded payload to the doorbell.
    Session,
    /// The provider: one message posted, and the doorbell.
    Post,
    /// The provider: one message polled, and given back.
    Poll,
    /// A look at a session that finds nothing.
    Look,
    /// The callee's turn that takes a request in, and hands it to nobody.
    TakeIn,
    /// The callee's turn that takes a request in, runs its handler and posts the reply.
    Serve,
    /// A handler with its codec.
    Handler,
    /// The node's dispatch, with a handler of 32 bytes.
    Dispatch,
    /// That handler alone.
    Handler32,
    /// The session's wait for an answer that is there; of a call that looks for it at once, that look.
    Wait,
    /// The same, and the reply out of its payload.
    Finish,
    /// Of [`Session`](Self::Session) or [`Start`](Self::Start): until the request has left.
    RequestLeaves,
    /// What comes after.
    RequestEnds,
    /// Of [`Serve`](Self::Serve): until the first look.
    ServeBegins,
    /// Until the reply has left.
    ServeAnswers,
    /// What comes after.
    ServeEnds,
    /// Of [`TakeIn`](Self::TakeIn): until the first look.
    InBegins,
    /// Until the request is handed over.
    InHanded,
    /// What comes after.
    InEnds,
    /// Of [`Wait`](Self::Wait): until the first look.
    WaitBegins,
    /// What comes after.
    WaitFinds,
}

/// Every part.
const ALL: [Part; 25] = [
    Part::Start,
    Part::Around,
    Part::Encode,
    Part::Knows,
    Part::Session,
    Part::Post,
    Part::Poll,
    Part::Look,
    Part::TakeIn,
    Part::Serve,
    Part::Handler,
    Part::Dispatch,
    Part::Handler32,
    Part::Wait,
    Part::Finish,
    Part::RequestLeaves,
    Part::RequestEnds,
    Part::ServeBegins,
    Part::ServeAnswers,
    Part::ServeEnds,
    Part::InBegins,
    Part::InHanded,
    Part::InEnds,
    Part::WaitBegins,
    Part::WaitFinds,
];

/// What was seen of every part.
#[derive(Debug)]
pub(crate) struct Parts {
    seen: [Recorder; ALL.len()],
    /// Two readings of the clock with nothing between them.
    clock: Duration,
}

impl Parts {
    /// Nothing seen yet; the clock's own time is taken here.
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

    /// Does something `ops` times over between two readings of the clock.
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

    /// The pieces of a step, nanoseconds, each with a reading of the clock in it.
    pub(crate) fn pieces<const N: usize>(&mut self, parts: [Part; N], ns: impl Iterator<Item = f64>) {
        for (part, ns) in parts.into_iter().zip(ns) {
            self.took(part, 1, Duration::from_secs_f64(ns / 1e9).saturating_sub(self.clock));
        }
    }

    /// A step without a clock in it, by its pieces: what of it each takes, nanoseconds. Nothing if none was seen.
    pub(crate) fn split<const N: usize>(&self, whole: Part, pieces: [Part; N]) -> [f64; N] {
        let seen = pieces.map(|piece| self.ns(piece));
        let (all, whole) = (seen.iter().sum::<f64>(), self.ns(whole));
        seen.map(|ns| if all > 0.0 { whole * ns / all } else { 0.0 })
    }

    /// The median over batches, nanoseconds.
    pub(crate) fn ns(&self, part: Part) -> f64 {
        self.seen[part as usize].sample().batch_ns
    }

    /// What the provider itself takes of a message, nanoseconds.
    pub(crate) fn provider_ns(&self) -> f64 {
        self.ns(Part::Post) + self.ns(Part::Poll)
    }

    /// What two readings of the clock take, nanoseconds.
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
    fn a_part_is_what_its_batches_took_each() {
        let mut parts = Parts::new();
        for time in [90, 100, 5000] {
            parts.took(Part::Post, 10, Duration::from_nanos(time));
        }
        assert!((parts.ns(Part::Post) - 10.0).abs() < 0.1, "{}", parts.ns(Part::Post));
        assert!(parts.ns(Part::Poll) == 0.0, "nothing was seen of it");
    }

    #[test]
    fn a_step_is_shared_out_by_what_its_pieces_took() {
        let mut parts = Parts { clock: Duration::from_nanos(20), ..Parts::new() };
        let pieces = [Part::WaitBegins, Part::WaitFinds];
        assert!(parts.split(Part::Wait, pieces).iter().all(|ns| *ns == 0.0), "nothing was seen of it");
        parts.took(Part::Wait, 10, Duration::from_nanos(800));
        parts.pieces(pieces, [50.0, 110.0].into_iter());
        let [begins, finds] = parts.split(Part::Wait, pieces);
        assert!((begins - 20.0).abs() < 0.5 && (finds - 60.0).abs() < 0.5, "{begins} {finds}");
    }

    #[test]
    fn every_part_has_a_recorder_of_its_own() {
        assert!(ALL.iter().enumerate().all(|(place, part)| *part as usize == place));
    }
}

//! The steps of a call, computed from the measurements of its parts.

use super::{Part, Parts};
use crate::params::choices;

choices! {
    /// Position of a step relative to the critical path of a call.
    pub(crate) enum Path {
        /// The call waits for the step, and is longer by it.
        Critical = "critical",
        /// The call does not wait: the step runs while a message is in flight, or while the other side works.
        Concurrent = "beside",
        /// A sum, or a measured call.
        Whole = "",
    }
}

/// One line of the anatomy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Name of the step.
    pub(crate) name: &'static str,
    /// Time in nanoseconds. A difference of two measurements can be negative.
    pub(crate) ns: f64,
    /// Whether the call waits for the step.
    pub(crate) path: Path,
    /// Number of the step in ARCHITECTURE.md, or a mark that it belongs to the hardware.
    pub(crate) at: &'static str,
    /// Method of measurement.
    pub(crate) how: &'static str,
}

/// Names of the steps on the critical path, in order.
pub(crate) const PATH: &[&str] = &[
    "call", "encode", "type", "session", "line", "way", "look", "poll", "take-in", "dispatch", "handler",
    "reply", "way-back", "wait", "decode",
];
/// Names of the steps off the critical path.
pub(crate) const OFF_PATH: &[&str] = &["turn-begins", "request-ends", "reply-ends", "wait-begins"];

/// Names of all lines: the critical path, three sums, and the steps off the critical path.
pub(crate) const STEPS: &[&str] = &[
    "call",
    "encode",
    "type",
    "session",
    "line",
    "way",
    "look",
    "poll",
    "take-in",
    "dispatch",
    "handler",
    "reply",
    "way-back",
    "wait",
    "decode",
    SUM,
    CALL,
    REST,
    "turn-begins",
    "request-ends",
    "reply-ends",
    "wait-begins",
];

/// Sum of the steps on the critical path.
pub(crate) const SUM: &str = "sum";
/// Measured call between two processes.
pub(crate) const CALL: &str = "measured";
/// Part of the measured call that the steps do not explain; negative if they explain too much.
pub(crate) const REST: &str = "not-explained";

/// Times of the machine without Pronto, and of the call, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    /// One way between the cores, without the provider's part.
    pub(crate) way: f64,
    /// The measured call.
    pub(crate) call: f64,
}

/// Path of a call through its caller's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPath {
    /// The fast path: posted and polled for under one engine lock. Taken by inline and short messages.
    Fast,
    /// Started, then waited for.
    Started,
}

/// Returns the steps of a call from its parts.
pub(crate) fn steps(parts: &Parts, outside: Outside, through: CallPath) -> Vec<Step> {
    let ns = |part| parts.ns(part);
    let whole = match through {
        CallPath::Fast => Part::Session,
        CallPath::Started => Part::Start,
    };
    let [_, request_ends] = parts.split(whole, [Part::RequestLeaves, Part::RequestEnds]);
    let [turn_begins, answers, reply_ends] =
        parts.split(Part::Serve, [Part::ServeBegins, Part::ServeAnswers, Part::ServeEnds]);
    let [_, taken_in, _] = parts.split(Part::Receive, [Part::InBegins, Part::InHanded, Part::InEnds]);
    let [wait_begins, finds] = parts.split(Part::Wait, [Part::WaitBegins, Part::WaitFinds]);
    let step = |name, ns, at, how| Step { name, ns, path: Path::Critical, at, how };
    let off_path = |name, ns, at, how| Step { name, ns, path: Path::Concurrent, at, how };
    let sums = |name, ns, at, how| Step { name, ns, path: Path::Whole, at, how };
    let [call, session] = of_caller(parts, request_ends, through);
    let mut all = vec![
        call,
        step("encode", ns(Part::Encode), "2", "alone"),
        step("type", ns(Part::Type), "3", "alone"),
        session,
        step("line", ns(Part::EngineThreads), "5", "alone: post and doorbell of a bare queue pair"),
        step("way", outside.way, "hardware, kernel", "half of the floor's round trip"),
        step("look", ns(Part::EmptyPoll), "6, 10", "one empty poll: half of one on each side, on average"),
        step("poll", ns(Part::Poll), "5'", "alone: poll of a bare queue pair, receive reposted"),
        step(
            "take-in",
            taken_in - ns(Part::Poll),
            "6-7",
            "a turn that replies later, from its first poll until the request is handed over, less poll",
        ),
        step(
            "dispatch",
            ns(Part::Dispatch) - ns(Part::Handler32),
            "8",
            "a node's, with a handler of 32 bytes, less that handler",
        ),
        step("handler", ns(Part::Handler), "9", "alone: decode, handler, encode"),
        step(
            "reply",
            answers - taken_in - ns(Part::Handler),
            "3-5, back",
            "a turn that replies immediately, from its first poll until the reply has left, less take-in, poll and handler",
        ),
        step("way-back", outside.way, "hardware, kernel", "as way"),
        step("wait", finds, "5', 7, 10-11", "a wait for a reply that has arrived, from its first poll"),
        step("decode", ns(Part::Finish) - ns(Part::Wait), "11", "a wait with the reply decoded, less wait"),
    ];
    let sum = all.iter().map(|step| step.ns).sum::<f64>();
    all.extend([
        sums(SUM, sum, "", "all of the above: the steps on the critical path"),
        sums(CALL, outside.call, "1-11", "two processes, both polling; median of batches"),
        sums(REST, outside.call - sum, "", "measured, less sum"),
        off_path(
            "turn-begins",
            turn_begins,
            "6",
            "the callee's turn up to its first poll: before the request came",
        ),
        off_path("request-ends", request_ends, "3-4", "the caller once its request has left"),
        off_path("reply-ends", reply_ends, "3-5, back", "the callee's turn once its reply has left"),
        wait_begins_of(wait_begins, through),
    ]);
    all
}

/// Returns the steps `call` and `session`, in which the two paths differ.
fn of_caller(parts: &Parts, request_ends: f64, through: CallPath) -> [Step; 2] {
    let ns = |part| parts.ns(part);
    let step = |name, ns, at, how| Step { name, ns, path: Path::Critical, at, how };
    let session = ns(Part::Session) - ns(Part::Type) - ns(Part::EngineThreads) - request_ends;
    match through {
        CallPath::Fast => [
            step(
                "call",
                ns(Part::Around),
                "1",
                "alone: the thread's permissions, and the sink for messages of others",
            ),
            step(
                "session",
                session,
                "3-4",
                "engine lock, call slot, credit, header: a call that is polled for only after it has left, less type and line",
            ),
        ],
        CallPath::Started => [
            step(
                "call",
                ns(Part::Start) - ns(Part::Encode) - ns(Part::Session),
                "1",
                "from the program to the doorbell, less encode and session",
            ),
            step(
                "session",
                session,
                "3-4",
                "call slot, credit, header: from the payload until the request has left, less type and line",
            ),
        ],
    }
}

fn wait_begins_of(ns: f64, through: CallPath) -> Step {
    let how = match through {
        CallPath::Fast => {
            "the poll for a reply, up to its first: a call holds the engine lock already, so this is omitted"
        }
        CallPath::Started => "a wait up to its first poll",
    };
    Step { name: "wait-begins", ns, path: Path::Concurrent, at: "10", how }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_rest_are_the_measured_call() {
        for through in [CallPath::Fast, CallPath::Started] {
            let found = steps(&Parts::new(), Outside { way: 40.0, call: 200.0 }, through);
            let ns = |name| found.iter().find(|step| step.name == name).map(|step| step.ns);
            assert_eq!(found.iter().map(|step| step.name).collect::<Vec<_>>(), STEPS);
            assert_eq!((ns(SUM), ns(CALL), ns(REST)), (Some(80.0), Some(200.0), Some(120.0)));
            let on = |path| found.iter().filter(move |step| step.path == path).map(|step| step.name);
            assert_eq!(on(Path::Critical).collect::<Vec<_>>(), PATH);
            assert_eq!(on(Path::Concurrent).collect::<Vec<_>>(), OFF_PATH);
        }
    }

    #[test]
    fn steps_off_the_critical_path_are_not_in_the_sum() {
        let mut parts = Parts::new();
        let took = |parts: &mut Parts, part, ns| parts.pieces([part], [ns + parts.clock_ns()].into_iter());
        for (part, ns) in [
            (Part::Session, 100.0),
            (Part::RequestLeaves, 30.0),
            (Part::RequestEnds, 10.0),
            (Part::Serve, 200.0),
            (Part::ServeBegins, 10.0),
            (Part::ServeAnswers, 60.0),
            (Part::ServeEnds, 30.0),
            (Part::Receive, 100.0),
            (Part::InHanded, 50.0),
            (Part::InEnds, 50.0),
            (Part::Wait, 50.0),
            (Part::Finish, 50.0),
            (Part::WaitBegins, 10.0),
            (Part::WaitFinds, 40.0),
        ] {
            took(&mut parts, part, ns);
        }
        let found = steps(&parts, Outside { way: 0.0, call: 0.0 }, CallPath::Fast);
        let is = |name: &str, expected: f64| {
            let ns = found.iter().find(|step| step.name == name).map_or(f64::NAN, |step| step.ns);
            assert!((ns - expected).abs() < 1.0, "{name}: {ns}, expected {expected}");
        };
        for (name, expected) in [("session", 75.0), ("take-in", 50.0), ("reply", 70.0), ("wait", 40.0)] {
            is(name, expected);
        }
        for (name, expected) in
            [("request-ends", 25.0), ("turn-begins", 20.0), ("reply-ends", 60.0), ("wait-begins", 10.0)]
        {
            is(name, expected);
        }
        is(SUM, 235.0);
    }
}

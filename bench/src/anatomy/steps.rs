//! The steps of a call, from what was measured of its parts.

use super::{Part, Parts};

/// Whether a call waits for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// It does: the call is the longer by it.
    Critical,
    /// It does not: the step is carried out while a message is on its way, or the other side at work.
    Beside,
    /// No step: a sum, or a measured call.
    Whole,
}

impl Path {
    /// As it is printed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Beside => "beside",
            Self::Whole => "",
        }
    }
}

/// One line of the anatomy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes, nanoseconds. A difference of two measurements can be below zero.
    pub(crate) ns: f64,
    /// Whether the call waits for it.
    pub(crate) path: Path,
    /// Where ARCHITECTURE.md has it, or that it is the hardware's.
    pub(crate) at: &'static str,
    /// How it was measured.
    pub(crate) how: &'static str,
}

/// The names of the steps that a call waits for, in their order.
pub(crate) const PATH: &[&str] = &[
    "call", "encode", "type", "session", "line", "way", "look", "poll", "take-in", "dispatch", "handler",
    "reply", "way-back", "wait", "decode",
];
/// The names of those that it does not wait for.
pub(crate) const BESIDE: &[&str] = &["turn-begins", "request-ends", "reply-ends", "wait-begins"];

/// The names of all lines: what a call waits for, three sums, and what it does not wait for.
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

/// All steps together that a call waits for.
pub(crate) const SUM: &str = "sum";
/// The call as it was measured, between two processes.
pub(crate) const CALL: &str = "measured";
/// What these steps do not explain, or explain too much.
pub(crate) const REST: &str = "not-explained";

/// What the machine takes without Pronto, and the call; nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    /// From one core to the other, without what the provider does there: once.
    pub(crate) way: f64,
    /// The measured call.
    pub(crate) call: f64,
}

/// Which of its two ways a call takes through its caller's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Posted and looked for in one hold of the engine: what fits a line, or what its provider copies beside it.
    FastOutcome,
    /// Started, then waited for.
    Started,
}

/// A call from its parts.
pub(crate) fn steps(parts: &Parts, outside: Outside, through: Way) -> Vec<Step> {
    let ns = |part| parts.ns(part);
    let whole = match through {
        Way::FastOutcome => Part::Session,
        Way::Started => Part::Start,
    };
    let [_, request_ends] = parts.split(whole, [Part::RequestLeaves, Part::RequestEnds]);
    let [turn_begins, answers, reply_ends] =
        parts.split(Part::Serve, [Part::ServeBegins, Part::ServeAnswers, Part::ServeEnds]);
    let [_, taken_in, _] = parts.split(Part::TakeIn, [Part::InBegins, Part::InHanded, Part::InEnds]);
    let [wait_begins, finds] = parts.split(Part::Wait, [Part::WaitBegins, Part::WaitFinds]);
    let step = |name, ns, at, how| Step { name, ns, path: Path::Critical, at, how };
    let beside = |name, ns, at, how| Step { name, ns, path: Path::Beside, at, how };
    let sums = |name, ns, at, how| Step { name, ns, path: Path::Whole, at, how };
    let [call, session] = of_caller(parts, request_ends, through);
    let mut all = vec![
        call,
        step("encode", ns(Part::Encode), "2", "alone"),
        step("type", ns(Part::Knows), "3", "alone"),
        session,
        step("line", ns(Part::Post), "5", "alone: post and doorbell of a bare queue pair"),
        step("way", outside.way, "hardware, kernel", "half of the floor's round trip"),
        step("look", ns(Part::Look), "6, 10", "one look in vain: half of one on each side, on average"),
        step("poll", ns(Part::Poll), "5'", "alone: poll of a bare queue pair, receive given back"),
        step(
            "take-in",
            taken_in - ns(Part::Poll),
            "6-7",
            "a turn that answers later, from its first look until the request is handed over, less poll",
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
            "a turn that answers at once, from its first look until the reply has left, less take-in, poll and handler",
        ),
        step("way-back", outside.way, "hardware, kernel", "as way"),
        step("wait", finds, "5', 7, 10-11", "a wait for an answer that is there, from its first look"),
        step("decode", ns(Part::Finish) - ns(Part::Wait), "11", "the same with the reply decoded, less wait"),
    ];
    let sum = all.iter().map(|step| step.ns).sum::<f64>();
    all.extend([
        sums(SUM, sum, "", "all of the above: the steps that a call waits for"),
        sums(CALL, outside.call, "1-11", "two processes, both polling; median of batches"),
        sums(REST, outside.call - sum, "", "measured, less sum"),
        beside(
            "turn-begins",
            turn_begins,
            "6",
            "the callee's turn up to its first look: before the request came",
        ),
        beside("request-ends", request_ends, "3-4", "the caller once its request has left"),
        beside("reply-ends", reply_ends, "3-5, back", "the callee's turn once its reply has left"),
        wait_begins_of(wait_begins, through),
    ]);
    all
}

/// The steps `call` and `session`, in which the two ways differ.
fn of_caller(parts: &Parts, request_ends: f64, through: Way) -> [Step; 2] {
    let ns = |part| parts.ns(part);
    let step = |name, ns, at, how| Step { name, ns, path: Path::Critical, at, how };
    let session = ns(Part::Session) - ns(Part::Knows) - ns(Part::Post) - request_ends;
    match through {
        Way::FastOutcome => [
            step(
                "call",
                ns(Part::Around),
                "1",
                "alone: what the thread may do, and who takes what comes for others",
            ),
            step(
                "session",
                session,
                "3-4",
                "the engine held, call slot, credit, header: a call that is not polled for until it has left, less type and line",
            ),
        ],
        Way::Started => [
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

fn wait_begins_of(ns: f64, through: Way) -> Step {
    let how = match through {
        Way::FastOutcome => {
            "the look for an answer, up to its first: in a call the engine is held already, and this is left out"
        }
        Way::Started => "a wait up to its first look",
    };
    Step { name: "wait-begins", ns, path: Path::Beside, at: "10", how }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_rest_are_the_measured_call() {
        for through in [Way::FastOutcome, Way::Started] {
            let found = steps(&Parts::new(), Outside { way: 40.0, call: 200.0 }, through);
            let ns = |name| found.iter().find(|step| step.name == name).map(|step| step.ns);
            assert_eq!(found.iter().map(|step| step.name).collect::<Vec<_>>(), STEPS);
            assert_eq!((ns(SUM), ns(CALL), ns(REST)), (Some(80.0), Some(200.0), Some(120.0)));
            let on = |path| found.iter().filter(move |step| step.path == path).map(|step| step.name);
            assert_eq!(on(Path::Critical).collect::<Vec<_>>(), PATH);
            assert_eq!(on(Path::Beside).collect::<Vec<_>>(), BESIDE);
        }
    }

    #[test]
    fn what_a_call_does_not_wait_for_is_no_part_of_the_sum() {
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
            (Part::TakeIn, 100.0),
            (Part::InHanded, 50.0),
            (Part::InEnds, 50.0),
            (Part::Wait, 50.0),
            (Part::Finish, 50.0),
            (Part::WaitBegins, 10.0),
            (Part::WaitFinds, 40.0),
        ] {
            took(&mut parts, part, ns);
        }
        let found = steps(&parts, Outside { way: 0.0, call: 0.0 }, Way::FastOutcome);
        let is = |name: &str, expected: f64| {
            let ns = found.iter().find(|step| step.name == name).map_or(f64::NAN, |step| step.ns);
            assert!((ns - expected).abs() < 1.0, "{name}: {ns}, and not {expected}");
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

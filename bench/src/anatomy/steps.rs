//! The steps of a call, from what was measured of its parts.

use super::{Part, Parts};

/// One line of the anatomy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes, nanoseconds. A difference of two measurements can be below zero.
    pub(crate) ns: f64,
    /// Where ARCHITECTURE.md has it, or that it is the hardware's.
    pub(crate) at: &'static str,
    /// How it was measured.
    pub(crate) how: &'static str,
}

/// The names of all lines, in the order of a call; three sums follow the steps.
pub(crate) const STEPS: &[&str] = &[
    "call", "encode", "type", "session", "line", "way", "look", "poll", "take-in", "dispatch", "handler",
    "reply", "way-back", "wait", "decode", SUM, CALL, REST,
];

/// All steps together.
pub(crate) const SUM: &str = "sum";
/// The call as it was measured, between two processes.
pub(crate) const CALL: &str = "measured";
/// What the steps do not explain.
pub(crate) const REST: &str = "rest";

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
    Soon,
    /// Started, then waited for.
    Started,
}

/// A call from its parts.
pub(crate) fn steps(parts: &Parts, outside: Outside, through: Way) -> Vec<Step> {
    let ns = |part| parts.ns(part);
    let step = |name, ns, at, how| Step { name, ns, at, how };
    let [call, session, wait] = of_caller(parts, through);
    let mut all = vec![
        call,
        step("encode", ns(Part::Encode), "2", "alone"),
        step("type", ns(Part::Knows), "3", "alone"),
        session,
        step("line", ns(Part::Post), "5", "alone: post and doorbell of a bare queue pair"),
        step("way", outside.way, "hardware, kernel", "half of the floor's round trip"),
        step("look", ns(Part::Look), "6, 10", "one look in vain: half of one on each side, on average"),
        step("poll", ns(Part::Poll), "5'", "alone: poll of a bare queue pair, receive given back"),
        step("take-in", ns(Part::TakeIn) - ns(Part::Poll), "6-7", "a turn that answers later, less poll"),
        step(
            "dispatch",
            ns(Part::Dispatch) - ns(Part::Handler32),
            "8",
            "a node's, with a handler of 32 bytes, less that handler",
        ),
        step("handler", ns(Part::Handler), "9", "alone: decode, handler, encode"),
        step(
            "reply",
            ns(Part::Serve) - ns(Part::TakeIn) - ns(Part::Handler),
            "3-5, back",
            "a turn that answers at once, less take-in, poll and handler",
        ),
        step("way-back", outside.way, "hardware, kernel", "as way"),
        wait,
        step("decode", ns(Part::Finish) - ns(Part::Wait), "11", "the same with the reply decoded, less wait"),
    ];
    let sum = all.iter().map(|step| step.ns).sum::<f64>();
    all.extend([
        step(SUM, sum, "", "all of the above"),
        step(CALL, outside.call, "1-11", "two processes, both polling; median of batches"),
        step(REST, outside.call - sum, "", "measured, less sum"),
    ]);
    all
}

/// The steps `call`, `session` and `wait`, in which the two ways differ.
fn of_caller(parts: &Parts, through: Way) -> [Step; 3] {
    let ns = |part| parts.ns(part);
    let step = |name, ns, at, how| Step { name, ns, at, how };
    let session = ns(Part::Session) - ns(Part::Knows) - ns(Part::Post);
    match through {
        Way::Soon => [
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
                "the engine held, call slot, credit, header, how to wait: a call that is not polled for, less type and line",
            ),
            step(
                "wait",
                ns(Part::Wait),
                "5', 7, 10-11",
                "the look for an answer that is there; it takes the engine and asks how to wait once more",
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
                "call slot, credit, header: from the payload to the doorbell, less type and line",
            ),
            step("wait", ns(Part::Wait), "5', 7, 10-11", "a wait for an answer that is there"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_rest_are_the_measured_call() {
        for through in [Way::Soon, Way::Started] {
            let found = steps(&Parts::new(), Outside { way: 40.0, call: 200.0 }, through);
            let ns = |name| found.iter().find(|step| step.name == name).map(|step| step.ns);
            assert_eq!(found.iter().map(|step| step.name).collect::<Vec<_>>(), STEPS);
            assert_eq!((ns(SUM), ns(CALL), ns(REST)), (Some(80.0), Some(200.0), Some(120.0)));
        }
    }
}

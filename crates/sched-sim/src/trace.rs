//! Traces for <https://ui.perfetto.dev>, in the JSON format of Chrome's trace events: which task ran on which CPU, and
//! when messages arrived.

use std::io::{self, Write};

use pronto_sched_policy::policy::time::Nanos;

use crate::id::{CpuId, TaskId};

/// A recorded trace. It keeps the first events, up to a limit, and drops the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    limit: usize,
    runs: Vec<Run>,
    arrivals: Vec<Arrival>,
    forgotten: u64,
}

/// A period for which a task had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    cpu: CpuId,
    task: TaskId,
    from: Nanos,
    to: Nanos,
}

/// The arrival of a message at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    cpu: CpuId,
    to: TaskId,
    at: Nanos,
}

impl Trace {
    /// Returns an empty trace for at most `limit` events.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, runs: Vec::new(), arrivals: Vec::new(), forgotten: 0 }
    }

    pub(crate) fn ran(&mut self, cpu: CpuId, task: TaskId, from: Nanos, to: Nanos) {
        if self.has_room() {
            self.runs.push(Run { cpu, task, from, to });
        }
    }

    pub(crate) fn arrived(&mut self, cpu: CpuId, to: TaskId, at: Nanos) {
        if self.has_room() {
            self.arrivals.push(Arrival { cpu, to, at });
        }
    }

    fn has_room(&mut self) -> bool {
        let room = self.runs.len() + self.arrivals.len() < self.limit;
        self.forgotten += u64::from(!room);
        room
    }

    /// Returns the number of events that were dropped.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Writes the trace as one JSON object; `name` names tasks.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(&self, out: &mut dyn Write, name: impl Fn(TaskId) -> String) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let name = |task: TaskId| name(task).replace(['"', '\\'], "'");
        let runs = self.runs.iter().map(|Run { cpu, task, from, to }| {
            let (name, begin, length) = (name(*task), microseconds(*from), microseconds(to.since(*from)));
            format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":{},"ts":{begin},"dur":{length}}}"#, cpu.0)
        });
        let arrivals = self.arrivals.iter().map(|Arrival { cpu, to, at }| {
            let (name, at) = (name(*to), microseconds(*at));
            format!(r#"{{"ph":"i","s":"t","name":"message for {name}","pid":1,"tid":{},"ts":{at}}}"#, cpu.0)
        });
        for (index, event) in runs.chain(arrivals).enumerate() {
            write!(out, "{}\n{event}", if index == 0 { "" } else { "," })?;
        }
        writeln!(out, "\n]}}")
    }
}

/// Returns nanoseconds as the decimal microseconds of the format.
fn microseconds(time: Nanos) -> String {
    format!("{}.{:03}", time.0 / 1_000, time.0 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_chrome_s_json_and_keeps_its_first_events() {
        let mut trace = Trace::new(2);
        trace.arrived(CpuId(2), TaskId(0), Nanos(1_000));
        trace.ran(CpuId(2), TaskId(0), Nanos(1_500), Nanos(4_000));
        trace.ran(CpuId(2), TaskId(1), Nanos(4_000), Nanos(5_000));
        let mut out = Vec::new();
        trace.write(&mut out, |task| format!("t\"{}", task.0)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#"{"ph":"X","name":"t'0","pid":1,"tid":2,"ts":1.500,"dur":2.500}"#), "{text}");
        assert!(text.contains(r#"{"ph":"i","s":"t","name":"message for t'0","pid":1,"tid":2,"ts":1.000}"#));
        assert_eq!(trace.forgotten(), 1);
        assert_eq!(text.matches("\"ph\"").count(), 2);
    }
}

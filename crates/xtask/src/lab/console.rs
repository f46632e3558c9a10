//! Reads the guest's console: keeps its last lines, and detects that the kernel failed.

use std::collections::VecDeque;

/// Number of lines that are kept. An oops with its registers and stack takes about 80.
const KEPT_LINES: usize = 1_000;

/// Number of lines before the first error that are shown with it.
const LEAD: usize = 10;

/// Number of lines that are shown without an error. It suffices for the trace that a guest writes after a time-out.
const TAIL: usize = 200;

/// Beginning of the last message of a kernel.
const PANIC: &str = "Kernel panic - not syncing: ";

/// Beginnings of lines that mean that the kernel is broken, and their meanings.
const SIGNS: &[(&str, &str)] = &[
    (PANIC, "kernel panic"),
    ("BUG: workqueue lockup", "hung work queue"),
    ("BUG: sleeping function called from invalid context", "sleep in atomic context"),
    ("BUG: scheduling while atomic", "sleep in atomic context"),
    ("WARNING: possible circular locking dependency", "lock order"),
    ("WARNING: possible recursive locking", "lock order"),
    ("WARNING: possible irq lock inversion", "lock order"),
    ("WARNING: inconsistent lock state", "lock order"),
    ("WARNING: bad unlock balance", "lock order"),
    ("WARNING: held lock freed", "lock order"),
    ("WARNING: suspicious RCU usage", "lock order"),
    ("BUG:", "kernel oops"),
    ("kernel BUG at", "kernel oops"),
    ("Oops:", "kernel oops"),
    ("general protection fault", "kernel oops"),
    ("divide error:", "kernel oops"),
    ("invalid opcode:", "kernel oops"),
    ("INFO: task ", "hung task"),
];

/// Text in the line about a hung task. Other `INFO: task` lines are harmless.
const HUNG: &str = "blocked for more than";

/// The output of the console so far.
#[derive(Debug, Default)]
pub(super) struct Console {
    lines: VecDeque<String>,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    kind: &'static str,
    /// The line of the kernel.
    line: String,
    /// Number of lines since then, including that line.
    since: usize,
}

impl Console {
    /// Adds the next line. Returns whether it is the first error.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        if self.lines.len() == KEPT_LINES && self.trouble.is_some() {
            // The beginning of a trace is more useful than its end.
            return false;
        }
        if self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
        if let Some(trouble) = &mut self.trouble {
            trouble.since += 1;
            return false;
        }
        let text = message(line);
        self.trouble = sign(text).map(|kind| Trouble { kind, line: text.to_owned(), since: 1 });
        self.trouble.is_some()
    }

    /// Returns the reason for the kernel's failure, in one line.
    pub(super) fn verdict(&self) -> Option<String> {
        let Trouble { kind, line, .. } = self.trouble.as_ref()?;
        Some(format!("{kind}: {}", line.strip_prefix(PANIC).unwrap_or(line)))
    }

    /// Returns the lines to show to a user: from shortly before the error on, or the last ones.
    pub(super) fn trace(&self) -> impl Iterator<Item = &str> {
        let wanted = self.trouble.as_ref().map_or(TAIL, |trouble| trouble.since + LEAD);
        self.lines.iter().skip(self.lines.len().saturating_sub(wanted)).map(String::as_str)
    }
}

/// Returns a line without the time that the kernel puts before it: `[ 4.123456] text`, or `[ 4.123456][ T1] text`.
fn message(line: &str) -> &str {
    let mut text = line;
    while let Some((_, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        text = rest.trim_start();
    }
    text
}

fn sign(text: &str) -> Option<&'static str> {
    let (_, kind) = SIGNS.iter().find(|(start, _)| text.starts_with(start))?;
    (*kind != "hung task" || text.contains(HUNG)).then_some(*kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        let mut console = Console::default();
        text.lines().for_each(|line| {
            console.take(line);
        });
        console
    }

    #[test]
    fn a_panic_is_reported_and_its_trace_is_kept() {
        let console = console(
            "[    4.1] sysrq: Trigger a crash\r\n[    4.2] Kernel panic - not syncing: sysrq triggered crash\r\n\
             [    4.3] CPU: 0 PID: 1 Comm: init\r\n[    4.4]  <TASK>\r\n",
        );
        assert_eq!(console.verdict().unwrap(), "kernel panic: sysrq triggered crash");
        assert_eq!(console.trace().count(), 4);
    }

    #[test]
    fn the_first_error_counts() {
        let console = console(
            "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000\n\
             [    1.1] Oops: Oops: 0002 [#1] SMP\n[    1.2] Kernel panic - not syncing: Fatal exception\n",
        );
        assert!(console.verdict().unwrap().starts_with("kernel oops: BUG: kernel NULL"), "{console:?}");
    }

    #[test]
    fn a_hung_task_is_an_error_and_other_messages_are_not() {
        let hung = console("[   70.0][   T31] INFO: task cat:99 blocked for more than 60 seconds.\n");
        assert!(hung.verdict().unwrap().starts_with("hung task: "));
        let well = console("[    0.1] DEBUG: BUG: no\n[    0.2] rxe0: added eth0\nINFO: task done\n");
        assert_eq!(well.verdict(), None);
    }

    #[test]
    fn reports_of_a_debugging_kernel_are_errors() {
        let order = console("[    5.1][  T99] WARNING: possible circular locking dependency detected\n");
        assert!(order.verdict().unwrap().starts_with("lock order: WARNING: possible circular"));
        let sleep =
            console("BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1\n");
        assert!(sleep.verdict().unwrap().starts_with("sleep in atomic context: "));
        assert_eq!(console("WARNING: CPU: 0 PID: 1 at x.c:1\n").verdict(), None);
    }

    #[test]
    fn kept_lines_are_bounded_and_include_the_trace() {
        let mut console = Console::default();
        for number in 0..3 * KEPT_LINES {
            console.take(&format!("line {number}"));
        }
        assert_eq!(console.trace().count(), TAIL);
        assert!(console.take("Oops: 1"));
        for _ in 0..2 * KEPT_LINES {
            console.take("more");
        }
        assert!(console.lines.len() <= KEPT_LINES);
        assert!(console.verdict().is_some());
    }
}

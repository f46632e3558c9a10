//! Reads the guest's console: keeps its last lines, and notices when the kernel gives up.

use std::collections::VecDeque;

/// How many lines are kept: an oops with its registers and stack takes about 80.
const KEPT_LINES: usize = 1_000;

/// How many lines before the first sign of trouble are shown with it.
const LEAD: usize = 10;

/// How many lines are shown when there is no such sign: enough for the trace that a guest writes when its time is up.
const TAIL: usize = 200;

/// How the last word of a kernel begins.
const PANIC: &str = "Kernel panic - not syncing: ";

/// How lines begin that mean that the kernel is broken, and what they mean.
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

/// What a line of a hung task holds besides its beginning; other `INFO: task` lines are harmless.
const HUNG: &str = "blocked for more than";

/// What the console has said so far.
#[derive(Debug, Default)]
pub(super) struct Console {
    lines: VecDeque<String>,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    kind: &'static str,
    /// What the kernel wrote.
    line: String,
    /// Lines since then, that one included.
    since: usize,
}

impl Console {
    /// Takes the next line; returns whether it is the first sign of trouble.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        if self.lines.len() == KEPT_LINES && self.trouble.is_some() {
            // The beginning of a trace says more than its end.
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

    /// What broke the kernel, in one line.
    pub(super) fn verdict(&self) -> Option<String> {
        let Trouble { kind, line, .. } = self.trouble.as_ref()?;
        Some(format!("{kind}: {}", line.strip_prefix(PANIC).unwrap_or(line)))
    }

    /// The lines to show to somebody who asks why: from shortly before the trouble on, or the last ones.
    pub(super) fn trace(&self) -> impl Iterator<Item = &str> {
        let wanted = self.trouble.as_ref().map_or(TAIL, |trouble| trouble.since + LEAD);
        self.lines.iter().skip(self.lines.len().saturating_sub(wanted)).map(String::as_str)
    }
}

/// A line without the time that the kernel puts in front: `[    4.123456] text`, or `[    4.123456][    T1] text`.
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
    fn a_panic_is_named_and_its_trace_kept() {
        let console = console(
            "[    4.1] sysrq: Trigger a crash\r\n[    4.2] Kernel panic - not syncing: sysrq triggered crash\r\n\
             [    4.3] CPU: 0 PID: 1 Comm: init\r\n[    4.4]  <TASK>\r\n",
        );
        assert_eq!(console.verdict().unwrap(), "kernel panic: sysrq triggered crash");
        assert_eq!(console.trace().count(), 4);
    }

    #[test]
    fn the_first_sign_counts() {
        let console = console(
            "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000\n\
             [    1.1] Oops: Oops: 0002 [#1] SMP\n[    1.2] Kernel panic - not syncing: Fatal exception\n",
        );
        assert!(console.verdict().unwrap().starts_with("kernel oops: BUG: kernel NULL"), "{console:?}");
    }

    #[test]
    fn a_hung_task_is_trouble_and_other_news_are_not() {
        let hung = console("[   70.0][   T31] INFO: task cat:99 blocked for more than 60 seconds.\n");
        assert!(hung.verdict().unwrap().starts_with("hung task: "));
        let well = console("[    0.1] DEBUG: BUG: no\n[    0.2] rxe0: added eth0\nINFO: task done\n");
        assert_eq!(well.verdict(), None);
    }

    #[test]
    fn what_only_a_debugging_kernel_says_is_trouble_too() {
        let order = console("[    5.1][  T99] WARNING: possible circular locking dependency detected\n");
        assert!(order.verdict().unwrap().starts_with("lock order: WARNING: possible circular"));
        let sleep =
            console("BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1\n");
        assert!(sleep.verdict().unwrap().starts_with("sleep in atomic context: "));
        assert_eq!(console("WARNING: CPU: 0 PID: 1 at x.c:1\n").verdict(), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_trace_stays() {
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

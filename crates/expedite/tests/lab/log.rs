//! The kernel's log.

use std::process::Command;

use crate::program::run;

/// Checks that the kernel has logged no warning.
pub(crate) fn assert_no_kernel_warnings() {
    let log = run(&mut Command::new("dmesg"));
    let warnings = ["WARNING:", "BUG:", "refcount_t", "rcu: INFO"];
    let lines: Vec<_> = log.lines().collect();
    // A debug kernel stops checking locks after the first warning.
    let checks = std::fs::read_to_string("/proc/lockdep_stats").unwrap_or_default();
    let lock_checks = checks.lines().find_map(|line| line.trim().strip_prefix("debug_locks:"));
    assert!(lock_checks.is_none_or(|on| on.trim() == "1"), "{checks}");
    if let Some(at) = lines.iter().position(|line| warnings.iter().any(|word| line.contains(word))) {
        panic!("{}", lines[at..lines.len().min(at + 60)].join("\n"));
    }
}

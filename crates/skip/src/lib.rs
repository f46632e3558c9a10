//! Tests that cannot run on this machine say so, and are counted.
//!
//! The test harness cannot skip a test that is running: a test that returns early counts as passed. [`because`] therefore writes a line
//! that starts with [`MARK`] directly to stdout, since the harness captures only what the print macros write. `cargo xtask test` reads
//! these lines, counts the tests as skipped instead of passed, and prints the reasons.
//!
//! A test that needs two CPUs begins with:
//!
//! ```no_run
//! if pronto_skip::for_want_of_two_cpus() {
//!     return;
//! }
//! ```
#![forbid(unsafe_code)]

use core::panic::Location;
use std::io::Write as _;

/// Start of the line of a skipped test. The place of the test and the reason follow, both after a colon and a space.
pub const MARK: &str = "skipped test at ";

/// Reason of a test that needs two CPUs.
pub const ONE_CPU: &str = "needs two CPUs, but this process may use only one";

/// Marks the calling test as skipped for a reason. The test must return afterwards.
#[track_caller]
pub fn because(reason: &str) {
    let line = line(Location::caller(), reason);
    // One write, so that a line of another test cannot come in between. A closed stdout has no reader that counts.
    let _closed = std::io::stdout().write_all(line.as_bytes());
}

/// Marks the calling test as skipped if this process may use only one CPU. Returns whether it did.
#[track_caller]
#[must_use = "a skipped test must return"]
pub fn for_want_of_two_cpus() -> bool {
    let has_one = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    if has_one {
        because(ONE_CPU);
    }
    has_one
}

/// Marks the calling test as skipped if this process runs under ThreadSanitizer, as in `cargo xtask test --only tsan`, whose runtime library
/// makes system calls at any time. Returns whether it did.
#[track_caller]
#[must_use = "a skipped test must return"]
pub fn for_system_calls_of_a_sanitizer() -> bool {
    let is_under_one = std::env::var_os("TSAN_OPTIONS").is_some();
    if is_under_one {
        because("ThreadSanitizer makes system calls of its own");
    }
    is_under_one
}

/// Returns the lines to write. The harness may have begun a line with the name of the test, so an empty line comes first.
fn line(place: &Location<'_>, reason: &str) -> String {
    format!("\n{MARK}{}:{}: {reason}\n", place.file(), place.line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_starts_with_the_mark_and_names_the_test() {
        let text = line(Location::caller(), "no such device");
        let skipped = text.lines().nth(1).expect("a line after the one that the harness began");
        let (place, reason) = skipped.strip_prefix(MARK).expect("the mark").split_once(": ").expect("both");
        assert!(place.ends_with(&format!("lib.rs:{}", line!() - 3)), "{place}");
        assert_eq!(reason, "no such device");
    }
}

//! A Rust module with a C object and a file of sched-policy: the stock kernel loads it, and it decides as it does in user space.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
#[ignore = "runs in the lab"]
fn the_stock_kernel_loads_a_rust_module_with_our_policy_in_it() {
    let module = built("hello");
    let stdout = checked(Command::new("lab-module").arg(&module));
    assert!(stdout.contains("hello from Rust; a boost would last 200000 ns; in an interrupt: 0"), "{stdout}");
    assert!(stdout.contains("hello: goodbye"), "{stdout}");
    assert!(!stdout.contains("disagrees about version") && !stdout.contains("WARNING"), "{stdout}");
}

/// Returns the path of the module that was built from a folder for the running kernel.
fn built(name: &str) -> PathBuf {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("lab-modules").join(release.trim()).join(name).join(format!("{name}.ko"))
}

fn checked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

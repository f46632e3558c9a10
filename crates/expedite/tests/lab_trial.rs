//! The trial when the module is loaded, with modules that have a fault (`cargo xtask lab module --break`): it must find each. In virtual
//! time, so that the time of the refusal does not depend on the host.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::process::Command;
use std::time::Instant;

use pronto_expedite::{Device, Refused};
use pronto_lab_module::Absent;

/// Longest time of a refusal.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns the messages of the module in the kernel's log.
fn log() -> Vec<String> {
    let output = Command::new("dmesg").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.contains("expedite: ")).map(str::to_owned).collect()
}

fn is_refused(fault: &str, message: &str) {
    let absent = Absent::hold();
    let before = log().len();
    #[expect(clippy::disallowed_methods, reason = "the virtual time of the lab")]
    let start = Instant::now();
    let output = absent.try_to_load_without(fault);
    let took = start.elapsed();
    let messages = log().split_off(before);
    assert!(!output.status.success(), "a module without {fault} was loaded: {messages:?}");
    assert!(messages.iter().any(|line| line.contains(message)), "{messages:?}");
    assert!(took < LIMIT, "refused after {took:?}");
    assert_eq!(Device::open().unwrap_err(), Refused::NotLoaded);
    // Without the fault, the module is loaded.
    drop(absent.load(&[]));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_module_that_does_not_raise_is_refused() {
    is_refused("raise", "the trial failed: a thread that waited was not boosted when data arrived");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_module_that_does_not_lower_is_refused() {
    is_refused("lower", "the trial failed: a boosted thread did not return to its class");
}

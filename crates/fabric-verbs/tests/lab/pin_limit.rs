//! An ordinary user with a low limit of locked memory: the error names the needed amount and the remedy.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use pronto_core::fabric::QueuePair as _;
use pronto_fabric_verbs::{Device, Offer};

use crate::grants::LIMITS;
use crate::pair::{Devices, addresses};

const LIMIT: &str = "PRONTO_TEST_PIN_LIMIT";
/// `nobody`: a user without CAP_IPC_LOCK.
const USER: u32 = 65_534;

/// Runs the named test of this program as an ordinary user who may lock `limit` bytes.
fn as_user(test: &str, limit: u64) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", test, "--nocapture"]).env(LIMIT, limit.to_string());
    let output = command.uid(USER).gid(USER).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

/// Returns the limit of locked memory for this process, if `as_user` has started it.
fn limited() -> Option<u64> {
    let limit: u64 = std::env::var(LIMIT).ok()?.parse().unwrap();
    setrlimit(Resource::RLIMIT_MEMLOCK, limit, limit).unwrap();
    Some(limit)
}

/// Shows: operations.memlock
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn with_64_kib_the_device_is_refused_with_the_remedy() {
    let Some(limit) = limited() else {
        let said = as_user("pin_limit::with_64_kib_the_device_is_refused_with_the_remedy", 64 << 10);
        assert!(said.contains("refused as expected"), "{said}");
        return;
    };
    let refused = Device::for_address(addresses()[0]).unwrap_err().to_string();
    for word in [limit.to_string().as_str(), "RLIMIT_MEMLOCK", "ulimit -l", "CAP_IPC_LOCK"] {
        assert!(refused.contains(word), "{refused:?} does not contain {word}");
    }
    println!("refused as expected");
}

/// Shows: operations.memlock
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn with_8_mib_a_link_works_until_they_are_used_up() {
    let Some(limit) = limited() else {
        let said = as_user("pin_limit::with_8_mib_a_link_works_until_they_are_used_up", 8 << 20);
        assert!(said.contains("used up and reported"), "{said}");
        return;
    };
    let devices = Devices::open();
    let mut links = Vec::new();
    let refused = loop {
        let mut link = devices.link(LIMITS);
        // The first chunk of its send memory, as a session prepares it.
        match link[0].bulk.prepare(0..1 << 20) {
            Ok(()) => links.push(link),
            Err(error) => break error.to_string(),
        }
        assert!(links.len() < 100, "{limit} bytes are never used up");
    };
    assert!(!links.is_empty(), "not even one link: {refused}");
    assert!(refused.contains("RLIMIT_MEMLOCK") && refused.contains(&limit.to_string()), "{refused:?}");
    let _ = Offer::new(&devices.0[0], [LIMITS; 2]);
    println!("used up and reported");
}

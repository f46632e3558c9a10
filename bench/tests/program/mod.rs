//! The program under test.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the program.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pronto-bench"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program that cargo built can be started")
}

/// Runs the program. Returns the one JSON value on stdout; any other output there fails to parse.
pub(crate) fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON value and nothing else")
}

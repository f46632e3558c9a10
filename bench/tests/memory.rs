//! The experiments about memory, in a small form: what they report, and that its bars hold there.

use std::process::{Command, Stdio};

use serde_json::Value;

fn rows(args: &[&str]) -> (Value, Vec<Value>) {
    let output = Command::new(env!("CARGO_BIN_EXE_pronto-bench"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program that cargo built can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let rows = object["rows"].as_array().cloned().unwrap_or_default();
    (object, rows)
}

/// A session takes 32 KiB where there are 1,000 of them (docs/measuring.md). Among 50 it is up to twice as much, with threads that
/// make links, and what a build without optimisation adds.
#[test]
fn fifty_sessions_take_no_more_than_they_did() {
    let (object, rows) = rows(&["sessions", "--quick", "--sessions", "50", "--json"]);
    let number = |column: &str| rows[0][column].as_f64().unwrap_or(f64::NAN);
    assert_eq!(rows[0]["sessions"], 50, "{object}");
    assert!((1.0..96.0).contains(&number("session_kib")), "{rows:?}");
    assert!(number("peak_mib") >= number("before_mib") && number("back_s") < 10.0, "{rows:?}");
}

#[test]
fn a_short_soak_stays_flat() {
    let (object, rows) = rows(&["soak", "--quick", "--json", "--provider", "tcp"]);
    if object["host"]["cores_allowed"] == 1 {
        return;
    }
    assert_eq!(rows[0]["calls"], 100_000);
    assert_eq!(object["claims"][0]["holds"], true, "{object}");
}

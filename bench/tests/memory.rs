//! The experiments about memory in a short form: their reports, and their bars.

mod program;

use serde_json::Value;

fn rows(args: &[&str]) -> (Value, Vec<Value>) {
    let object = program::json(args);
    let rows = object["rows"].as_array().cloned().unwrap_or_default();
    (object, rows)
}

/// A session takes 32 KiB among 1,000 (docs/measuring.md). Among 50, it takes up to twice as much, with the threads that make links,
/// and more in a build without optimisation.
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

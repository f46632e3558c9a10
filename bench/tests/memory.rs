//! The experiments about memory in a short form: their reports. The bars are those of the experiments: resident memory depends on the
//! load of the machine. `crates/pronto/tests/memory.rs` judges growth by counts.

mod program;

use serde_json::Value;

fn rows(args: &[&str]) -> (Value, Vec<Value>) {
    let object = program::json(args);
    let rows = object["rows"].as_array().cloned().unwrap_or_default();
    (object, rows)
}

#[test]
fn fifty_sessions_have_their_memory_measured() {
    let (object, rows) = rows(&["sessions", "--quick", "--sessions", "50", "--json"]);
    let number = |column: &str| rows[0][column].as_f64().unwrap_or(f64::NAN);
    assert_eq!(rows[0]["sessions"], 50, "{object}");
    assert!(number("session_kib") > 0.0 && number("peak_mib") >= number("before_mib"), "{rows:?}");
}

#[test]
fn a_short_soak_measures_the_growth_of_both_sides() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let (object, rows) = rows(&["soak", "--quick", "--json", "--provider", "tcp"]);
    assert_eq!(rows[0]["calls"], 100_000);
    for side in ["caller", "server"] {
        for reading in ["warm", "half", "end"] {
            assert!(rows[0][format!("{side}_{reading}_kib")].as_u64() > Some(0), "{rows:?}");
        }
    }
    assert_eq!(
        (&object["claims"][0]["id"], &object["claims"][0]["measured"]),
        (&"F2".into(), &rows[0]["growth_kib"])
    );
}

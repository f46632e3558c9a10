//! `pronto doctor` as an operator uses it, on the machine of the test.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pronto"))
        .arg("doctor")
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Returns the texts of a subject.
fn of(report: &serde_json::Value, subject: &str) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings");
    let texts = findings.iter().filter(|finding| finding["subject"] == subject);
    texts.map(|finding| finding["text"].as_str().expect("a text").to_owned()).collect()
}

/// Shows: operations.doctor-code
#[test]
fn every_subject_is_reported_and_the_exit_code_shows_problems() {
    let output = doctor(&["--json"]);
    let report = json(&output);
    let expected = if report["problems"] == 0 { 0 } else { 3 };
    assert_eq!(output.status.code(), Some(expected), "{report}");
    for subject in [
        "kernel",
        "preemption",
        "clock",
        "real-time",
        "memlock",
        "boost",
        "huge pages",
        "frequency",
        "idle",
        "topology",
        "cgroup",
        "coschedule",
        "rdma",
        "busy poll",
        "napi",
    ] {
        assert!(!of(&report, subject).is_empty(), "{subject}: {report}");
    }
    let text = String::from_utf8(doctor(&[]).stdout).expect("text");
    assert!(text.lines().last().expect("a summary").starts_with("problems: "), "{text}");
    assert!(text.contains("\nok "), "{text}");
}

#[test]
fn the_help_has_an_example_and_the_exit_codes() {
    let output = doctor(&["--help"]);
    let help = String::from_utf8(output.stdout).expect("text");
    assert!(help.contains("pronto doctor --json") && help.contains("3 at least one problem"), "{help}");
}

/// The report names the options that the kernel refuses to an unprivileged user, and needs no rights itself.
#[test]
fn an_unprivileged_user_sees_the_refused_checks() {
    if !nix::unistd::geteuid().is_root() {
        return pronto_skip::because("only root can run the program as another user");
    }
    let nobody = Command::new(env!("CARGO_BIN_EXE_pronto"))
        .args(["doctor", "--json"])
        .uid(65_534)
        .gid(65_534)
        .output();
    let output = match nobody {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return pronto_skip::because("other users cannot read the program");
        }
        Err(error) => panic!("{error}"),
    };
    let report = json(&output);
    let polls = of(&report, "busy poll");
    assert!(polls.iter().any(|text| text.contains("SO_PREFER_BUSY_POLL is refused")), "{polls:?}");
    assert!(polls.iter().any(|text| text.contains("EPIOCSPARAMS")), "{polls:?}");
}

//! `pronto demo` as a user runs it: its output, its exit code, and its clean-up after failures.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A directory of one test, in which the demo creates its files.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pd-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pronto"));
        command.process_group(0).arg("demo").args(arguments).env("TMPDIR", &self.0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Starts a long demo, and returns when its nodes compute.
fn computing(place: &Place) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut demo = place.demo(&["--points", "20000", "--json"]).spawn().unwrap();
    let mut progress = BufReader::new(demo.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("iteration 1") {
        line.clear();
        assert_ne!(progress.read_line(&mut line).unwrap(), 0, "the demo ended before it computed");
    }
    (demo, progress)
}

/// Returns the processes whose parent is `parent`.
fn children_of(parent: u32) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    list.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

fn all_gone(pids: &[Pid]) -> bool {
    pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[test]
fn the_json_has_the_documented_keys_and_valid_values() {
    for transport in ["shm", "tcp"] {
        let place = Place::new(transport);
        let output = place.demo(&["kmeans", "--transport", transport, "--json"]).output().unwrap();
        let report = json(&output);
        let keys: Vec<_> = report.as_object().unwrap().keys().cloned().collect();
        let mut promised = [
            "nodes",
            "transport",
            "messages",
            "bytes",
            "lost",
            "duplicated",
            "out_of_order",
            "corrupt",
            "result_equal",
            "reconciled",
            "types",
            "sizes",
            "lengths",
        ];
        promised.sort_unstable();
        assert_eq!(keys, promised);
        assert_eq!((&report["nodes"], &report["transport"]), (&4.into(), &transport.into()));
        for fault in ["lost", "duplicated", "out_of_order", "corrupt"] {
            assert_eq!(report[fault], 0, "{fault}");
        }
        assert_eq!((&report["result_equal"], &report["reconciled"]), (&true.into(), &true.into()));
        check_types(&report);
        assert!(place.is_empty(), "files were left behind");
    }
}

fn check_types(report: &Value) {
    let types = report["types"].as_array().unwrap();
    let count = |name: &str| {
        let found = types.iter().find(|kind| kind["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        found["count"].as_u64().unwrap()
    };
    assert!(types.len() >= 20);
    assert!(types.iter().filter(|kind| kind["count"] != 0).count() >= 12);
    for needed in [
        "node_info",
        "remote_page_request",
        "remote_page_response",
        "remote_page_response_short",
        "page_invalidate_request",
        "futex_request",
        "task_migrate",
        "task_pairing",
        "task_migrate_back",
        "task_exit_remote",
        "vma_info_request",
        "vma_op_request",
        "remote_page_release",
    ] {
        assert!(count(needed) > 0, "{needed}");
    }
    let sum = |key: &str| types.iter().map(|kind| kind[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(report["messages"], sum("count"));
    assert_eq!(report["bytes"], sum("bytes"));
    for kind in types.iter().filter(|kind| kind["count"] != 0) {
        assert!(kind["p50_ns"].as_u64().unwrap() <= kind["p99_ns"].as_u64().unwrap(), "{kind}");
    }
    for fraction in ["messages_under_100B", "bytes_over_1KiB"] {
        assert!((0.0..=1.0).contains(&report["sizes"][fraction].as_f64().unwrap()));
    }
    let lengths = report["lengths"].as_array().unwrap();
    assert_eq!(
        report["messages"],
        lengths.iter().map(|step| step["messages"].as_u64().unwrap()).sum::<u64>()
    );
    for share in ["messages_up_to", "bytes_up_to"] {
        assert!(lengths.is_sorted_by_key(|step| step[share].as_f64()), "{share}");
        assert_eq!(lengths.last().unwrap()[share], 1.0, "{share}");
    }
}

#[test]
fn results_equal_one_process_for_any_node_count_and_table() {
    let place = Place::new("csv");
    let file = place.0.join("points.csv");
    fs::write(&file, "x,y\n0.1,0.2\n-5,7\n1e3,2\n0.3,0.1\n999,1.5\n").unwrap();
    for nodes in ["1", "3"] {
        let output = place.demo(&["--nodes", nodes, "--json", "--data"]).arg(&file).output().unwrap();
        let report = json(&output);
        assert_eq!((&report["result_equal"], &report["reconciled"]), (&true.into(), &true.into()));
    }
}

#[test]
fn the_table_is_complete_without_json() {
    let place = Place::new("table");
    let output = place.demo(&["--nodes", "2"]).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "remote_page_response",
        "signal",
        "Fig. 2",
        "Payloads up to",
        "futex waits",
        "posts that waited",
        "bit for bit",
    ] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
}

#[test]
fn bad_files_are_refused_with_the_line() {
    let place = Place::new("bad");
    let file = place.0.join("bad.csv");
    fs::write(&file, "1,2\n3,four\n").unwrap();
    let output = place.demo(&["--json", "--data"]).arg(&file).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let error = text(&output.stderr);
    assert!(error.contains("bad.csv, line 2: column 2 is not a number"), "{error}");
    let output = place.demo(&["--data", "/nowhere.csv"]).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/nowhere.csv"));
}

#[test]
fn a_killed_node_ends_the_run_and_is_named() {
    let place = Place::new("kill");
    let (mut demo, mut progress) = computing(&place);
    let nodes = children_of(demo.id());
    assert_eq!(nodes.len(), 4);
    kill(nodes[2], Signal::SIGKILL).unwrap();
    let status = demo.wait().unwrap();
    let mut rest = String::new();
    progress.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(1), "{rest}");
    assert!(rest.contains("node 3 ended while computing: signal: 9"), "{rest}");
    assert!(all_gone(&nodes) && place.is_empty());
}

#[test]
fn an_interrupt_ends_all_processes_and_removes_all_files() {
    let place = Place::new("int");
    // To the supervisor only, and to the whole process group, nodes included, as a terminal does.
    for group in [false, true] {
        let (mut demo, _progress) = computing(&place);
        let nodes = children_of(demo.id());
        let pid: i32 = demo.id().try_into().unwrap();
        kill(Pid::from_raw(if group { -pid } else { pid }), Signal::SIGINT).unwrap();
        let status = demo.wait().unwrap();
        assert_eq!(status.code(), Some(130), "to the group: {group}");
        assert!(all_gone(&nodes) && place.is_empty());
    }
}

#[test]
fn a_stopped_node_does_not_hang_the_run() {
    let place = Place::new("stop");
    let mut demo = place.demo(&["--points", "20000", "--deadline", "25"]).spawn().unwrap();
    let mut progress = BufReader::new(demo.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("iteration 1") {
        line.clear();
        assert_ne!(progress.read_line(&mut line).unwrap(), 0);
    }
    let nodes = children_of(demo.id());
    kill(nodes[1], Signal::SIGSTOP).unwrap();
    let status = demo.wait().unwrap();
    let mut rest = String::new();
    progress.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(rest.contains("computing"), "{rest}");
    assert!(all_gone(&nodes) && place.is_empty());
}

#[test]
fn nodes_end_when_their_supervisor_is_killed() {
    let place = Place::new("orphan");
    let (mut demo, mut progress) = computing(&place);
    demo.kill().unwrap();
    demo.wait().unwrap();
    // The standard error of the nodes is the other end of this pipe, which closes with the last node.
    progress.read_to_string(&mut String::new()).unwrap();
}

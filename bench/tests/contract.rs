//! The program's contract with its callers: output on stdout, selection of rows, refused arguments.

mod program;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use program::run;
use serde_json::Value;

/// Runs the program. Returns the JSON on stdout, with the A/A checked.
fn json(args: &[&str]) -> Value {
    let object = program::json(args);
    controlled(&object);
    object
}

/// Checks that every result has a column `aa`, or a note with the reason why it has none.
fn controlled(object: &Value) {
    let Some(rows) = object["rows"].as_array() else { return };
    let says = |note: &Value| note.as_str().is_some_and(|note| note.starts_with("rows have no A/A: "));
    let excused = object["params"]["notes"].as_array().is_some_and(|notes| notes.iter().any(says));
    for row in rows {
        let aa = row.get("aa");
        assert!(aa.is_none() == excused, "{}: a note or a column: {row}", object["experiment"]);
        assert!(aa.is_none_or(|aa| aa.is_null() || aa.as_f64().is_some_and(|aa| aa >= 0.0)), "{row}");
    }
}

fn names(object: &Value) -> Vec<&str> {
    object["rows"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()).collect()
}

#[test]
fn json_is_one_object_with_the_keys_of_the_contract() {
    let object = json(&["floor", "--json", "--quick", "--name", "syscall", "--name", "memcpy-4k"]);
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["claims", "experiment", "figure", "host", "paper", "params", "rows"]);
    assert_eq!(object["experiment"], "floor");
    assert_eq!(object["params"]["quick"], true);
    assert_eq!(object["params"]["name"], serde_json::json!(["syscall", "memcpy-4k"]));
    assert!(object["params"]["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    for fact in
        ["kernel", "cpu", "cores", "distribution", "clocksource", "preemption", "rustc", "memlock_kib"]
    {
        assert!(object["host"].as_object().unwrap().contains_key(fact), "{fact} is missing");
    }
    assert!(object["host"]["oversubscribed"].is_boolean());
    assert!(object["claims"].is_array());
    assert_eq!(names(&object), ["syscall", "memcpy-4k"]);
    for row in object["rows"].as_array().unwrap() {
        for column in ["min_ns", "p50_ns", "p99_ns", "p999_ns"] {
            assert!(row[column].is_u64(), "{column} of {row}");
        }
        assert!(row["mean_ns"].as_f64().unwrap() > 0.0 && row["batch_ns"].as_f64().unwrap() > 0.0);
    }
    assert!(object["rows"][0]["gb_per_s"].is_null());
    assert!(object["rows"][1]["gb_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn latency_measures_calls_between_two_processes_with_their_floor() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let object =
        json(&["latency", "--json", "--quick", "--provider", "tcp", "--wait", "block", "--size", "0,4096"]);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["size"]).collect::<Vec<_>>(), [0, 4096]);
    for row in rows {
        assert_eq!((&row["provider"], &row["wait"]), (&"tcp".into(), &"block".into()));
        let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} of {row}"));
        assert!(number("p50_ns") <= number("p99_ns") && number("p99_ns") <= number("p999_ns"), "{row}");
        assert!((number("ratio") - number("p50_ns") / number("floor_ns")).abs() < 0.01, "{row}");
    }
}

#[test]
fn an_experiment_for_two_cpus_says_so_on_one() {
    let bound = std::thread::spawn(|| {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).unwrap()).unwrap();
        sched_setaffinity(this, &one).unwrap();
        json(&["latency", "--json", "--quick", "--provider", "tcp", "--wait", "block", "--size", "0"])
    });
    let object = bound.join().unwrap();
    assert_eq!((&object["host"]["cores_allowed"], &object["rows"]), (&1.into(), &serde_json::json!([])));
    assert!(object["params"]["notes"][0].as_str().is_some_and(|note| note.contains("two CPUs")), "{object}");
}

#[test]
fn rate_counts_calls_and_one_way_messages_that_arrived() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let args = [
        "rate",
        "--json",
        "--quick",
        "--wait",
        "adaptive",
        "--size",
        "32",
        "--threads",
        "1,2",
        "--window",
        "8",
    ];
    let object = json(&args);
    let rows = object["rows"].as_array().unwrap();
    let windows: Vec<_> = rows.iter().map(|row| (&row["provider"], &row["window"])).collect();
    let [shm, tcp]: [Value; 2] = ["shm".into(), "tcp".into()];
    let (eight, none) = (Value::from(8), Value::Null);
    // Calls by one thread and by two; by one under `Peer::together`, started together, and to workers; then messages by one and by two.
    let of = |p| [(p, &eight), (p, &eight), (p, &eight), (p, &eight), (p, &eight), (p, &none), (p, &none)];
    let expected = [&shm, &tcp].map(of).concat();
    assert_eq!(windows, expected);
    for row in rows {
        assert!(row["rpc_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert!(row["cpu_ns"].as_f64().is_some_and(|cpu| cpu > 0.0), "{row}");
    }
}

#[test]
fn bandwidth_has_a_row_for_every_mode_with_its_floor() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let object = json(&["bandwidth", "--json", "--quick", "--provider", "shm", "--size", "1048576"]);
    let rows = object["rows"].as_array().unwrap();
    // Every mode, and the copied one again with the circular placement.
    assert_eq!(rows.len(), 2 * 5);
    for row in rows {
        let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} of {row}"));
        assert!(number("gbytes_per_s") > 0.0 && number("floor_gbytes_per_s") > 0.0, "{row}");
    }
    let ids: Vec<_> = object["claims"].as_array().unwrap().iter().map(|claim| claim["id"].clone()).collect();
    assert_eq!(ids, ["B1", "B2"]);
}

#[test]
fn synchronous_sends_are_measured_in_three_ways() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let object = json(&["comm-fig3", "--json", "--quick", "--size", "64,4096"]);
    assert_eq!((&object["paper"], &object["figure"]), (&"comm-layer".into(), &"Fig. 3".into()));
    for row in object["rows"].as_array().unwrap() {
        let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} of {row}"));
        let share = (number("alloc_ns") + number("release_ns")) / number("send_ns");
        assert!((share - number("buffer_share")).abs() < 1e-3 && share > 0.0, "{row}");
    }
    let object = json(&["comm-fig4", "--json", "--quick", "--size", "64", "--threads", "8"]);
    let normalised = |row: &Value| (row["threads"].clone(), row["normalised"].as_f64());
    let rows: Vec<_> = object["rows"].as_array().unwrap().iter().map(normalised).collect();
    assert!(rows.len() == 4 && rows[0] == (1.into(), Some(1.0)) && rows[1].0 == 8, "{rows:?}");
    let args =
        ["completion", "--json", "--quick", "--provider", "tcp", "--wait", "block", "--threads", "1,2"];
    let object = json(&args);
    let designs: Vec<_> = object["rows"].as_array().unwrap().iter().map(|row| &row["design"]).collect();
    assert_eq!(designs, ["sender-polled", "dedicated", "sender-polled", "dedicated"]);
    let ids: Vec<_> = object["claims"].as_array().unwrap().iter().map(|claim| claim["id"].clone()).collect();
    assert_eq!(ids, ["K29", "K31"]);
}

#[test]
fn peers_take_turns_and_ours_is_one_of_them() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let object = json(&["peers", "--json", "--quick", "--peer", "raw,pronto", "--setting", "block"]);
    let rows = object["rows"].as_array().unwrap();
    let sizes = [32, 224, 4096, 65_536];
    let expected: Vec<_> =
        sizes.iter().flat_map(|size| ["raw", "pronto"].map(|peer| (peer, *size))).collect();
    let measured: Vec<_> =
        rows.iter().map(|row| (row["peer"].as_str().unwrap(), row["size"].as_u64().unwrap())).collect();
    assert_eq!(measured, expected);
    for row in rows {
        assert_eq!((&row["provider"], &row["setting"]), (&"tcp".into(), &"block".into()));
        let columns: &[&str] =
            if row["size"] == 32 { &["p50_ns", "rpc_per_s", "aa", "rate_aa"] } else { &["p50_ns", "aa"] };
        for column in columns {
            assert!(row[column].as_f64().is_some_and(|value| value > 0.0), "{column} of {row}");
        }
    }
    let ids: Vec<_> = object["claims"].as_array().unwrap().iter().map(|claim| &claim["id"]).collect();
    assert_eq!(ids, ["V4"], "only measured rows are judged");
}

#[test]
fn bulk_sends_into_posted_buffers_and_reads_in_place() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let args = ["--peer", "raw,pronto", "--provider", "shm", "--size", "65536", "--window", "pipelined"];
    let object = json(&[&["bulk", "--json", "--quick"], &args[..]].concat());
    let rows = object["rows"].as_array().unwrap();
    let of = |row: &Value| ["peer", "setting", "read"].map(|column| row[column].as_str().unwrap().to_owned());
    let ours = |setting, read| ["pronto", setting, read];
    let expected = [
        [["raw", "best", "posted"], ours("copied", "posted"), ours("reference", "posted")].to_vec(),
        [ours("heap", "posted"), ours("no-engine", "posted"), ["raw", "best", "in-place"]].to_vec(),
        [ours("copied", "in-place"), ours("reference", "in-place")].to_vec(),
    ];
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected.concat());
    for row in rows {
        let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} of {row}"));
        assert!(number("gbytes_per_s") > 0.0 && number("sum_gbytes_per_s") > 0.0, "{row}");
        assert!(
            (number("ratio") - number("gbytes_per_s") / number("floor_gbytes_per_s")).abs() < 0.02,
            "{row}"
        );
        assert_eq!((&row["under_way"], &row["under_way_mib"]), (&16.into(), &1.0.into()), "{row}");
    }
    assert_eq!(object["claims"], serde_json::json!([]), "no claim is about this length");
}

#[test]
fn mix_sends_every_type_between_four_processes_and_loses_nothing() {
    let object = json(&["mix", "--json", "--seconds", "1", "--provider", "shm"]);
    assert_eq!((&object["paper"], &object["figure"]), (&"comm-layer".into(), &"Fig. 2".into()));
    for count in ["lost", "duplicated", "out_of_order", "corrupt"] {
        assert_eq!(object["params"][count], 0, "{count}");
    }
    let rows = object["rows"].as_array().unwrap();
    let (all, types) = rows.split_last().unwrap();
    assert_eq!((types.len(), &all["type"]), (21, &"all".into()), "the types of DEX, signals, and their sum");
    for row in rows {
        let number = |column: &str| row[column].as_u64().unwrap_or_else(|| panic!("{column} of {row}"));
        assert!(number("count") > 0 && number("bytes") > 0 && number("messages_per_s") > 0, "{row}");
        assert!(number("p50_ns") <= number("p99_ns"), "{row}");
    }
    for column in ["count", "bytes"] {
        let sum: u64 = types.iter().filter_map(|row| row[column].as_u64()).sum();
        assert_eq!(all[column], sum, "{column}");
    }
    for claim in object["claims"].as_array().unwrap() {
        assert_eq!(claim["holds"], true, "{claim}");
    }
}

#[test]
fn a_simulated_figure_has_rows_claims_and_a_picture() {
    let folder = std::env::temp_dir().join(format!("pronto-plots-{}", std::process::id()));
    let plots = folder.to_str().expect("the name of a temporary folder is text");
    let args = ["expedite-sim", "--json", "--quick", "--figure", "alone,1a,1b,1b-anywhere", "--plots", plots];
    let object = json(&args);
    assert_eq!(object["rows"], json(&args)["rows"], "equal seeds give equal numbers");
    assert_eq!((&object["paper"], &object["params"]["seeds"]), (&"expedite".into(), &3.into()));
    let rows = object["rows"].as_array().unwrap();
    let late: Vec<_> = rows.iter().map(|row| row["late"].as_f64().unwrap()).collect();
    assert!(late[0] == 0.0 && late[1] == 0.0 && late[2] > 0.0, "{late:?}");
    let claims = object["claims"].as_array().unwrap();
    let verdicts: Vec<_> = claims.iter().map(|claim| (&claim["id"], &claim["verdict"])).collect();
    assert_eq!(verdicts, [(&"X23".into(), &"holds".into()), (&"X24".into(), &"in part".into())]);
    let picture = std::fs::read_to_string(folder.join("expedite-fig1.svg")).expect("the figure was written");
    assert!(picture.starts_with("<svg") && picture.contains("Fig. 1"));
    std::fs::remove_dir_all(&folder).expect("the folder is this test's own");
}

#[test]
fn results_are_compared_and_made_into_a_page() {
    let folder = std::env::temp_dir().join(format!("pronto-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let file =
        |name: &str| folder.join(name).to_str().expect("the name of a temporary folder is text").to_owned();
    let floor = || json(&["floor", "--json", "--quick", "--name", "syscall,memcpy-4k"]);
    let runs = ["1.json", "2.json", "3.json"].map(|name| {
        std::fs::write(file(name), floor().to_string()).expect("the folder is this test's own");
        file(name)
    });
    // The first run, with one value changed: no other value differs by more than the runs do.
    let first = std::fs::read_to_string(&runs[0]).expect("it was written");
    let mut object: Value = serde_json::from_str(&first).expect("it is JSON");
    assert!(object["rows"][0]["aa"].as_f64().is_some_and(|aa| aa > 0.0), "{object}");
    std::fs::write(file("old.json"), object.to_string()).expect("the folder is this test's own");
    let p50 = object["rows"][0]["p50_ns"].as_u64().expect("a median");
    object["rows"][0]["p50_ns"] = (1_000 * p50).into();
    std::fs::write(file("new.json"), object.to_string()).expect("the folder is this test's own");
    let stdout = |args: &[&str]| String::from_utf8(run(args).stdout).expect("it prints text");
    let same = stdout(&["compare", &file("old.json"), &file("old.json")]);
    assert!(same.starts_with("floor: 0 of "), "{same}");
    let (before, after) = (runs.join(","), [(); 3].map(|()| file("new.json")).join(","));
    let text = stdout(&["compare", &before, &after]);
    assert!(text.contains("syscall") && text.contains("WORSE") && !text.contains("memcpy-4k"), "{text}");
    stdout(&["report", &file("old.json"), "--out", &file("page.html")]);
    let page = std::fs::read_to_string(file("page.html")).expect("the page was written");
    assert!(page.contains("class=\"track\"") && page.contains("syscall") && page.contains("</html>"));
    assert!(!run(&["report", &file("page.html")]).status.success(), "a page must be refused as a result");
    std::fs::remove_dir_all(&folder).expect("the folder is this test's own");
}

/// Experiments that other tests of this file run, with the same check.
const RUN_ELSEWHERE: [&str; 13] = [
    "floor",
    "latency",
    "rate",
    "bandwidth",
    "bulk",
    "comm-fig3",
    "comm-fig4",
    "completion",
    "peers",
    "mix",
    "pioman-fig3",
    "overlap-tables",
    "expedite-sim",
];

/// Returns whether another test checks the rows of an experiment, because it takes long or starts a machine of the lab.
fn tested_elsewhere(name: &str) -> bool {
    ["soak", "head-of-line", "cosched-scale", "comm-fig1"].contains(&name)
        || name.starts_with("expedite-") && name != "expedite-sim"
}

/// Few rows of each experiment that no other test runs.
const FEW: [&[&str]; 11] = [
    &["anatomy", "--provider", "shm", "--size", "32"],
    &["cosched-cost", "--measure", "queues"],
    &["load", "--provider", "shm", "--scenario", "one"],
    &["threshold", "--provider", "shm", "--size", "41"],
    &["adaptive", "--wait", "spin", "--gap_us", "100", "--competing", "0"],
    &["pioman-table2", "--what", "load,poll"],
    &["straggler", "--policy", "ours"],
    &["strangers", "--tls", "without"],
    &["tasks", "--tasks", "64"],
    &["tls", "--peer", "pronto", "--size", "32"],
    &["wakeup", "--receiver", "normal", "--sender", "idle", "--hog", "none"],
];

#[test]
fn a_test_checks_the_rows_of_every_experiment() {
    let list = json(&["list", "--json"]);
    for entry in list.as_array().unwrap() {
        let name = entry["experiment"].as_str().unwrap();
        let runs = FEW.iter().any(|args| args[0] == name);
        let elsewhere = RUN_ELSEWHERE.contains(&name) || tested_elsewhere(name);
        assert!(runs || elsewhere || entry["without_aa"].is_string(), "{name}: no test checks its rows");
    }
}

#[test]
fn rows_have_an_a_to_a() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    for args in FEW {
        let object = json(&[args, &["--json", "--quick"]].concat());
        let rows = object["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{object}");
        // Two decimals may be zero if one round was delayed for hundreds of times the other.
        let is_number = |row: &Value| row["aa"].as_f64().is_some_and(|aa| aa >= 0.0);
        assert!(rows.iter().all(is_number), "{object}");
    }
}

#[test]
fn without_json_there_is_a_table() {
    let output = run(&["floor", "--quick", "--name", "futex-wake-nobody"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for expected in ["futex-wake-nobody", "p50_ns", "gb_per_s", "Linux"] {
        assert!(text.contains(expected), "{expected} is missing in:\n{text}");
    }
    assert!(!text.contains("cache-line"), "an unselected row:\n{text}");
}

#[test]
fn list_names_every_experiment() {
    let output = run(&["list"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let array = json(&["list", "--json"]);
    let entries = array.as_array().unwrap();
    assert!(!entries.is_empty());
    for entry in entries {
        assert!(text.contains(entry["experiment"].as_str().unwrap()), "{entry} is missing in:\n{text}");
    }
}

#[test]
fn all_runs_experiments_keeps_their_results_and_makes_the_page() {
    let folder = std::env::temp_dir().join(format!("pronto-all-{}", std::process::id()));
    let out = folder.to_str().expect("the name of a temporary folder is text");
    let all = |more: &[&str]| {
        let output = run(&[&["all", "--quick", "--out", out][..], more].concat());
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("it is text"));
        assert!(output.status.success(), "{stderr}");
        (stdout, stderr)
    };
    let (summary, progress) = all(&["--only", "straggler,comm-fig1"]);
    assert!(progress.contains("1 experiments") && progress.contains("straggler: "), "{progress}");
    assert!(summary.contains("does not hold") && summary.contains("index.html"), "{summary}");
    let page = || std::fs::read_to_string(folder.join("index.html")).expect("the page was written");
    assert!(page().contains("<section id=\"straggler\">") && page().contains("needs the lab"));
    let read = |name: &str| std::fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    let first = read("straggler.json").expect("the result was written");
    let (_, progress) = all(&["--only", "straggler,floor", "--resume"]);
    assert!(progress.contains("1 results kept") && progress.contains("floor: "), "{progress}");
    assert_eq!(read("straggler.json"), Some(first), "the result was kept");
    assert!(page().contains("<section id=\"straggler\">") && page().contains("<section id=\"floor\">"));
    std::fs::remove_dir_all(&folder).expect("the folder is this test's own");
}

#[test]
fn wrong_arguments_are_refused_on_stderr_alone() {
    for args in [
        &["floor", "--name", "warp-drive"][..],
        &["floor", "--colour", "red"],
        &["floor", "--seconds", "1"],
        &["mix", "--seconds", "0"],
        &["no-such-experiment", "--json"],
        &[],
    ] {
        let output = run(args);
        assert!(!output.status.success(), "{args:?} was accepted");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_send_into_a_posted_buffer_is_measured_during_a_computation() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    let args = ["--system", "pronto", "--engine", "idle", "--provider", "shm", "--size", "65536"];
    let object = json(&[&["pioman-fig3", "--json", "--quick"], &args[..]].concat());
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    for column in ["transfer_alone_us", "send_us", "receiver_wait_us", "compute_stretch"] {
        assert!(rows[0][column].as_f64().is_some_and(|number| number > 0.0), "{column} of {}", rows[0]);
    }
}

#[test]
fn a_ping_pong_is_measured_during_a_computation_and_judges_untestable_claims() {
    if pronto_skip::for_want_of_two_cpus() {
        return;
    }
    // One message each: this build copies slowly.
    let args = ["--provider", "shm", "--wait", "block", "--nice", "-20,0", "--dping", "1x1m"];
    let object = json(&[&["overlap-tables", "--json", "--quick"], &args[..]].concat());
    assert_eq!(object["figure"], "Tables 1 to 4");
    let rows = object["rows"].as_array().unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (row["nice"].clone(), row["buffers"].clone())).collect();
    let expected = [(0, "prefaulted"), (0, "fresh")];
    assert_eq!(seen, expected.map(|(nice, buffers)| (Value::from(nice), Value::from(buffers))));
    for row in rows {
        let number = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} of {row}"));
        assert!(number("runs") >= 5.0 && number("dping_alone_s") > 0.0 && number("burn_s") > 0.0, "{row}");
        assert!(row["next_door"].is_null(), "one message is too short to judge: {row}");
        assert!(row["paper_burn_s"].is_f64(), "{row}");
    }
    assert!(object["params"]["burn_scale"].is_f64() && object["params"]["message_scale"].is_u64());
    let claims = object["claims"].as_array().unwrap();
    let verdict = |id: &str| &claims.iter().find(|claim| claim["id"] == id).expect("it is judged")["verdict"];
    assert_eq!(verdict("Q4"), "not transferable");
    let help = String::from_utf8(run(&["overlap-tables", "--help"]).stdout).expect("help is text");
    assert!(help.contains("Examples:") && help.contains("--nice -20,19"), "{help}");
}

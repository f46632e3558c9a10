//! The demo between two nodes of the lab: each node process in a network namespace of its own, and nothing but RDMA.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::process::Command;

/// Where the lab's nodes are, as the demo wants it said.
fn places() -> Vec<String> {
    let nodes = std::fs::read_to_string("/run/lab/nodes").unwrap();
    let place = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        format!("--place={}={}", words[0], words[2])
    };
    nodes.lines().map(place).collect()
}

/// Runs the demo; its report, and what it said of its end.
fn demo(transport: &str, places: &[String]) -> (serde_json::Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pronto"))
        .args([
            "demo",
            "--nodes=2",
            "--points=200",
            "--dims=4",
            "--deadline=200",
            "--json",
            "--transport",
            transport,
        ])
        .args(places)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn two_nodes_compute_over_verbs() {
    let (report, said) = demo("verbs", &places());
    println!("{report}");
    assert_eq!(report["transport"], "verbs", "{said}");
}

/// At an address without an RDMA port there is no link, and the reason is told.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn without_a_port_there_is_a_reason() {
    let ip = |words: &str| {
        assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}")
    };
    ip("netns add plain0");
    ip("netns add plain1");
    ip("link add eth0 netns plain0 type veth peer name eth0 netns plain1");
    for (namespace, address) in [("plain0", "10.78.0.1"), ("plain1", "10.78.0.2")] {
        ip(&format!("-n {namespace} addr add {address}/24 dev eth0"));
        ip(&format!("-n {namespace} link set lo up"));
        ip(&format!("-n {namespace} link set eth0 up"));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_pronto"))
        .args(["demo", "--nodes=2", "--points=200", "--dims=4", "--deadline=60", "--transport=verbs"])
        .args(["--place=plain0=10.78.0.1", "--place=plain1=10.78.0.2"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "a link over RDMA without a device: {said}");
    assert!(said.contains("no active RDMA port has the address 10.78.0."), "{said}");
    // The same two by TCP.
    let places = ["--place=plain0=10.78.0.1".to_owned(), "--place=plain1=10.78.0.2".to_owned()];
    let (report, said) = demo("tcp", &places);
    assert_eq!(report["transport"], "tcp", "{said}");
}

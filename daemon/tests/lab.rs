//! The demo on two nodes of the lab: each node process has its own network namespace, and RDMA is the only transport.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Returns the lab's nodes as `--place` options of the demo.
fn places() -> Vec<String> {
    let nodes = fs::read_to_string("/run/lab/nodes").unwrap();
    let place = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        format!("--place={}={}", words[0], words[2])
    };
    nodes.lines().map(place).collect()
}

/// Runs the demo. Returns its report and its standard error.
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
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn two_nodes_compute_over_verbs() {
    let (report, stderr) = demo("verbs", &places());
    println!("{report}");
    assert_eq!(report["transport"], "verbs", "{stderr}");
}

/// At an address without an RDMA port there is no link, and the error says why.
///
/// Shows: operations.rdma-port, operations.rdma-require, operations.no-rdma
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn without_a_port_the_error_says_why() {
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
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "a link over RDMA without a device: {stderr}");
    assert!(stderr.contains("no active RDMA port has the address 10.78.0."), "{stderr}");
    // TCP links the two addresses.
    let places = ["--place=plain0=10.78.0.1".to_owned(), "--place=plain1=10.78.0.2".to_owned()];
    let (report, stderr) = demo("tcp", &places);
    assert_eq!(report["transport"], "tcp", "{stderr}");
}

/// A program with RDMA support starts without the library and reports that it is missing.
///
/// Shows: operations.libibverbs
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn without_the_library_the_error_says_why() {
    // Hides the library in the mount namespace of this program only: an empty file cannot be loaded.
    let without =
        "for file in /usr/lib/*/libibverbs.so.1; do mount --bind /dev/null $file; done; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", without, "sh", env!("CARGO_BIN_EXE_pronto"), "demo", "--nodes=2"])
        .args(["--points=200", "--dims=4", "--deadline=20", "--transport=verbs"])
        .args(places())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("is libibverbs installed"), "{stderr}");
}

/// A node in one of the lab's namespaces, killed on drop.
struct Daemon {
    process: Child,
    config: PathBuf,
}

impl Daemon {
    fn start(folder: &Path, node: u16, rdma: &str, more: &str) -> Self {
        let config = folder.join(format!("{node}.toml"));
        let socket = folder.join(format!("{node}.sock"));
        let plaintext = if more.contains("[trust]") { "" } else { "plaintext = \"i understand\"\n" };
        let text = format!(
            "node = {node}\n{plaintext}rdma = \"{rdma}\"\nlisten = [\"shm:{}\"{more}\n",
            socket.display(),
        );
        fs::write(&config, text).unwrap();
        let process = Command::new("ip")
            .args(["netns", "exec", &format!("n{}", node - 1), env!("CARGO_BIN_EXE_prontod"), "--config"])
            .arg(&config)
            .spawn()
            .unwrap();
        Self { process, config }
    }

    /// Returns the node's status of peer 1, if the node replies.
    fn peer(&self) -> Option<serde_json::Value> {
        let status = Command::new(env!("CARGO_BIN_EXE_pronto"))
            .args(["status", "--json", "--config"])
            .arg(&self.config)
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
        report["peers"].as_array()?.iter().find(|peer| peer["node"] == 1).cloned()
    }

    /// Requests the status until that of peer 1 satisfies `wanted`.
    fn until(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let mut last = None;
        for _ in 0..200 {
            last = self.peer();
            if let Some(peer) = last.take_if(|peer| wanted(peer)) {
                return peer;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("never {what}: {last:?}");
    }

    fn kill(&mut self) {
        // `ip netns exec` executes the program, so the child is the node.
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// The link uses RDMA and reports why. A killed peer is detected, and its next incarnation is connected over RDMA again.
///
/// Shows: protocol.rdma, protocol.rdma-test, operations.rdma, operations.rdma-link, operations.rdma-reason, operations.ends-verbs
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_killed_peer_is_detected_and_reconnected_over_verbs() {
    let folder = std::env::temp_dir().join(format!("pv-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let address = places()[0].rsplit_once('=').unwrap().1.to_owned();
    let listens = format!(", \"tcp:{address}:7001\"]");
    let dials = format!("]\n[[peer]]\nnode = 1\naddress = [\"tcp:{address}:7001\"]");
    let mut one = Daemon::start(&folder, 1, "require", &listens);
    let two = Daemon::start(&folder, 2, "require", &dials);
    let linked = |peer: &serde_json::Value| peer["linked"] == true;
    let first = two.until("linked", linked);
    assert_eq!(first["provider"], "verbs");
    assert_eq!(first["choice"], "verbs: rxe1 reaches it");
    one.kill();
    two.until("detected", |peer| peer["linked"] == false);
    drop(one);
    let _again = Daemon::start(&folder, 1, "require", &listens);
    let second = two.until("linked again", |peer| linked(peer) && peer["epoch"] != first["epoch"]);
    assert_eq!(second["provider"], "verbs");
    fs::remove_dir_all(folder).unwrap();
}

/// The node releases a deleted device, so that the deletion finishes, and the session continues over TCP.
///
/// Shows: protocol.rdma-or-tcp, operations.rdma-reason, operations.rdma-removed, operations.json-provider
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_deleted_device_is_released_and_tcp_replaces_it() {
    let folder = std::env::temp_dir().join(format!("pd-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let address = places()[0].rsplit_once('=').unwrap().1.to_owned();
    let listens = format!(", \"tcp:{address}:7001\"]");
    let dials = format!("]\n[[peer]]\nnode = 1\naddress = [\"tcp:{address}:7001\"]");
    let _one = Daemon::start(&folder, 1, "auto", &listens);
    let two = Daemon::start(&folder, 2, "auto", &dials);
    let over = |provider: &'static str| {
        move |peer: &serde_json::Value| peer["linked"] == true && peer["provider"] == provider
    };
    let first = two.until("linked", over("verbs"));
    let mut removal = Command::new("rdma").args(["link", "delete", "rxe1"]).spawn().unwrap();
    let second = two.until("linked over tcp", over("tcp"));
    assert_eq!(second["epoch"], first["epoch"]);
    let why = second["choice"].as_str().unwrap();
    assert!(why.contains("no active RDMA port has the address"), "{why}");
    let removed = (0..200).any(|_| {
        std::thread::park_timeout(Duration::from_millis(50));
        removal.try_wait().unwrap().is_some_and(|status| status.success())
    });
    assert!(removed, "the node did not release the deleted device");
    drop(two);
    let again = ["netns", "exec", "n1", "rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "eth0"];
    assert!(Command::new("ip").args(again).status().unwrap().success());
    fs::remove_dir_all(folder).unwrap();
}

/// Nodes that have authenticated each other use soft-RoCE only with a permission of its own: it does not bound what a peer may read.
///
/// Shows: operations.rdma-soft, operations.rdma-plaintext, operations.kernel-tls
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn authenticated_nodes_use_soft_roce_only_if_it_is_permitted() {
    let folder = std::env::temp_dir().join(format!("ps-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let address = places()[0].rsplit_once('=').unwrap().1.to_owned();
    let [(key_1, public_1), (key_2, public_2)] = [1, 2].map(|node| {
        let key = folder.join(format!("{node}.key"));
        let made =
            Command::new(env!("CARGO_BIN_EXE_pronto")).args(["trust", "key"]).arg(&key).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let printed = String::from_utf8(made.stdout).unwrap();
        // The last line is for the section of this node in the configurations of its peers.
        (key, printed.lines().last().unwrap().to_owned())
    });
    for (soft, provider) in [(false, "tcp"), (true, "verbs")] {
        let trust = |key: &Path| {
            format!(
                "[trust]\nmode = \"keys\"\nkey = \"{}\"\nrdma_plaintext = true\nrdma_soft_roce = {soft}\n",
                key.display()
            )
        };
        let listens = format!(", \"tcp:{address}:7001\"]\n[[peer]]\nnode = 2\n{public_2}\n{}", trust(&key_1));
        let dials = format!(
            "]\n[[peer]]\nnode = 1\naddress = [\"tcp:{address}:7001\"]\n{public_1}\n{}",
            trust(&key_2)
        );
        let _one = Daemon::start(&folder, 1, "auto", &listens);
        let two = Daemon::start(&folder, 2, "auto", &dials);
        let linked = two.until("linked", |peer| peer["linked"] == true);
        assert_eq!(linked["provider"], provider, "{linked}");
        let why = linked["choice"].as_str().unwrap();
        assert_eq!(why.contains("rxe1 is soft-RoCE"), !soft, "{why}");
        assert_eq!(why.contains("TLS by the kernel, known by its key"), !soft, "{why}");
    }
    fs::remove_dir_all(folder).unwrap();
}

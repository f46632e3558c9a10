//! A test bed on this host: nodes that are network namespaces with a CPU each, and links with the rate and the delay of an older network.

use core::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::placement::Cpu;

/// Namespaces that are joined by a bridge in the first one. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct TestBed {
    nodes: Vec<TestNode>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct TestNode {
    /// Name of its network namespace.
    pub(crate) namespace: String,
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// Its CPU.
    pub(crate) cpu: Cpu,
}

/// Rate of a link, as tc(8) writes it: that of the coscheduling paper (section 4).
pub(crate) const RATE: &str = "100mbit";

/// Bytes that may leave faster than at this rate: a few packets.
const BURST: &str = "16kb";

/// Longest time of a packet in the queue of a link.
const QUEUE: &str = "100ms";

impl TestBed {
    /// Makes two nodes. Needs root, and the programs ip and tc.
    pub(crate) fn pair(cpus: [Cpu; 2]) -> anyhow::Result<Self> {
        let id = std::process::id();
        let node = |number: u8, cpu| TestNode {
            namespace: format!("pronto-{id}-{number}"),
            address: Ipv4Addr::new(10, 111, 0, number),
            cpu,
        };
        let bed = Self { nodes: vec![node(1, cpus[0]), node(2, cpus[1])] };
        for node in &bed.nodes {
            ip(&["netns", "add", &node.namespace])?;
        }
        let [one, two] = [&bed.nodes[0], &bed.nodes[1]];
        let (first, second) = (&*one.namespace, &*two.namespace);
        ip(&["-n", first, "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", second])?;
        for node in &bed.nodes {
            let namespace = &*node.namespace;
            ip(&["-n", namespace, "addr", "add", &format!("{}/24", node.address), "dev", LINK])?;
            ip(&["-n", namespace, "link", "set", LINK, "up"])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            let shaper = ["-n", namespace, "qdisc", "replace", "dev", LINK, "root", "tbf"];
            run("tc", &[&shaper[..], &["rate", RATE, "burst", BURST, "latency", QUEUE]].concat())?;
        }
        Ok(bed)
    }

    /// Returns the nodes.
    pub(crate) fn nodes(&self) -> &[TestNode] {
        &self.nodes
    }
}

impl TestNode {
    /// Returns the file of its network namespace, for `setns(2)`.
    pub(crate) fn file(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.namespace)
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        for node in &self.nodes {
            // The link ends with its namespace. One that was not made cannot be deleted.
            let _missing = ip(&["netns", "delete", &node.namespace]);
        }
    }
}

/// Name of the network device in each namespace.
const LINK: &str = "node0";

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{program} is needed (Debian: apt install iproute2)"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), error.trim());
    Ok(())
}

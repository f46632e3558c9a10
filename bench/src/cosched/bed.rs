//! A test bed: nodes that are network namespaces with a CPU each, and links with the rate, and if wanted the delay, of an older network.

use core::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::placement::Cpu;

/// Namespaces that are joined by a link, or by a bridge in a namespace of its own if there are more than two. They end when this is dropped,
/// or, if the process is killed before, when the next test bed of this machine is made.
#[derive(Debug)]
pub(crate) struct TestBed {
    nodes: Vec<TestNode>,
    bridge: Option<String>,
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
    /// Makes a node on each CPU, of which there are two or more. Packets take `delay` to the bridge or the other node, as tc(8) writes it.
    /// Needs root, and the programs ip and tc.
    pub(crate) fn on(cpus: &[Cpu], delay: Option<&str>) -> anyhow::Result<Self> {
        remove_left()?;
        let id = std::process::id();
        let node = |(number, cpu): (u8, &Cpu)| TestNode {
            namespace: format!("{PREFIX}{id}-{number}"),
            address: Ipv4Addr::new(10, 111, 0, number),
            cpu: *cpu,
        };
        let nodes: Vec<_> = (1..).zip(cpus).map(node).collect();
        let bridge = (nodes.len() > 2).then(|| format!("{PREFIX}{id}-bridge"));
        let bed = Self { nodes, bridge };
        for namespace in bed.namespaces() {
            ip(&["netns", "add", namespace])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        }
        bed.join()?;
        for node in &bed.nodes {
            let namespace = &*node.namespace;
            ip(&["-n", namespace, "addr", "add", &format!("{}/24", node.address), "dev", LINK])?;
            ip(&["-n", namespace, "link", "set", LINK, "up"])?;
            let device = ["-n", namespace, "qdisc", "replace", "dev", LINK];
            let shaper = ["root", "handle", "1:", "tbf", "rate", RATE, "burst", BURST, "latency", QUEUE];
            run("tc", &[&device[..], &shaper].concat())?;
            if let Some(delay) = delay {
                run("tc", &[&device[..], &["parent", "1:", "netem", "delay", delay]].concat())?;
            }
        }
        Ok(bed)
    }

    /// Makes the device of each node, and what is at its other end.
    fn join(&self) -> anyhow::Result<()> {
        let (first, others) = self.nodes.split_first().context("a test bed has nodes")?;
        let Some(bridge) = &self.bridge else {
            let other = others.first().context("a test bed has two nodes or more")?;
            let peer = ["peer", "name", LINK, "netns", &other.namespace];
            return ip(&[&["-n", &*first.namespace, "link", "add", LINK, "type", "veth"], &peer[..]].concat());
        };
        ip(&["-n", bridge, "link", "add", "bridge0", "type", "bridge"])?;
        ip(&["-n", bridge, "link", "set", "bridge0", "up"])?;
        for (number, node) in self.nodes.iter().enumerate() {
            let port = format!("port{number}");
            let peer = ["peer", "name", LINK, "netns", &node.namespace];
            ip(&[&["-n", &**bridge, "link", "add", &port, "type", "veth"], &peer[..]].concat())?;
            ip(&["-n", bridge, "link", "set", &port, "master", "bridge0", "up"])?;
        }
        Ok(())
    }

    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| &node.namespace).chain(&self.bridge).map(String::as_str)
    }

    /// Returns the nodes.
    pub(crate) fn nodes(&self) -> &[TestNode] {
        &self.nodes
    }
}

impl TestNode {
    /// Returns the file of its network namespace, for `setns(2)`.
    pub(crate) fn file(&self) -> PathBuf {
        PathBuf::from(NAMESPACES).join(&self.namespace)
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        for namespace in self.namespaces() {
            // The link ends with its namespace. One that was not made cannot be deleted.
            let _missing = ip(&["netns", "delete", namespace]);
        }
    }
}

/// Name of the network device in each namespace.
const LINK: &str = "node0";

/// Start of the names of namespaces; the number of their process follows.
const PREFIX: &str = "pronto-";

/// Where ip(8) keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// Removes the namespaces of test beds whose processes have ended.
fn remove_left() -> anyhow::Result<()> {
    // Without the folder, no namespace has been made yet.
    let Ok(names) = std::fs::read_dir(NAMESPACES) else { return Ok(()) };
    for entry in names.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if process_of(name).is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let deleted = ip(&["netns", "delete", name]);
            // Another test bed may have been faster.
            deleted.or_else(|error| if entry.path().exists() { Err(error) } else { Ok(()) })?;
        }
    }
    Ok(())
}

/// Returns the process that has made a namespace of a test bed; `None` if it is not one.
fn process_of(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

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

#[cfg(test)]
mod tests {
    use super::{NAMESPACES, Path, ip, process_of, remove_left};

    #[test]
    fn only_namespaces_of_test_beds_have_a_process() {
        let names = ["pronto-123-1", "pronto-123-bridge", "pronto-other", "pronto-x-1", "other-123-1", "n0"];
        assert_eq!(names.map(process_of), [Some(123), Some(123), None, None, None, None]);
    }

    /// A process that was killed cannot remove its namespaces.
    #[test]
    fn namespaces_of_processes_that_have_ended_are_removed() {
        if !nix::unistd::geteuid().is_root() {
            return pronto_skip::because("network namespaces need root");
        }
        // No process has a number above the maximum (kernel, include/linux/threads.h).
        let (left, used) = ("pronto-4194305-1".to_owned(), format!("pronto-{}-test", std::process::id()));
        for name in [&left, &used] {
            ip(&["netns", "add", name]).unwrap();
        }
        remove_left().unwrap();
        let exist = [&left, &used].map(|name| Path::new(NAMESPACES).join(name).exists());
        ip(&["netns", "delete", &used]).unwrap();
        assert_eq!(exist, [false, true]);
    }
}

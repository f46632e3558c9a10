//! The lab's nodes: network namespaces with a soft-RoCE device each, created by the lab's command.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use nix::sched::{CloneFlags, setns};

/// One node, as the lab describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabNode {
    /// Its network namespace.
    pub(crate) space: String,
    /// Its RDMA device.
    pub(crate) device: String,
    /// The address of its port.
    pub(crate) address: String,
    /// The index of that address in the port's table of GIDs.
    pub(crate) gid: String,
}

/// Two connected nodes; removed when dropped.
#[derive(Debug)]
pub(crate) struct Two(pub(crate) [LabNode; 2]);

/// The lab's command.
const MAKE: &str = "lab-nodes";

impl Two {
    /// Creates the nodes.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let made = Command::new(MAKE).arg("2").stderr(Stdio::inherit()).output();
        let made = made.with_context(|| format!("starting {MAKE}"))?;
        anyhow::ensure!(made.status.success(), "{MAKE} failed");
        let text = String::from_utf8(made.stdout).context("the output of the lab's command is not UTF-8")?;
        let nodes: Option<Vec<_>> = text.lines().map(parse).collect();
        let nodes = nodes.and_then(|nodes| <[_; 2]>::try_from(nodes).ok());
        nodes.map(Self).with_context(|| format!("{MAKE} did not name two nodes: {text}"))
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        // Remains disappear with the machine.
        let _ = Command::new(MAKE).arg("0").status();
    }
}

impl LabNode {
    /// Moves the calling thread into the node's network namespace, and with it the threads and children that it starts later.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        let path = Path::new("/run/netns").join(&self.space);
        let space = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        setns(space, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {}", self.space))
    }
}

/// `NAMESPACE DEVICE ADDRESS GID-INDEX`.
fn parse(line: &str) -> Option<LabNode> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let node =
        LabNode { space: words.next()?, device: words.next()?, address: words.next()?, gid: words.next()? };
    words.next().is_none().then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_four_words() {
        let node = parse("n1 rxe1 10.77.0.2 1").unwrap();
        assert_eq!((node.space.as_str(), node.gid.as_str()), ("n1", "1"));
        assert_eq!(parse("n1 rxe1 10.77.0.2"), None);
        assert_eq!(parse("n1 rxe1 10.77.0.2 1 more"), None);
    }
}

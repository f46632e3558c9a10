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

/// Kind of the nodes' RDMA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// An RDMA card.
    Hardware,
    /// soft-RoCE, which the kernel emulates over UDP.
    Emulated,
}

/// Two connected nodes; removed when dropped.
#[derive(Debug)]
pub(crate) struct Two(pub(crate) [LabNode; 2]);

/// Prefix of the devices that the lab creates.
const EMULATED: &str = "rxe";

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

    /// Returns the kind of device: emulated if one of the two is.
    pub(crate) fn device(&self) -> Device {
        if self.0.iter().any(LabNode::is_emulated) { Device::Emulated } else { Device::Hardware }
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        // Remains disappear with the machine.
        let _ = Command::new(MAKE).arg("0").status();
    }
}

impl LabNode {
    fn is_emulated(&self) -> bool {
        self.device.starts_with(EMULATED)
    }

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
    fn a_card_is_not_emulated() {
        let is_emulated = |line| parse(line).unwrap().is_emulated();
        assert!(is_emulated("n1 rxe1 10.77.0.2 1") && !is_emulated("a mlx5_0 10.0.0.1 3"));
    }

    #[test]
    fn a_node_is_four_words() {
        let node = parse("n1 rxe1 10.77.0.2 1").unwrap();
        assert_eq!((node.space.as_str(), node.gid.as_str()), ("n1", "1"));
        assert_eq!(parse("n1 rxe1 10.77.0.2"), None);
        assert_eq!(parse("n1 rxe1 10.77.0.2 1 more"), None);
    }
}

//! A recorded machine: one text with a line for each file (`PATH: CONTENT`, `PATH/:` for a folder), laid out below a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use pronto_topology::{Cpus, Topology, TopologyError};

/// One socket, four cores with two threads each.
pub(crate) const LAPTOP: &str = include_str!("machines/laptop.txt");
/// Two sockets, the good card on node 1.
pub(crate) const TWO_SOCKETS: &str = include_str!("machines/two_sockets.txt");
/// Offline and isolated processors, a node without memory, a node without processors.
pub(crate) const ODD_NODES: &str = include_str!("machines/odd_nodes.txt");

/// The folder; gone with the value.
pub(crate) struct Machine(PathBuf);

impl Machine {
    /// Lays it out; `test` is the name of the test, so that no two share a folder.
    pub(crate) fn new(test: &str, recorded: &str) -> Self {
        let root =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("topology-{test}-{}", std::process::id()));
        // What an earlier run left, if it was killed.
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder for it");
        let machine = Self(root);
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let (path, content) =
                line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, ""))).expect("a line");
            match path.strip_suffix('/') {
                Some(folder) => fs::create_dir_all(machine.0.join(folder)).expect("a folder"),
                None => machine.write(path, &format!("{content}\n")),
            }
        }
        machine
    }

    /// Writes one file.
    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// Makes a link, as sysfs has them from a device to what it is on a bus.
    pub(crate) fn link(&self, path: &str, to: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::os::unix::fs::symlink(self.0.join(to), path).expect("a link");
    }

    /// Takes a file or folder away.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.0.join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was there");
    }

    pub(crate) fn read(&self) -> Result<Topology, TopologyError> {
        Topology::read(&self.0)
    }

    pub(crate) fn topology(&self) -> Topology {
        self.read().expect("it is described well")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn cpus(list: &str) -> Cpus {
    list.parse().expect("a list")
}

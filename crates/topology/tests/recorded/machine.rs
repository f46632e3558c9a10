//! A recorded machine: a text with one line per file (`PATH: CONTENT`, or `PATH/:` for a folder), written to a
//! temporary folder.

use std::fs;
use std::path::{Path, PathBuf};

use pronto_topology::{Cpus, Topology, TopologyError};

/// One socket, four cores with two threads each.
pub(crate) const LAPTOP: &str = include_str!("machines/laptop.txt");
/// Two sockets, the good card on node 1.
pub(crate) const TWO_SOCKETS: &str = include_str!("machines/two_sockets.txt");
/// Offline and isolated CPUs, a node without memory, a node without CPUs.
pub(crate) const ODD_NODES: &str = include_str!("machines/odd_nodes.txt");

/// Folder of the machine's files; removed on drop.
pub(crate) struct Machine(PathBuf);

impl Machine {
    /// Writes the files. `test` is the name of the test and makes the folder unique.
    pub(crate) fn new(test: &str, recorded: &str) -> Self {
        let root =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("topology-{test}-{}", std::process::id()));
        // Left over from an earlier run that was killed.
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

    /// Creates a link, as sysfs has from a device to its folder on a bus.
    pub(crate) fn link(&self, path: &str, to: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::os::unix::fs::symlink(self.0.join(to), path).expect("a link");
    }

    /// Removes a file or folder.
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

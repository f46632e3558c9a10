//! The sensor: the queues of all sockets of some processes.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use pronto_expedite::process::{Kind, Unreachable, open_files};
use pronto_sched_policy::policy::occupancy::Occupancy;

use crate::diag::{Connection, Diag, DiagError, Key, Socket};
use crate::process;

/// Reads the queues of the sockets of processes.
#[derive(Debug, Default)]
pub struct Sensor {
    /// By the number of the network namespace.
    namespaces: BTreeMap<u64, Namespace>,
    processes: BTreeMap<u32, Sockets>,
}

#[derive(Debug)]
struct Namespace {
    diag: Diag,
    keys: Vec<Key>,
    /// Sockets by inode, as of the last sample.
    sockets: BTreeMap<u64, Socket>,
}

/// The sockets of a process.
#[derive(Debug, Default)]
struct Sockets {
    namespace: u64,
    inodes: BTreeSet<u64>,
}

/// Reason why the sockets of a process cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenseError {
    /// Its open files are not visible.
    #[error(transparent)]
    Files(#[from] Unreachable),
    /// Its network namespace cannot be read.
    #[error(transparent)]
    Diag(#[from] DiagError),
}

impl Sensor {
    /// Finds the sockets of these processes, and forgets other processes. Returns the processes whose sockets cannot be read; processes
    /// that have ended are not among them.
    pub fn scan(&mut self, pids: &BTreeSet<u32>) -> BTreeMap<u32, SenseError> {
        let mut failed = BTreeMap::new();
        self.processes.clear();
        for pid in pids {
            match self.sockets_of(*pid) {
                Ok(sockets) => drop(self.processes.insert(*pid, sockets)),
                Err(_) if process::Stat::of(*pid).is_err() => {}
                Err(error) => drop(failed.insert(*pid, error)),
            }
        }
        let used: BTreeSet<u64> = self.processes.values().map(|sockets| sockets.namespace).collect();
        self.namespaces.retain(|number, _| used.contains(number));
        for (number, namespace) in &mut self.namespaces {
            let of_this = self.processes.values().filter(|sockets| sockets.namespace == *number);
            let wanted: BTreeSet<u64> = of_this.flat_map(|sockets| sockets.inodes.iter().copied()).collect();
            if let Err(error) = namespace.find(&wanted) {
                let process = self.processes.iter().find(|(_, sockets)| sockets.namespace == *number);
                failed.extend(process.map(|(pid, _)| (*pid, error.into())));
            }
        }
        failed
    }

    fn sockets_of(&mut self, pid: u32) -> Result<Sockets, SenseError> {
        let files = open_files(pid)?;
        let inodes = files.iter().filter(|file| file.kind == Kind::Socket).map(|file| file.number).collect();
        // Without the permission to read its namespace, the process is assumed to be in ours.
        let own = || process::network_namespace(std::process::id()).unwrap_or(0);
        let namespace = process::network_namespace(pid).unwrap_or_else(|_| own());
        if let Entry::Vacant(vacant) = self.namespaces.entry(namespace) {
            let diag = if namespace == own() { Diag::open()? } else { Diag::open_in_namespace_of(pid)? };
            vacant.insert(Namespace { diag, keys: Vec::new(), sockets: BTreeMap::new() });
        }
        Ok(Sockets { namespace, inodes })
    }

    /// Reads the queues of the sockets that the last scan has found.
    ///
    /// # Errors
    /// A query failed. The queues of other network namespaces were read.
    pub fn sample(&mut self) -> Result<(), DiagError> {
        let mut result = Ok(());
        for namespace in self.namespaces.values_mut() {
            let sampled = namespace.sample();
            result = result.and(sampled);
        }
        result
    }

    /// Returns the sockets of a process with their queues, as of the last scan or sample.
    pub fn sockets(&self, pid: u32) -> impl Iterator<Item = &Socket> {
        let found = self.processes.get(&pid).and_then(|sockets| {
            let namespace = self.namespaces.get(&sockets.namespace)?;
            Some(sockets.inodes.iter().filter_map(|inode| namespace.sockets.get(inode)))
        });
        found.into_iter().flatten()
    }

    /// Returns the queues of the sockets of a process, as of the last scan or sample.
    #[must_use]
    pub fn queues(&self, pid: u32) -> Vec<Occupancy> {
        self.sockets(pid).map(|socket| socket.occupancy).collect()
    }

    /// Returns the connections of a process to other sockets by TCP or UDP, as of the last scan or sample.
    pub fn connections(&self, pid: u32) -> impl Iterator<Item = Connection> {
        self.sockets(pid)
            .filter_map(|socket| socket.connection)
            .filter(|connection| connection.remote.port() != 0)
    }

    /// Returns the number of sockets that a sample reads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.namespaces.values().map(|namespace| namespace.keys.len()).sum()
    }

    /// Returns whether a sample reads no socket.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Namespace {
    /// Finds sockets by their inodes.
    fn find(&mut self, inodes: &BTreeSet<u64>) -> Result<(), DiagError> {
        self.sockets.clear();
        if !inodes.is_empty() {
            self.diag.all(|socket| {
                if inodes.contains(&socket.inode) {
                    self.sockets.insert(socket.inode, socket);
                }
            })?;
        }
        self.keys = self.sockets.values().map(|socket| socket.key).collect();
        Ok(())
    }

    fn sample(&mut self) -> Result<(), DiagError> {
        // A socket that is closed meanwhile has empty queues.
        for socket in self.sockets.values_mut() {
            socket.occupancy = Occupancy::default();
        }
        self.diag.some(&self.keys, |socket| {
            if let Some(known) = self.sockets.get_mut(&socket.inode) {
                *known = socket;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_queues_of_another_process_follow_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        // It never reads its connection.
        // The command has the socket until it is dropped, at the end of this statement.
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(OwnedFd::from(theirs)).spawn().unwrap();
        let pid = child.id();
        let mut sensor = Sensor::default();
        assert!(sensor.scan(&[pid].into()).is_empty());
        assert_eq!(sensor.len(), 1);
        ours.write_all(&[1; 5_000]).unwrap();
        // Data may take a moment, even over the loopback device.
        while sensor.queues(pid)[0].received.bytes < 5_000 {
            sensor.sample().unwrap();
        }
        let connection = sensor.connections(pid).next().unwrap();
        assert_eq!(connection.remote, ours.local_addr().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        sensor.sample().unwrap();
        assert_eq!(sensor.queues(pid), [Occupancy::default()], "closed");
        assert!(sensor.scan(&[pid].into()).is_empty(), "it has ended");
        assert!(sensor.is_empty() && sensor.queues(pid).is_empty());
        let mut rest = Vec::new();
        let _reset = ours.read_to_end(&mut rest);
    }

    #[test]
    fn datagrams_are_sampled() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = std::process::id();
        let mut sensor = Sensor::default();
        sensor.scan(&[own].into());
        sender.send_to(&[0; 700], receiver.local_addr().unwrap()).unwrap();
        let address = receiver.local_addr().unwrap();
        let is_it =
            |socket: &&Socket| socket.connection.is_some_and(|connection| connection.local == address);
        while sensor.sockets(own).find(is_it).unwrap().occupancy.received.bytes < 700 {
            sensor.sample().unwrap();
        }
    }
}

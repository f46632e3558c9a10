//! The sensor by sock_diag: finds the sockets of processes by their inodes, and asks for the queues of each.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use pronto_expedite::process::{Kind, open_files};
use pronto_sched_policy::policy::occupancy::Occupancy;

use crate::diag::{Diag, DiagError, Key};
use crate::process;
use crate::sensor::SenseError;
use crate::socket::Socket;

#[derive(Debug, Default)]
pub(super) struct DiagSensor {
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

impl DiagSensor {
    pub(super) fn scan(&mut self, pids: &BTreeSet<u32>) -> BTreeMap<u32, SenseError> {
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

    pub(super) fn sample(&mut self) -> Result<(), SenseError> {
        let mut result = Ok(());
        for namespace in self.namespaces.values_mut() {
            let sampled = namespace.sample().map_err(SenseError::from);
            result = result.and(sampled);
        }
        result
    }

    pub(super) fn sockets(&self, pid: u32) -> impl Iterator<Item = &Socket> {
        let found = self.processes.get(&pid).and_then(|sockets| {
            let namespace = self.namespaces.get(&sockets.namespace)?;
            Some(sockets.inodes.iter().filter_map(|inode| namespace.sockets.get(inode)))
        });
        found.into_iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.namespaces.values().map(|namespace| namespace.keys.len()).sum()
    }
}

impl Namespace {
    /// Finds sockets by their inodes.
    fn find(&mut self, inodes: &BTreeSet<u64>) -> Result<(), DiagError> {
        self.sockets.clear();
        self.keys.clear();
        if !inodes.is_empty() {
            self.diag.all(|key, socket| {
                if inodes.contains(&socket.inode) {
                    self.sockets.insert(socket.inode, socket);
                    self.keys.push(key);
                }
            })?;
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<(), DiagError> {
        // A socket that is closed meanwhile has empty queues.
        for socket in self.sockets.values_mut() {
            socket.occupancy = Occupancy::default();
        }
        self.diag.some(&self.keys, |_, socket| {
            if let Some(known) = self.sockets.get_mut(&socket.inode) {
                *known = socket;
            }
        })
    }
}

//! The sensor: the queues of all sockets of some processes.

mod bpf;
mod diag;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::errno::Errno;
use pronto_bpf::{LoadError, OpenError};
use pronto_expedite::process::Unreachable;
use pronto_sched_policy::policy::occupancy::Occupancy;

use crate::diag::DiagError;
use crate::socket::{Connection, Socket};

/// The means by which queues are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// sock_diag: no privilege for processes of this user, and one system call per socket.
    #[default]
    SockDiag,
    /// The BPF program in this file, which `make -C kernel/queues` builds: a few system calls per process and sample, and messages are counted. Needs
    /// CAP_BPF and CAP_PERFMON.
    Bpf(PathBuf),
    /// The BPF scheduler of `kernel/scx`: it reads the queues, predicts and sets the weights itself, so that nothing is left to do here per
    /// period. For the actuator of the same name, fixed P, and policies that need no other node.
    Scheduler,
}

impl Choice {
    /// Where `make -C kernel/queues install` places the BPF program.
    pub const PROGRAM: &str = "/usr/local/lib/pronto/pronto_queues.bpf.o";

    /// The names of the means.
    pub const NAMES: [&str; 3] = ["sock_diag", "bpf", "scx"];

    /// Returns the means of a name; `program` is the file for `bpf`.
    ///
    /// # Errors
    /// There is no such means.
    pub fn named(name: &str, program: PathBuf) -> Result<Self, UnknownSensor> {
        match name {
            "sock_diag" => Ok(Self::SockDiag),
            "bpf" => Ok(Self::Bpf(program)),
            "scx" => Ok(Self::Scheduler),
            _ => Err(UnknownSensor(name.to_owned())),
        }
    }

    /// Returns the name of the means.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SockDiag => "sock_diag",
            Self::Bpf(_) => "bpf",
            Self::Scheduler => "scx",
        }
    }
}

/// Reason why a text is not a sensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sensor {0:?}: it is sock_diag, bpf or scx")]
pub struct UnknownSensor(String);

/// Reason why the queues of processes cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenseError {
    /// The open files of a process are not visible.
    #[error(transparent)]
    Files(#[from] Unreachable),
    /// Its network namespace cannot be read.
    #[error(transparent)]
    Diag(#[from] DiagError),
    /// The BPF program cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel does not load it.
    #[error("{0}; the sensor sock_diag needs no privilege")]
    Load(LoadError),
    /// The BPF program cannot report on a process.
    #[error("the BPF program cannot read the sockets of process {0}: {1}")]
    Process(u32, Errno),
    /// The report of the BPF program has an unknown form.
    #[error("the report of the BPF program on process {0} has an unknown form")]
    Malformed(u32),
}

// Not `#[from]`: the message contains the reason, which would be printed twice.
impl From<LoadError> for SenseError {
    fn from(refusal: LoadError) -> Self {
        Self::Load(refusal)
    }
}

/// Reads the queues of the sockets of processes.
#[derive(Debug)]
pub struct Sensor(Means);

#[derive(Debug)]
enum Means {
    Diag(diag::DiagSensor),
    Bpf(bpf::BpfSensor),
    /// The scheduler reads the queues.
    Elsewhere,
}

impl Sensor {
    /// Prepares the means.
    ///
    /// # Errors
    /// The BPF program is missing, or the kernel does not load it.
    pub fn new(choice: &Choice) -> Result<Self, SenseError> {
        Ok(Self(match choice {
            Choice::SockDiag => Means::Diag(diag::DiagSensor::default()),
            Choice::Bpf(program) => Means::Bpf(bpf::BpfSensor::load(program)?),
            Choice::Scheduler => Means::Elsewhere,
        }))
    }

    /// Finds the sockets of these processes, and forgets other processes. Returns the processes whose sockets cannot be read; processes
    /// that have ended are not among them.
    pub fn scan(&mut self, pids: &BTreeSet<u32>) -> BTreeMap<u32, SenseError> {
        match &mut self.0 {
            Means::Diag(sensor) => sensor.scan(pids),
            Means::Bpf(sensor) => sensor.scan(pids),
            Means::Elsewhere => BTreeMap::new(),
        }
    }

    /// Reads the queues of the sockets that the last scan has found; by BPF, those of newer sockets, too.
    ///
    /// # Errors
    /// A query failed. The queues of other processes were read.
    pub fn sample(&mut self) -> Result<(), SenseError> {
        match &mut self.0 {
            Means::Diag(sensor) => sensor.sample(),
            Means::Bpf(sensor) => sensor.sample(),
            Means::Elsewhere => Ok(()),
        }
    }

    /// Returns the sockets of a process with their queues, as of the last scan or sample.
    #[must_use]
    pub fn sockets(&self, pid: u32) -> Vec<Socket> {
        match &self.0 {
            Means::Diag(sensor) => sensor.sockets(pid).copied().collect(),
            Means::Bpf(sensor) => sensor.sockets(pid).to_vec(),
            Means::Elsewhere => Vec::new(),
        }
    }

    /// Returns the queues of the sockets of a process, as of the last scan or sample.
    #[must_use]
    pub fn queues(&self, pid: u32) -> Vec<Occupancy> {
        self.sockets(pid).iter().map(|socket| socket.occupancy).collect()
    }

    /// Returns the connections of a process to other sockets by TCP or UDP, as of the last scan or sample.
    pub fn connections(&self, pid: u32) -> impl Iterator<Item = Connection> {
        let connections = self.sockets(pid).into_iter().filter_map(|socket| socket.connection);
        connections.filter(|connection| connection.remote.port() != 0)
    }

    /// Returns the number of sockets that a sample reads.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Means::Diag(sensor) => sensor.len(),
            Means::Bpf(sensor) => sensor.len(),
            Means::Elsewhere => 0,
        }
    }

    /// Returns whether a sample reads no socket.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        let mut sensor = Sensor::new(&Choice::SockDiag).unwrap();
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
        let mut sensor = Sensor::new(&Choice::SockDiag).unwrap();
        sensor.scan(&[own].into());
        sender.send_to(&[0; 700], receiver.local_addr().unwrap()).unwrap();
        let address = receiver.local_addr().unwrap();
        let is_it = |socket: &Socket| socket.connection.is_some_and(|connection| connection.local == address);
        while sensor.sockets(own).into_iter().find(is_it).unwrap().occupancy.received.bytes < 700 {
            sensor.sample().unwrap();
        }
    }
}

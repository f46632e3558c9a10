//! The sensor by BPF: an iterator of the files of each process, whose report is read once per sample. The program is in `kernel/queues`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use nix::errno::Errno;
use pronto_bpf::{Iterator as Reporter, Messages, Object, OpenError};
use pronto_sched_policy::policy::occupancy::{Occupancy, Queue};
use zerocopy::FromBytes;

use crate::process;
use crate::sensor::SenseError;
use crate::socket::{Connection, Socket};

/// Folder of the sources.
const FOLDER: &str = "kernel/queues";

/// `PRONTO_QUEUES_VERSION`.
const VERSION: u32 = 1;

/// `AF_INET` and `AF_UNIX`.
const INET: u16 = 2;
const UNIX: u16 = 1;

/// Room for a part of a report. The kernel passes 32 KiB at most.
const PART: usize = 32 << 10;

/// `struct reading`.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct RawReading {
    inode: u64,
    received_bytes: u32,
    received_messages: u32,
    sent_bytes: u32,
    sent_messages: u32,
    family: u16,
    protocol: u16,
    local_port: u16,
    remote_port: u16,
    local: [u8; 16],
    remote: [u8; 16],
}

#[derive(Debug)]
pub(super) struct BpfSensor {
    object: Object,
    processes: BTreeMap<u32, Sockets>,
    /// Room for a report, kept so that samples allocate nothing.
    report: Vec<u8>,
}

/// The sockets of a process.
#[derive(Debug)]
struct Sockets {
    /// Reports all of them.
    every: Reporter,
    /// Reports those with data.
    filled: Reporter,
    /// Sorted by inode.
    sockets: Vec<Socket>,
}

impl BpfSensor {
    pub(super) fn load(program: &Path) -> Result<Self, SenseError> {
        let mut object = pronto_bpf::open(program, FOLDER, Messages::Hidden)?;
        let version = object.map(c".rodata.parameters").and_then(|map| map.initial::<u32>());
        if version != Some(VERSION) {
            return Err(OpenError::OtherVersion { path: program.into(), folder: FOLDER }.into());
        }
        object.load()?;
        Ok(Self { object, processes: BTreeMap::new(), report: Vec::new() })
    }

    pub(super) fn scan(&mut self, pids: &BTreeSet<u32>) -> BTreeMap<u32, SenseError> {
        let mut failed = BTreeMap::new();
        self.processes.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            if let Entry::Vacant(vacant) = self.processes.entry(*pid) {
                match Sockets::of(*pid, &self.object) {
                    Ok(sockets) => drop(vacant.insert(sockets)),
                    Err(_) if process::Stat::of(*pid).is_err() => {}
                    Err(errno) => drop(failed.insert(*pid, SenseError::Process(*pid, errno))),
                }
            }
        }
        for (pid, sockets) in &mut self.processes {
            if let Err(error) = sockets.scan(*pid, &mut self.report) {
                failed.insert(*pid, error);
            }
        }
        failed
    }

    pub(super) fn sample(&mut self) -> Result<(), SenseError> {
        let mut result = Ok(());
        for (pid, sockets) in &mut self.processes {
            let sampled = sockets.sample(*pid, &mut self.report);
            result = result.and(sampled);
        }
        result
    }

    pub(super) fn sockets(&self, pid: u32) -> &[Socket] {
        self.processes.get(&pid).map_or(&[], |process| &process.sockets)
    }

    pub(super) fn len(&self) -> usize {
        self.processes.values().map(|process| process.sockets.len()).sum()
    }
}

impl Sockets {
    fn of(pid: u32, object: &Object) -> Result<Self, Errno> {
        let [every, filled] = [object.iterate(c"every", pid)?, object.iterate(c"filled", pid)?];
        Ok(Self { every, filled, sockets: Vec::new() })
    }

    /// Finds the sockets.
    fn scan(&mut self, pid: u32, report: &mut Vec<u8>) -> Result<(), SenseError> {
        self.sockets.clear();
        self.sockets.extend(read(&self.every, pid, report)?);
        // A socket with several descriptors was reported for each.
        self.sockets.sort_unstable_by_key(|socket| socket.inode);
        self.sockets.dedup_by_key(|socket| socket.inode);
        Ok(())
    }

    /// Reads the queues. A socket that is not reported has empty ones.
    fn sample(&mut self, pid: u32, report: &mut Vec<u8>) -> Result<(), SenseError> {
        let filled = read(&self.filled, pid, report)?;
        for socket in &mut self.sockets {
            socket.occupancy = Occupancy::default();
        }
        for socket in filled {
            match self.sockets.binary_search_by_key(&socket.inode, |known| known.inode) {
                Ok(at) => self.sockets[at] = socket,
                Err(at) => self.sockets.insert(at, socket),
            }
        }
        Ok(())
    }
}

/// Reads a whole report into a buffer that is large enough or grows. Returns the sockets in it.
fn read<'r>(
    reporter: &Reporter,
    pid: u32,
    report: &'r mut Vec<u8>,
) -> Result<impl Iterator<Item = Socket> + use<'r>, SenseError> {
    let mut file = reporter.start().map_err(|errno| SenseError::Process(pid, errno))?;
    let mut length = 0;
    loop {
        if report.len() < length + PART {
            report.resize(length + PART, 0);
        }
        match file.read(report.get_mut(length..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
                return Err(SenseError::Process(pid, errno));
            }
        }
    }
    let readings = report.get(..length).unwrap_or_default().chunks_exact(size_of::<RawReading>());
    if !readings.remainder().is_empty() {
        return Err(SenseError::Malformed(pid));
    }
    Ok(readings.filter_map(|bytes| RawReading::read_from_bytes(bytes).ok()).map(|reading| reading.socket()))
}

impl RawReading {
    fn socket(&self) -> Socket {
        let queue = |bytes: u32, messages: u32| Queue { bytes: bytes.into(), messages: messages.into() };
        Socket {
            inode: self.inode,
            occupancy: Occupancy {
                received: queue(self.received_bytes, self.received_messages),
                sent: queue(self.sent_bytes, self.sent_messages),
            },
            connection: (self.family != UNIX).then(|| Connection {
                protocol: u8::try_from(self.protocol).unwrap_or_default(),
                local: self.address(self.local, self.local_port),
                remote: self.address(self.remote, self.remote_port),
            }),
        }
    }

    fn address(&self, bytes: [u8; 16], port: u16) -> SocketAddr {
        let ip = if self.family == INET {
            let [a, b, c, d, ..] = bytes;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            // A socket for both families is known to the other end by its IPv4 address.
            Ipv6Addr::from(bytes).to_canonical()
        };
        SocketAddr::new(ip, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_that_of_the_header() {
        let header = include_str!("../../../../kernel/queues/pronto_queues.h");
        assert!(header.contains(&format!("#define PRONTO_QUEUES_VERSION {VERSION}\n")));
        assert_eq!(size_of::<RawReading>(), 8 + 4 * 4 + 4 * 2 + 2 * 16);
        assert_eq!(align_of::<RawReading>(), 8);
    }

    #[test]
    fn a_reading_becomes_a_socket() {
        let reading = RawReading {
            inode: 7,
            received_bytes: 300,
            received_messages: 3,
            sent_bytes: 0,
            sent_messages: 0,
            family: 10,
            protocol: 6,
            local_port: 80,
            remote_port: 4_000,
            local: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
            remote: Ipv6Addr::LOCALHOST.octets(),
        };
        let socket = reading.socket();
        assert_eq!(socket.occupancy.received, Queue { bytes: 300, messages: 3 });
        let connection = socket.connection.unwrap();
        assert_eq!(
            (connection.local.to_string(), connection.remote.to_string()),
            ("127.0.0.1:80".into(), "[::1]:4000".into())
        );
        assert_eq!(RawReading { family: UNIX, ..reading }.socket().connection, None);
    }
}

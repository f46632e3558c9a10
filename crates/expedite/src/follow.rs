//! Flags on the files of other processes, which know nothing of the module.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;

use crate::device::{Device, Flag, Refused};
use crate::process::{self, Kind, OpenFile, Process, Unreachable};

/// A file that was flagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flagged {
    /// The process that has it open.
    pub pid: u32,
    /// The file in that process.
    pub file: OpenFile,
    /// Maximum time for which it had been open before: the time since the last scan that flagged all files of its process. `None` if there
    /// was none of a process that ran already.
    pub after: Option<Duration>,
}

/// Result of one scan of some processes.
#[derive(Debug, Default)]
pub struct Scan {
    /// Files that were flagged now.
    pub flagged: Vec<Flagged>,
    /// Files that have no flag yet and are tried again in the next scan: their number, and the reason for the last one.
    pub postponed: Option<(usize, Refused)>,
    /// Processes whose files cannot be reached, each reported once. Processes that have ended are not among them.
    pub unreachable: Vec<Unreachable>,
    /// Processes that were left out in this scan because this process may have no more open descriptors: their number, and the reason
    /// for the last one. They are tried again in the next scan.
    pub left_out: Option<(usize, Unreachable)>,
}

/// Sets flags on the files of other processes, and holds them. A flag ends when the file is closed, or when this is dropped.
#[derive(Debug)]
pub struct Follower {
    /// Never empty. A device holds a limited number of flags.
    devices: Vec<Device>,
    flag: Flag,
    /// Kinds of files that are flagged.
    kinds: BTreeSet<Kind>,
    known: BTreeMap<u32, Known>,
    /// Processes that were reported as unreachable.
    unreachable: BTreeSet<u32>,
    /// Processes that were left out, each with the beginning of the scan before.
    left_out: BTreeMap<u32, Option<Instant>>,
    last_scan: Option<Instant>,
}

/// A process, and those of its files that need no further attempt.
#[derive(Debug)]
struct Known {
    process: Process,
    files: BTreeSet<OpenFile>,
    /// Beginning of the last scan that flagged all its files.
    complete: Option<Instant>,
}

/// Descriptors that must be free for a scan: the folder of a process and those of its threads, a duplicate, another device, and the
/// output of the program. One more for each of them does no harm.
const RESERVE: u64 = 16;

/// Whether the followed processes may have files already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// They are started after the follower was made.
    New,
    /// They run already.
    Running,
}

impl Follower {
    /// Returns a follower that flags files of these kinds. The thread of `flag` is not used: it is the main thread of each process.
    ///
    /// It needs a descriptor for each process: see [`process::raise_descriptor_limit`].
    ///
    /// # Errors
    /// The module is not loaded, this user may not open its device, the terms of the flag cannot work, or a filter of system calls
    /// forbids access to any process.
    pub fn new(flag: Flag, kinds: &[Kind], followed: Followed) -> Result<Self, FlagError> {
        Process::try_own_files().map_err(|errno| Unreachable::of(std::process::id(), errno))?;
        let device = Device::open()?;
        // Finds out now whether the terms are valid.
        let (one, _other) = UnixStream::pair().map_err(|error| Refused::System(errno_of(&error)))?;
        device.flag(&one, flag)?;
        device.unflag(&one)?;
        Ok(Self {
            devices: vec![device],
            flag,
            kinds: kinds.iter().copied().collect(),
            known: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            left_out: BTreeMap::new(),
            last_scan: (followed == Followed::New).then(now),
        })
    }

    /// Flags the files of these processes that were opened since the last scan. Forgets other processes and closed files.
    pub fn scan(&mut self, pids: &BTreeSet<u32>) -> Scan {
        let mut scan = Scan::default();
        let begun = now();
        self.known.retain(|pid, known| pids.contains(pid) && !known.process.has_ended());
        self.unreachable.retain(|pid| pids.contains(pid));
        self.left_out.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            match self.scan_process(*pid, begun, &mut scan) {
                Ok(()) => {
                    self.unreachable.remove(pid);
                }
                // It has ended.
                Err(Unreachable::NoProcess(_)) => {}
                Err(reason @ Unreachable::TooManyDescriptors(..)) => {
                    let before = scan.left_out.map_or(0, |(count, _)| count);
                    scan.left_out = Some((before + 1, reason));
                    self.left_out.entry(*pid).or_insert(self.last_scan);
                }
                Err(reason) => {
                    if self.unreachable.insert(*pid) {
                        scan.unreachable.push(reason);
                    }
                }
            }
        }
        self.last_scan = Some(begun);
        scan
    }

    fn scan_process(&mut self, pid: u32, begun: Instant, scan: &mut Scan) -> Result<(), Unreachable> {
        let mut known = match self.known.remove(&pid) {
            Some(known) => known,
            None => {
                let process = Process::find(pid)?;
                if process.is_among_the_last(RESERVE) {
                    return Err(Unreachable::TooManyDescriptors(pid, process::descriptor_limit()));
                }
                let complete = self.left_out.remove(&pid).unwrap_or(self.last_scan);
                Known { process, files: BTreeSet::new(), complete }
            }
        };
        let result = self.flag_new(&mut known, scan);
        if known.process.has_ended() {
            return Ok(());
        }
        match result {
            Ok(true) => known.complete = Some(begun),
            // The kernel gives the folder of files to root before the process counts as ended.
            Err(Unreachable::NotPermitted(..)) if process::is_ending(pid) => return Ok(()),
            Ok(false) | Err(_) => {}
        }
        let result = result.map(drop);
        self.known.insert(pid, known);
        result
    }

    /// Flags the files that have no flag. Returns whether all have one now.
    fn flag_new(&mut self, known: &mut Known, scan: &mut Scan) -> Result<bool, Unreachable> {
        let mut has_all = true;
        let pid = known.process.pid();
        let files: BTreeSet<_> = process::open_files(pid)?.into_iter().collect();
        known.files.retain(|file| files.contains(file));
        // A file without a number may be another one than in the last scan, under the same descriptor, so the module is asked each time.
        let is_new = |file: &&OpenFile| !file.kind.has_numbers() || !known.files.contains(file);
        let new = files.iter().filter(|file| self.kinds.contains(&file.kind)).filter(is_new);
        for file in new.cloned().collect::<Vec<_>>() {
            let Some(copy) = known.process.duplicate(file.fd)? else { continue };
            match self.set(pid, &copy) {
                Ok(()) => {
                    let after = known.complete.map(|last| last.elapsed());
                    scan.flagged.push(Flagged { pid, file: file.clone(), after });
                }
                // The first: another process has the same file, or had it before. The second: the kind of socket is not supported.
                Err(Refused::Flagged | Refused::Unsupported) => {}
                // The process has ended.
                Err(Refused::NoThread) => return Err(Unreachable::NoProcess(pid)),
                Err(refused) => {
                    let before = scan.postponed.map_or(0, |(count, _)| count);
                    scan.postponed = Some((before + 1, refused));
                    has_all = false;
                    continue;
                }
            }
            known.files.insert(file);
        }
        Ok(has_all)
    }

    /// Flags one file of a process, of any kind.
    ///
    /// # Errors
    /// The process or its file cannot be reached, or the module refuses the flag.
    pub fn flag_one(&mut self, process: &Process, fd: i32) -> Result<(), FlagError> {
        let copy = process.duplicate(fd)?.ok_or_else(|| FlagError::NotOpen(process.pid(), fd))?;
        match self.set(process.pid(), &copy) {
            Ok(()) | Err(Refused::Flagged) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Sets a flag through a device that has room; opens another device if there is none.
    fn set(&mut self, pid: u32, file: &OwnedFd) -> Result<(), Refused> {
        for device in &self.devices {
            if device.is_flagged(file)? {
                return Err(Refused::Flagged);
            }
        }
        let flag = Flag { thread: pid.cast_signed(), ..self.flag };
        // Most flags of an earlier device end before those of a later one.
        for device in self.devices.iter().rev() {
            match device.flag(file, flag) {
                Err(Refused::Full) => {}
                other => return other,
            }
        }
        let another = Device::open()?;
        another.flag(file, flag)?;
        self.devices.push(another);
        Ok(())
    }

    /// Returns a device of the module, for its counters.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.devices[0]
    }
}

/// Reason why one file was not flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagError {
    /// The process cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The process has no such descriptor.
    #[error("process {0} has no descriptor {1}: ls -l /proc/{0}/fd lists those that it has")]
    NotOpen(u32, i32),
    /// The module refused the flag.
    #[error(transparent)]
    Refused(#[from] Refused),
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

#[expect(clippy::disallowed_methods, reason = "the time until a file is flagged is real time")]
fn now() -> Instant {
    Instant::now()
}

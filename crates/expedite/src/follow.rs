//! Flags on the files of other processes, which know nothing of the module.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::device::{Device, Flag, Refused};
use crate::process::{self, Kind, OpenFile, Process, Unreachable};

/// Flags that one device can hold: `EXPEDITE_FLAGS_MAX`.
const PER_DEVICE: usize = 1024;

/// A file that was flagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flagged {
    /// The process that has it open.
    pub pid: u32,
    /// The file in that process.
    pub file: OpenFile,
    /// Maximum time for which it had been open before: the time since the last look at the process.
    pub after: Duration,
}

/// Result of one look at some processes.
#[derive(Debug, Default)]
pub struct Look {
    /// Files that were flagged now.
    pub flagged: Vec<Flagged>,
    /// Files that could not be flagged now and will not be tried again, each with the reason.
    pub refused: Vec<(u32, OpenFile, Refused)>,
    /// Processes whose files cannot be reached. Processes that have ended are not among them.
    pub unreachable: Vec<Unreachable>,
}

/// Sets flags on the files of other processes, and holds them. A flag ends when the file is closed, or when this is dropped.
#[derive(Debug)]
pub struct Follower {
    devices: Vec<Device>,
    /// Flags that were set through the last device.
    on_last: usize,
    flag: Flag,
    /// Kinds of files that are flagged.
    kinds: BTreeSet<Kind>,
    /// The processes, by number, and the files of each that were flagged or refused.
    known: BTreeMap<u32, Known>,
    last_look: Instant,
}

#[derive(Debug)]
struct Known {
    process: Process,
    files: BTreeSet<OpenFile>,
    /// It was reported that its files cannot be reached.
    is_unreachable: bool,
}

impl Follower {
    /// Returns a follower that flags files of these kinds. The thread of `flag` is not used: it is the main thread of each process.
    ///
    /// # Errors
    /// The module is not loaded, or this user may not open its device.
    pub fn new(flag: Flag, kinds: &[Kind]) -> Result<Self, Refused> {
        Ok(Self {
            devices: vec![Device::open()?],
            on_last: 0,
            flag,
            kinds: kinds.iter().copied().collect(),
            known: BTreeMap::new(),
            last_look: now(),
        })
    }

    /// Flags the files of these processes that were opened since the last look. Forgets other processes and closed files.
    pub fn look(&mut self, pids: &[u32]) -> Look {
        let mut look = Look::default();
        let begun = now();
        self.known.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            match self.look_at(*pid, &mut look) {
                // It has ended.
                Ok(()) | Err(Unreachable::NoProcess(_)) => {}
                Err(reason) => {
                    let is_new = self
                        .known
                        .get_mut(pid)
                        .is_none_or(|known| !core::mem::replace(&mut known.is_unreachable, true));
                    if is_new {
                        look.unreachable.push(reason);
                    }
                }
            }
        }
        self.last_look = begun;
        look
    }

    fn look_at(&mut self, pid: u32, look: &mut Look) -> Result<(), Unreachable> {
        let mut known = match self.known.remove(&pid) {
            Some(known) => known,
            None => Known { process: Process::find(pid)?, files: BTreeSet::new(), is_unreachable: false },
        };
        let result = self.flag_new(&mut known, look);
        self.known.insert(pid, known);
        result
    }

    fn flag_new(&mut self, known: &mut Known, look: &mut Look) -> Result<(), Unreachable> {
        let pid = known.process.pid();
        let files: BTreeSet<_> = process::open_files(pid)?.into_iter().collect();
        known.files.retain(|file| files.contains(file));
        let new = files.difference(&known.files).filter(|file| self.kinds.contains(&file.kind));
        for file in new.cloned().collect::<Vec<_>>() {
            let Some(copy) = known.process.duplicate(file.fd)? else { continue };
            known.files.insert(file.clone());
            match self.set(pid, &copy) {
                // Another process has the same file, or had it before.
                Err(Refused::Flagged) => {}
                Ok(()) => look.flagged.push(Flagged { pid, file, after: self.last_look.elapsed() }),
                Err(refused) => look.refused.push((pid, file, refused)),
            }
        }
        Ok(())
    }

    /// Flags one file of a process, of any kind.
    ///
    /// # Errors
    /// The process or its file cannot be reached, or the module refuses the flag.
    pub fn flag_one(&mut self, pid: u32, fd: i32) -> Result<(), FlagError> {
        let copy = Process::find(pid)?.duplicate(fd)?.ok_or(FlagError::NotOpen(pid, fd))?;
        Ok(self.set(pid, &copy)?)
    }

    fn set(&mut self, pid: u32, file: &std::os::fd::OwnedFd) -> Result<(), Refused> {
        if self.on_last == PER_DEVICE {
            self.devices.push(Device::open()?);
            self.on_last = 0;
        }
        // A file that was flagged through an earlier device has its flag already.
        let Some((last, earlier)) = self.devices.split_last() else { return Err(Refused::NotLoaded) };
        for device in earlier {
            if device.is_flagged(file)? {
                return Err(Refused::Flagged);
            }
        }
        last.flag(file, Flag { thread: pid.cast_signed(), ..self.flag })?;
        self.on_last += 1;
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
    #[error("process {0} has no descriptor {1}")]
    NotOpen(u32, i32),
    /// The module refused the flag.
    #[error(transparent)]
    Refused(#[from] Refused),
}

#[expect(clippy::disallowed_methods, reason = "the time until a file is flagged is real time")]
fn now() -> Instant {
    Instant::now()
}

//! Processes and threads as `/proc` shows them.

use std::fs;
use std::io;
use std::path::PathBuf;

use pronto_expedite::process::unless_ended;
use serde::{Deserialize, Serialize};

/// A process or a thread. The kernel reuses numbers, so the start time belongs to the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Number of the process or thread.
    pub id: u32,
    /// Start time, in ticks since the machine started.
    pub started: u64,
}

/// Part of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process or thread.
    pub identity: Identity,
    /// Number of its parent.
    pub parent: u32,
    /// Its name.
    pub command: String,
}

/// Waiting of a process, in total since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Time for which its main thread was ready and did not run, in nanoseconds.
    pub ready_ns: u64,
    /// Number of times that the main thread has slept.
    pub sleeps: u64,
}

impl Stat {
    /// Reads the state of a process.
    ///
    /// # Errors
    /// There is no such process any more, or `/proc` is hidden from this user.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::parse(&text_of(&format!("/proc/{pid}/stat"))?)
    }

    /// Reads the state of a thread of a process.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Self> {
        Self::parse(&text_of(&format!("/proc/{pid}/task/{tid}/stat"))?)
    }

    fn parse(text: &str) -> io::Result<Self> {
        Self::fields(text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn fields(text: &str) -> Option<Self> {
        let (id, rest) = text.split_once(" (")?;
        // The name may contain anything, also parentheses.
        let (command, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let parent = fields.nth(1)?.parse().ok()?;
        // Fields 3 and 4 of proc(5) are behind; the start time is field 22.
        let started = fields.nth(17)?.parse().ok()?;
        let identity = Identity { id: id.parse().ok()?, started };
        Some(Self { identity, parent, command: command.to_owned() })
    }
}

impl Identity {
    /// Returns whether this process still exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        Stat::of(self.id).is_ok_and(|stat| stat.identity == *self)
    }

    /// Returns the waiting of the process.
    ///
    /// # Errors
    /// It does not exist any more, or the kernel does not account for it (`CONFIG_SCHED_INFO`).
    pub fn waiting(&self) -> io::Result<Waiting> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", self.id))?;
        let ready_ns = schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = sleeps.and_then(|number| number.trim().parse().ok());
        Ok(Waiting { ready_ns: ready_ns.ok_or_else(invalid)?, sleeps: sleeps.ok_or_else(invalid)? })
    }
}

/// Returns the threads of a process; none if it does not exist any more.
///
/// # Errors
/// The kernel cannot list them now, for example because this process has too many open files.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers_in(format!("/proc/{pid}/task").into())
}

/// Returns all processes that are visible to this user.
///
/// # Errors
/// As [`threads`].
pub fn all() -> io::Result<Vec<u32>> {
    numbers_in("/proc".into())
}

/// Reads a file that contains the name of a process, which may be cut within a character.
fn text_of(path: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Returns the number of the network namespace of a process.
///
/// # Errors
/// The process does not exist any more, or this user may not read its namespaces.
pub fn network_namespace(pid: u32) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(format!("/proc/{pid}/ns/net"))?.ino())
}

fn numbers_in(folder: PathBuf) -> io::Result<Vec<u32>> {
    let Some(entries) = unless_ended(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut numbers = Vec::new();
    for entry in entries {
        // A folder that vanishes while it is read is at its end.
        let Some(entry) = unless_ended(entry)? else { break };
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let stat = Stat::parse(text).unwrap();
        let identity = Identity { id: 7, started: 98_765 };
        assert_eq!(stat, Stat { identity, parent: 3, command: "a) b (c".to_owned() });
        assert!(Stat::parse("7 (a) S 3").is_err());
    }

    #[test]
    fn a_thread_whose_name_is_not_text_is_found() {
        // The kernel cuts names after 15 bytes, also within a character.
        let name = c"fifteen-letter\xc3";
        let stat = std::thread::scope(|scope| {
            let named = scope.spawn(|| {
                nix::sys::prctl::set_name(name).unwrap();
                let tid = nix::unistd::gettid().as_raw().cast_unsigned();
                (tid, Stat::of_thread(std::process::id(), tid))
            });
            named.join().unwrap()
        });
        assert_eq!(stat.1.unwrap().identity.id, stat.0);
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id();
        let stat = Stat::of(own).unwrap();
        assert!(stat.identity.exists() && all().unwrap().contains(&own));
        assert!(!Identity { started: stat.identity.started + 1, ..stat.identity }.exists());
        let thread = threads(own).unwrap()[0];
        assert_eq!(Stat::of_thread(own, thread).unwrap().identity.id, thread);
        assert!(network_namespace(own).unwrap() > 0);
    }

    #[test]
    fn sleeps_are_counted() {
        let own = Stat::of(std::process::id()).unwrap().identity;
        match own.waiting() {
            Ok(before) => assert!(own.waiting().unwrap().sleeps >= before.sleeps),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
        }
    }
}

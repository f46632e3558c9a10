//! Groups: the processes that are coscheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use pronto_expedite::process::{try_descendants, unless_ended};

use crate::process::{self, Identity, Stat};

/// Longest name of a process in `/proc` (`TASK_COMM_LEN` without the final zero).
const NAME: usize = 15;

/// The rule by which processes belong to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The descendants of a process, without itself.
    DescendantsOf(u32),
    /// This process, without its descendants: a program that coschedules itself.
    Own,
    /// A process and its descendants.
    Family(u32),
    /// All processes with this name and their descendants. The kernel keeps 15 bytes of a name.
    Named(String),
    /// The processes of a control group and of those below it, by its folder in the file system.
    ControlGroup(PathBuf),
}

/// A process of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process.
    pub identity: Identity,
    /// Number of its parent.
    pub parent: u32,
    /// Its name.
    pub command: String,
}

impl Members {
    /// Returns the processes that belong to the group now. Processes that end meanwhile may be missing. This process belongs only to
    /// [`Self::Own`].
    ///
    /// # Errors
    /// The processes cannot be listed now, for example because this process has too many open files.
    pub fn find(&self) -> io::Result<BTreeMap<u32, Member>> {
        let mut pids = match self {
            Self::DescendantsOf(pid) => try_descendants(*pid)?.into_iter().collect(),
            Self::Own => [std::process::id()].into(),
            Self::Family(pid) => with_descendants([*pid].into())?,
            Self::Named(name) => with_descendants(named(name)?)?,
            Self::ControlGroup(folder) => in_control_group(folder)?,
        };
        if *self != Self::Own {
            pids.remove(&std::process::id());
        }
        let mut members = BTreeMap::new();
        for pid in pids {
            let Some(stat) = unless_ended(Stat::of(pid))? else { continue };
            let member = Member { identity: stat.identity, parent: stat.parent, command: stat.command };
            members.insert(pid, member);
        }
        Ok(members)
    }
}

fn with_descendants(pids: BTreeSet<u32>) -> io::Result<BTreeSet<u32>> {
    let mut all = pids.clone();
    for pid in pids {
        all.extend(try_descendants(pid)?);
    }
    Ok(all)
}

fn named(name: &str) -> io::Result<BTreeSet<u32>> {
    // A name may be cut within a character.
    let name = &name.as_bytes()[..name.len().min(NAME)];
    let mut found = BTreeSet::new();
    for pid in process::all()? {
        let command = unless_ended(fs::read(format!("/proc/{pid}/comm")))?;
        if command.is_some_and(|command| command.strip_suffix(b"\n") == Some(name)) {
            found.insert(pid);
        }
    }
    Ok(found)
}

fn in_control_group(folder: &Path) -> io::Result<BTreeSet<u32>> {
    let text = gone_or(fs::read_to_string(folder.join("cgroup.procs")))?.unwrap_or_default();
    let mut found: BTreeSet<u32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
    let Some(entries) = gone_or(fs::read_dir(folder))? else { return Ok(found) };
    for entry in entries {
        let Some(entry) = gone_or(entry)? else { break };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(in_control_group(&entry.path())?);
        }
    }
    Ok(found)
}

/// Returns `None` for a control group that was removed (`ENODEV` if its file was open), or cannot list its processes (a threaded one).
pub(crate) fn gone_or<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match unless_ended(result) {
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::ENODEV | Errno::EOPNOTSUPP)
            ) =>
        {
            Ok(None)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _reaped = self.0.wait();
        }
    }

    fn cat() -> Killed {
        Killed(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    #[test]
    fn families_contain_their_process_and_descendants_do_not() {
        let child = cat();
        let own = std::process::id();
        let pid = child.0.id();
        assert!(Members::Family(pid).find().unwrap().contains_key(&pid));
        assert!(!Members::DescendantsOf(pid).find().unwrap().contains_key(&pid));
        if pronto_expedite::process::has_children_lists() {
            let family = Members::Family(own).find().unwrap();
            assert!(family.contains_key(&pid) && !family.contains_key(&own), "{family:?}");
        }
    }

    #[test]
    fn this_process_belongs_only_to_its_own_group() {
        let own = std::process::id();
        assert_eq!(Members::Own.find().unwrap().into_keys().collect::<Vec<_>>(), [own]);
        assert!(!Members::Family(own).find().unwrap().contains_key(&own));
    }

    /// Shows: operations.coschedule-groups
    #[test]
    fn processes_are_found_by_name_and_forgotten_when_they_end() {
        // The name of a copy is its own, so that no other `cat` is counted.
        let name = format!("cat-{}-copied", std::process::id());
        let path = std::env::temp_dir().join(&name);
        fs::copy("/bin/cat", &path).unwrap();
        let child = Killed(Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        fs::remove_file(&path).unwrap();
        let pid = child.0.id();
        let group = Members::Named(name.clone());
        // The kernel sets the name a moment after the parent goes on.
        let mut tries = 0;
        let found = loop {
            let found = group.find().unwrap();
            if !found.is_empty() {
                break found;
            }
            tries += 1;
            assert!(tries < 30_000, "the process has no name");
        };
        assert_eq!(found.keys().collect::<Vec<_>>(), [&pid]);
        assert_eq!(found[&pid].command.as_bytes(), &name.as_bytes()[..name.len().min(NAME)]);
        drop(child);
        assert!(group.find().unwrap().is_empty());
    }

    #[test]
    fn a_missing_control_group_is_empty() {
        assert!(Members::ControlGroup("/nonexistent".into()).find().unwrap().is_empty());
    }
}

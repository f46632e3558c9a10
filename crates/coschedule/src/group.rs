//! Groups: the processes that are coscheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pronto_expedite::process::descendants;

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
    #[must_use]
    pub fn find(&self) -> BTreeMap<u32, Member> {
        let mut pids = match self {
            Self::DescendantsOf(pid) => descendants(*pid).into_iter().collect(),
            Self::Own => [std::process::id()].into(),
            Self::Family(pid) => with_descendants([*pid].into()),
            Self::Named(name) => with_descendants(named(name)),
            Self::ControlGroup(folder) => in_control_group(folder),
        };
        if *self != Self::Own {
            pids.remove(&std::process::id());
        }
        let member = |pid: u32| {
            let stat = Stat::of(pid).ok()?;
            Some((pid, Member { identity: stat.identity, parent: stat.parent, command: stat.command }))
        };
        pids.into_iter().filter_map(member).collect()
    }
}

fn with_descendants(pids: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut all = pids.clone();
    pids.into_iter().for_each(|pid| all.extend(descendants(pid)));
    all
}

fn named(name: &str) -> BTreeSet<u32> {
    // A name may be cut within a character.
    let name = &name.as_bytes()[..name.len().min(NAME)];
    let is_named = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        command.strip_suffix(b"\n") == Some(name)
    };
    process::all().into_iter().filter(is_named).collect()
}

fn in_control_group(folder: &Path) -> BTreeSet<u32> {
    let mut found: BTreeSet<u32> = fs::read_to_string(folder.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|below| found.extend(in_control_group(&below.path())));
    found
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
        assert!(Members::Family(pid).find().contains_key(&pid));
        assert!(!Members::DescendantsOf(pid).find().contains_key(&pid));
        if pronto_expedite::process::has_children_lists() {
            let family = Members::Family(own).find();
            assert!(family.contains_key(&pid) && !family.contains_key(&own), "{family:?}");
        }
    }

    #[test]
    fn this_process_belongs_only_to_its_own_group() {
        let own = std::process::id();
        assert_eq!(Members::Own.find().into_keys().collect::<Vec<_>>(), [own]);
        assert!(!Members::Family(own).find().contains_key(&own));
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
            let found = group.find();
            if !found.is_empty() {
                break found;
            }
            tries += 1;
            assert!(tries < 30_000, "the process has no name");
        };
        assert_eq!(found.keys().collect::<Vec<_>>(), [&pid]);
        assert_eq!(found[&pid].command.as_bytes(), &name.as_bytes()[..name.len().min(NAME)]);
        drop(child);
        assert!(group.find().is_empty());
    }

    #[test]
    fn a_missing_control_group_is_empty() {
        assert!(Members::ControlGroup("/nonexistent".into()).find().is_empty());
    }
}

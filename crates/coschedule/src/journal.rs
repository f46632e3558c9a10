//! The journal: values of threads and control groups before they were changed, so that they can be restored after a crash.
//!
//! A line is written before the first change of a thread or a control group. The kernel keeps it if this process is killed. If the machine
//! stops, there is nothing to restore.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};

use crate::process::Identity;

/// Values of a thread before its first change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadBefore {
    /// Number of its process.
    pub process: u32,
    /// The thread.
    pub thread: Identity,
    /// Its nice value.
    pub nice: i32,
    /// Its time slice in nanoseconds, of which 0 is the kernel's; `None` if it is not changed.
    pub slice_ns: Option<u64>,
}

/// Value of a control group before its first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroupBefore {
    /// The file with its weight.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A thread was changed.
    Thread(ThreadBefore),
    /// A control group was changed.
    ControlGroup(ControlGroupBefore),
    /// A thread has the values before again, or belongs to another coscheduler.
    Released(Identity),
}

/// The changes that a journal has, without those that were released. The last line of a thread or group counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Threads, with their values before.
    pub threads: BTreeMap<Identity, ThreadBefore>,
    /// Control groups, by the files with their weights.
    pub groups: BTreeMap<PathBuf, ControlGroupBefore>,
}

impl Changes {
    /// Returns the changes of lines, in their order. A line that was cut off is left out: its change was not made.
    fn of(text: &str) -> Self {
        let mut changes = Self::default();
        for entry in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match entry {
                Entry::Thread(before) => drop(changes.threads.insert(before.thread, before)),
                Entry::ControlGroup(before) => drop(changes.groups.insert(before.file.clone(), before)),
                Entry::Released(thread) => drop(changes.threads.remove(&thread)),
            }
        }
        changes
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.groups.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.threads.extend(other.threads);
        self.groups.extend(other.groups);
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        let threads = self.threads.values().copied().map(Entry::Thread);
        threads.chain(self.groups.values().cloned().map(Entry::ControlGroup))
    }
}

/// Reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another coscheduler has the journal open.
    #[error("{} is in use by another coscheduler", .0.display())]
    InUse(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use {} as the folder of the state: {}", .0.display(), .1)]
    Folder(PathBuf, FolderFault),
    /// The file cannot be read or written.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
}

/// Reason why a folder cannot hold the state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderFault {
    /// Other users may put files there, and a journal says which processes are changed.
    #[error("it must belong to this user, and no other user may write there (chmod 700)")]
    Shared,
    /// It is another kind of file.
    #[error("it is not a folder")]
    NotAFolder,
    /// It does not exist, and neither does its parent.
    #[error("neither it nor its parent folder exists")]
    Missing,
    /// It cannot be made or read.
    #[error("{0}")]
    System(io::Error),
}

/// Checks that a folder can hold the state, or can be made.
///
/// # Errors
/// [`JournalError::Folder`].
pub fn check_folder(folder: &Path) -> Result<(), JournalError> {
    let fault = match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => FolderFault::NotAFolder,
        Ok(found) if found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & OTHERS_WRITE != 0 => {
            FolderFault::Shared
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match folder.parent().map(fs::metadata) {
            Some(Ok(parent)) if parent.is_dir() => return Ok(()),
            _ => FolderFault::Missing,
        },
        Err(error) => FolderFault::System(error),
    };
    Err(JournalError::Folder(folder.to_owned(), fault))
}

/// Makes the folder of the state, for this user alone, unless it exists.
///
/// # Errors
/// [`JournalError::Folder`].
pub fn make_folder(folder: &Path) -> Result<(), JournalError> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_folder(folder),
        Err(error) => Err(JournalError::Folder(folder.to_owned(), FolderFault::System(error))),
    }
}

/// Permission of the group and of others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Lines that are no longer needed before the file is written again.
const STALE_LINES: usize = 1_000;

/// A journal in a file, which no other process has open.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Flock<File>,
    lines: usize,
    /// Changes that could not be restored, for the next attempt.
    kept: Changes,
    /// The file ends with a part of a line.
    is_torn: bool,
}

impl Journal {
    /// Opens the journal in `path`, whose folder must exist. Returns the changes of a process that ended without restoring them.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<(Self, Changes), JournalError> {
        let failed = |error| JournalError::File(path.to_owned(), error);
        let file = loop {
            let file = lock(path)?;
            let locked = file.metadata().map_err(failed)?.ino();
            // Its owner may have replaced it between the opening and the lock.
            if fs::metadata(path).is_ok_and(|named| named.ino() == locked) {
                break file;
            }
        };
        let text = fs::read_to_string(path).map_err(failed)?;
        let is_torn = !text.is_empty() && !text.ends_with('\n');
        let journal = Self { lines: text.lines().count(), is_torn, ..Self::new(path.to_owned(), file) };
        Ok((journal, Changes::of(&text)))
    }

    fn new(path: PathBuf, file: Flock<File>) -> Self {
        Self { path, file, lines: 0, kept: Changes::default(), is_torn: false }
    }

    /// Writes an entry. It is in the file when this returns.
    ///
    /// # Errors
    /// [`JournalError::File`]. The change must not be made then.
    pub fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let line = serde_json::to_string(entry).map_err(|error| self.failed(error.into()))?;
        let line = format!("{}{line}\n", if self.is_torn { "\n" } else { "" });
        let written = self.file.write_all(line.as_bytes());
        // A full file system takes a part of a line, to which the next one must not be appended.
        self.is_torn = written.is_err();
        written.map_err(|error| self.failed(error))?;
        self.lines += 1;
        Ok(())
    }

    /// Writes the file again if most of its lines are stale. `live` are the entries that are still needed.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn compact(
        &mut self,
        live: &BTreeMap<Identity, ThreadBefore>,
        groups: &[ControlGroupBefore],
    ) -> Result<(), JournalError> {
        if self.lines < live.len() + groups.len() + STALE_LINES {
            return Ok(());
        }
        // The new file replaces the old one in one step, so that no moment without entries exists. If it cannot be written, the old one
        // stays in use.
        let path = self.path.with_extension("new");
        let _absent = fs::remove_file(&path);
        let mut next = Self { kept: self.kept.clone(), ..Self::new(self.path.clone(), lock(&path)?) };
        let threads = live.values().copied().map(Entry::Thread);
        let groups = groups.iter().cloned().map(Entry::ControlGroup);
        let written =
            self.kept.entries().chain(threads).chain(groups).try_for_each(|entry| next.write(&entry));
        let renamed =
            written.and_then(|()| fs::rename(&path, &self.path).map_err(|error| self.failed(error)));
        if renamed.is_err() {
            let _removed = fs::remove_file(&path);
            return renamed;
        }
        *self = next;
        Ok(())
    }

    /// Keeps a change that could not be restored now, also when the journal is written again or emptied.
    pub(crate) fn keep(&mut self, before: ThreadBefore) {
        self.kept.threads.insert(before.thread, before);
    }

    /// Empties the journal after everything was restored, except `left`, which could not be.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn clear(&mut self, left: Changes) -> Result<(), JournalError> {
        self.kept.extend(left);
        self.lines = 0;
        self.is_torn = false;
        self.file.set_len(0).map_err(|error| self.failed(error))?;
        let kept: Vec<_> = self.kept.entries().collect();
        kept.iter().try_for_each(|entry| self.write(entry))
    }

    /// Removes the file, unless it has changes that could not be restored.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn remove(&self) -> Result<(), JournalError> {
        if !self.kept.is_empty() {
            return Ok(());
        }
        fs::remove_file(&self.path).map_err(|error| self.failed(error))
    }

    /// Returns the changes of other coschedulers with the same folder.
    pub(crate) fn of_others(&self) -> Changes {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        changes_in(&others(folder))
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::File(self.path.clone(), error)
    }
}

/// End of the name of a journal.
const SUFFIX: &str = ".journal";

/// Returns the journal of this process in the folder of the state.
#[must_use]
pub fn own(state: &Path) -> PathBuf {
    state.join(format!("coschedule-{}{SUFFIX}", std::process::id()))
}

/// Returns the journals in the folder of the state, except that of this process.
#[must_use]
pub fn others(state: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(state) else { return Vec::new() };
    let is_journal = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("coschedule-") && name.ends_with(SUFFIX))
    };
    let own = own(state);
    entries.flatten().map(|entry| entry.path()).filter(|path| is_journal(path) && *path != own).collect()
}

/// Returns the changes in journals, which other coschedulers may have open.
#[must_use]
pub fn changes_in(journals: &[PathBuf]) -> Changes {
    let mut all = Changes::default();
    for text in journals.iter().filter_map(|path| fs::read_to_string(path).ok()) {
        all.extend(Changes::of(&text));
    }
    all
}

/// Opens a file for appending and locks it.
fn lock(path: &Path) -> Result<Flock<File>, JournalError> {
    let failed = |error| JournalError::File(path.to_owned(), error);
    // Readable by this user alone: it lists processes of others. A link that somebody else has put there is not followed.
    let mut options = File::options();
    options.create(true).append(true).read(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    match Flock::lock(options.open(path).map_err(failed)?, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(file),
        Err((_, Errno::EAGAIN)) => Err(JournalError::InUse(path.to_owned())),
        Err((_, errno)) => Err(failed(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pronto-journal-{}-{name}", std::process::id()));
        make_folder(&folder).unwrap();
        folder.join("journal")
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = path("shared").parent().unwrap().to_owned();
        check_folder(&folder).unwrap();
        check_folder(&folder.join("new")).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let fault = |folder: &Path| match make_folder(folder).and_then(|()| check_folder(folder)).unwrap_err()
        {
            JournalError::Folder(_, fault) => fault,
            other => panic!("{other}"),
        };
        assert!(matches!(fault(&folder), FolderFault::Shared));
        assert!(matches!(
            check_folder(&folder.join("no/such")),
            Err(JournalError::Folder(_, FolderFault::Missing))
        ));
        fs::write(folder.join("file"), "").unwrap();
        assert!(matches!(fault(&folder.join("file")), FolderFault::NotAFolder));
        fs::remove_dir_all(folder).unwrap();
    }

    fn before(id: u32) -> ThreadBefore {
        ThreadBefore { process: 1, thread: Identity { id, started: 5 }, nice: 3, slice_ns: None }
    }

    fn entry(id: u32) -> Entry {
        Entry::Thread(before(id))
    }

    fn threads(ids: &[u32]) -> BTreeMap<Identity, ThreadBefore> {
        ids.iter().map(|id| (before(*id).thread, before(*id))).collect()
    }

    #[test]
    fn entries_survive_their_writer() {
        let path = path("survive");
        let (mut journal, changes) = Journal::open(&path).unwrap();
        assert!(changes.is_empty());
        let group = ControlGroupBefore { file: "/x/cpu.weight".into(), text: "100".into() };
        journal.write(&entry(7)).unwrap();
        journal.write(&entry(8)).unwrap();
        journal.write(&Entry::ControlGroup(group.clone())).unwrap();
        journal.write(&Entry::Released(before(8).thread)).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::InUse(_))));
        drop(journal);
        // The writer was killed within a line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"thread\":{\"proc").unwrap();
        let (mut journal, changes) = Journal::open(&path).unwrap();
        assert_eq!(changes, Changes { threads: threads(&[7]), groups: [(group.file.clone(), group)].into() });
        // The next line is not appended to the part of one.
        journal.write(&entry(9)).unwrap();
        drop(journal);
        let (mut journal, changes) = Journal::open(&path).unwrap();
        assert_eq!(changes.threads, threads(&[7, 9]));
        // One that has left its group, and one at the end.
        journal.keep(before(7));
        let left = Changes { threads: threads(&[9]), ..Changes::default() };
        journal.clear(left).unwrap();
        journal.remove().unwrap();
        drop(journal);
        let kept = Journal::open(&path).unwrap().1.threads;
        assert_eq!(kept, threads(&[7, 9]), "the file stays while something is left");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn stale_lines_are_removed() {
        let path = path("stale");
        let (mut journal, _) = Journal::open(&path).unwrap();
        for id in 0..2_000 {
            journal.write(&entry(id)).unwrap();
        }
        let Entry::Thread(kept) = entry(1_999) else { unreachable!() };
        journal.compact(&[(kept.thread, kept)].into(), &[]).unwrap();
        journal.write(&entry(2_000)).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1.threads, threads(&[1_999, 2_000]));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_journal_that_cannot_be_written_again_stays_in_use() {
        let path = path("blocked");
        let (mut journal, _) = Journal::open(&path).unwrap();
        for id in 0..2_000 {
            journal.write(&entry(id)).unwrap();
        }
        // The name of the new file is taken, by something that cannot be removed as a file.
        let next = path.with_extension("new");
        fs::create_dir(&next).unwrap();
        journal.compact(&threads(&[1]), &[]).unwrap_err();
        journal.write(&entry(2_000)).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::InUse(_))), "it is still locked");
        fs::remove_dir(next).unwrap();
        journal.compact(&threads(&[1]), &[]).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1.threads, threads(&[1]));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}

//! Disk space of the target folder: without it, builds and tests fail in many ways.

use std::fs;
use std::path::Path;

use crate::stages::Stage;
use crate::workspace::Workspace;

/// Estimate of the bytes that all stages need, with an empty target folder and without the files of the lab. With line tables, 9.5 GB were
/// used at the end of the unit stage.
pub(crate) const ALL_STAGES: u64 = 14_000_000_000;

/// A failure with less free space than this is probably due to it.
const SHORT: u64 = 500_000_000;

/// Folders below the target folder that one stage alone uses.
const OWN_FOLDERS: &[(&str, &[&str])] = &[
    ("no-std", &["no-std"]),
    ("unit", &["tests"]),
    ("mutation", &["mutate"]),
    ("loom", &["loom"]),
    ("simulation", &["simulation", "probes"]),
    ("fuzz", &["fuzz"]),
    ("asan", &["asan"]),
];

/// Returns the number of free bytes on the disk of the target folder.
pub(crate) fn free(workspace: &Workspace) -> Option<u64> {
    free_at(&workspace.target)
}

/// Returns the number of free bytes on the disk of a folder, or of its nearest parent that exists.
fn free_at(folder: &Path) -> Option<u64> {
    let disk = folder.ancestors().find_map(|folder| nix::sys::statvfs::statvfs(folder).ok())?;
    Some(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

/// Returns a number of bytes in gigabytes.
pub(crate) fn gigabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000_000;
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

/// Returns the probable reason of a failure, if the disk is nearly full.
pub(crate) fn shortage(free: u64) -> Option<String> {
    (free < SHORT)
        .then(|| format!("the disk is nearly full ({} left): make room, and repeat", gigabytes(free)))
}

/// Removes the folders that only an ended stage uses.
pub(crate) fn remove(workspace: &Workspace, stage: &Stage) {
    let own = OWN_FOLDERS.iter().find(|(name, _)| *name == stage.name);
    for folder in own.into_iter().flat_map(|(_, folders)| *folders) {
        let folder = workspace.target.join(folder);
        if let Err(error) = fs::remove_dir_all(&folder)
            && folder.exists()
        {
            eprintln!("xtask: cannot remove {}: {error}", folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages;
    use crate::workspace::tests::workspace;

    #[test]
    fn the_space_of_a_folder_that_does_not_exist_yet_is_that_of_its_parent() {
        let there = free_at(&std::env::temp_dir()).unwrap();
        assert!(there > 0);
        assert!(free_at(&std::env::temp_dir().join("not/there")).is_some());
    }

    #[test]
    fn a_failure_on_a_full_disk_has_a_reason() {
        assert_eq!(shortage(ALL_STAGES), None);
        assert_eq!(
            shortage(99_999_999).unwrap(),
            "the disk is nearly full (0.0 GB left): make room, and repeat"
        );
        assert_eq!(gigabytes(12_345_678_901), "12.3 GB");
    }

    #[test]
    fn an_ended_stage_loses_its_folders_and_no_others() {
        assert!(OWN_FOLDERS.iter().all(|(name, _)| stages::every().any(|stage| stage.name == *name)));
        let mut workspace = workspace(&[]);
        workspace.target = std::env::temp_dir().join(format!("pronto-disk-{}", std::process::id()));
        for folder in ["asan/debug", "loom", "release"] {
            fs::create_dir_all(workspace.target.join(folder)).unwrap();
        }
        let stage = stages::every().find(|stage| stage.name == "asan").unwrap();
        remove(&workspace, stage);
        let left: Vec<_> =
            ["asan", "loom", "release"].map(|name| workspace.target.join(name).exists()).into();
        fs::remove_dir_all(&workspace.target).unwrap();
        assert_eq!(left, [false, true, true]);
    }
}

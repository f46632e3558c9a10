//! Jobs over Open MPI, started by mpirun.

mod job;

use std::path::PathBuf;
use std::process::Command;

use job::{Ended, Running, start};
use nix::sys::signal::{Signal, kill};

/// A folder for the files of one mpirun. Two runs at a time would both create the folder that Open MPI names by host and user.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pronto-jobs-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of this run");
        Self(folder)
    }

    fn start(&self, ranks: usize, arguments: &str) -> Running {
        let mut command = Command::new("mpirun.openmpi");
        command
            .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"])
            .args(["-np", &ranks.to_string(), env!("CARGO_BIN_EXE_pronto-jobs")])
            .args(arguments.split_whitespace())
            .args(["--comm", "mpi", "--json"])
            .env("TMPDIR", &self.0);
        start(&mut command)
    }

    fn run(&self, ranks: usize, arguments: &str) -> Ended {
        self.start(ranks, arguments).end()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn class_s_is_verified() {
    let folder = Folder::new("class-s");
    for job in ["is", "mg"] {
        for ranks in [1, 2, 4] {
            let ended = folder.run(ranks, &format!("{job} --class S --ranks {ranks}"));
            assert_eq!(ended.verified(ranks)["comm"], "mpi");
        }
    }
}

#[test]
fn slaves_of_both_kinds_take_part() {
    let folder = Folder::new("slaves");
    folder.run(3, "master-slave --iterations 20").verified(3);
    let ended = folder.run(4, "master-slave --iterations 20 --bytes 100000");
    let result = ended.verified(4);
    let messages: Vec<_> = (0..4).map(|rank| result["by_rank"][rank]["messages"].as_u64()).collect();
    assert_eq!(messages, [Some(60), Some(20), Some(0), Some(20)]);
}

#[test]
fn a_changed_key_or_coefficient_is_noticed() {
    let folder = Folder::new("damage");
    for job in ["is", "mg"] {
        let ended = folder.run(2, &format!("{job} --damage"));
        assert!(!ended.status.success() && ended.results[0]["verified"] == false, "{ended:?}");
    }
}

#[test]
fn an_unsupported_number_of_ranks_is_refused() {
    let folder = Folder::new("size");
    let ended = folder.run(3, "is");
    assert!(!ended.status.success() && ended.stderr.contains("must be 1, 2, 4 or 8"), "{ended:?}");
    let ended = folder.run(2, "is --ranks 4");
    assert!(ended.stderr.contains("the job has 2 ranks instead of 4"), "{ended:?}");
}

#[test]
fn a_rank_that_dies_ends_the_job() {
    let folder = Folder::new("dies");
    let mut job = folder.start(4, "mg --repeat 1000000");
    assert_eq!(job.next_result()["verified"], true);
    kill(job.descendant("OMPI_COMM_WORLD_RANK=2"), Signal::SIGKILL).unwrap();
    let ended = job.end();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("Killed") && ended.stderr.contains("rank 2"), "{}", ended.stderr);
}

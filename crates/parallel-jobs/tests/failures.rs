//! Jobs that must fail: wrong results, ranks that die, wrong arguments. Each ends, with an error that names the reason.

mod job;

use job::{jobs, run, start};
use nix::sys::signal::{Signal, kill};

#[test]
fn a_changed_key_or_coefficient_is_noticed() {
    for (job, detail) in [("is", "of 50 test ranks are right, the keys are sorted"), ("mg", "published 5.3")]
    {
        let ended = run(&mut jobs(&format!("{job} --damage --local 2 --json")));
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert_eq!(ended.results[0]["verified"], false, "{ended:?}");
        let text = ended.results[0]["detail"].as_str().unwrap();
        assert!(text.contains(detail) && !text.starts_with("50"), "{text}");
    }
}

#[test]
fn a_rank_that_dies_ends_the_job() {
    for arguments in ["mg --over shm", "is --over tcp", "master-slave --over tcp"] {
        let mut job =
            start(&mut jobs(&format!("{arguments} --liveness 3 --local 4 --repeat 1000000 --json")));
        // All ranks are connected when the first run has ended.
        assert_eq!(job.next_result()["verified"], true);
        kill(job.descendant("--rank 2"), Signal::SIGKILL).unwrap();
        let ended = job.end();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let names_it =
            |line: &str| line.starts_with("pronto-jobs: rank ") && line.contains(": rank 2 has ended");
        assert!(ended.stderr.contains("rank 2 was killed by SIGKILL"), "{}", ended.stderr);
        assert!(ended.stderr.lines().any(names_it), "{}", ended.stderr);
    }
}

#[test]
fn ranks_end_with_their_starter() {
    let mut job = start(&mut jobs("mg --local 2 --repeat 1000000 --json"));
    job.next_result();
    kill(job.pid(), Signal::SIGKILL).unwrap();
    // This returns when no rank has stdout open.
    assert_eq!(job.end().status.code(), None);
}

#[test]
fn wrong_arguments_are_refused_with_a_reason() {
    for (arguments, reason) in [
        ("is", "add --ranks N"),
        ("mg --local 3", "3 ranks: the number of ranks of mg must be 1, 2, 4 or 8"),
        ("master-slave --local 9", "9 ranks: the number of ranks must be from 1 to 8"),
        ("is --rank 2 --at shm:@a,shm:@b", "rank 2 has no address"),
        ("is --rank 0 --ranks 4 --at shm:@a,shm:@b", "the job has 2 ranks instead of 4"),
        ("is --rank 0 --at tcp:192.0.2.1:7000,tcp:192.0.2.2:7000", "unencrypted"),
    ] {
        let ended = run(&mut jobs(arguments));
        assert!(ended.status.code().is_some_and(|code| code != 0), "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(reason), "{arguments}: {}", ended.stderr);
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_says_how_to_get_it() {
    let ended = run(&mut jobs("is --comm mpi"));
    assert!(ended.stderr.contains("--features mpi"), "{ended:?}");
}

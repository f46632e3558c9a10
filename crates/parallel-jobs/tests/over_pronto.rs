//! Jobs over Pronto in processes of their own: results, wait policies, the modes of the program.

mod job;

use job::{jobs, run, start};
use nix::sys::signal::{Signal, kill};

/// Returns a counter of each rank.
fn counts(result: &serde_json::Value, name: &str) -> Vec<u64> {
    let ranks = result["by_rank"].as_array().expect("a list");
    ranks.iter().map(|rank| rank[name].as_u64().expect("a count")).collect()
}

#[test]
fn class_s_is_verified_over_both_transports() {
    for (job, transport) in [("is", "shm"), ("is", "tcp"), ("mg", "shm"), ("mg", "tcp")] {
        for ranks in [1, 2, 4] {
            let arguments = format!("{job} --class S --local {ranks} --over {transport} --json");
            let ended = run(&mut jobs(&arguments));
            let result = ended.verified(ranks);
            assert_eq!(result["transport"], transport);
            let messages = counts(result, "messages");
            assert!(messages.iter().all(|count| (*count > 0) == (ranks > 1)), "{arguments}: {messages:?}");
        }
    }
}

#[test]
fn eight_ranks_are_verified() {
    for job in ["is", "mg"] {
        run(&mut jobs(&format!("{job} --local 8 --json"))).verified(8);
    }
}

#[test]
fn every_wait_policy_works() {
    for wait in ["spin", "block", "adaptive"] {
        let ended = run(&mut jobs(&format!("mg --local 2 --wait {wait} --json")));
        assert_eq!(ended.verified(2)["wait"], wait);
    }
}

#[test]
fn each_repetition_has_a_result() {
    let ended = run(&mut jobs("is --local 2 --repeat 3 --json"));
    assert!(ended.status.success(), "{ended:?}");
    let runs: Vec<_> = ended.results.iter().map(|result| result["run"].as_u64()).collect();
    assert_eq!(runs, [Some(1), Some(2), Some(3)]);
    assert!(ended.results.iter().all(|result| result["verified"] == true));
    assert_eq!(ended.stderr, "", "progress is shown on terminals only");
}

#[test]
fn ranks_can_be_started_one_by_one() {
    let at = [0, 1].map(|rank| format!("shm:@jobs-one-by-one-{}-{rank}", std::process::id())).join(",");
    let rank = |rank| start(&mut jobs(&format!("mg --rank {rank} --at {at} --json")));
    let (second, first) = (rank(1), rank(0));
    first.end().verified(2);
    let second = second.end();
    assert!(second.status.success() && second.results.is_empty(), "{second:?}");
}

#[test]
fn slaves_of_both_kinds_take_part() {
    let ended = run(&mut jobs("master-slave --iterations 20 --bytes 4096 --units 2 --local 4 --json"));
    let result = ended.verified(4);
    // The master sends to each slave, and slaves 1 and 3 reply. A reduction of two rounds verifies the values.
    assert_eq!(counts(result, "messages"), [62, 22, 2, 22]);
    assert_eq!(result["work"], 20.0);
    // The paper's number of ranks.
    run(&mut jobs("master-slave --iterations 20 --local 7 --json")).verified(7);
}

#[test]
fn calcula_counts_units() {
    let ended = run(&mut jobs("calcula --units 5 --json"));
    assert_eq!(ended.verified(1)["work"], 5.0);
}

#[test]
fn calcula_ends_at_a_signal() {
    let calcula = start(&mut jobs("calcula --json"));
    // The signal is blocked before the work begins, which takes CPU time.
    let stat = format!("/proc/{}/status", calcula.pid());
    let blocks = || {
        let text = std::fs::read_to_string(&stat).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a line");
        u64::from_str_radix(line.trim(), 16).expect("a mask") & 1 << (Signal::SIGTERM as i32 - 1) != 0
    };
    while !blocks() {
        std::thread::yield_now();
    }
    kill(calcula.pid(), Signal::SIGTERM).expect("it runs");
    calcula.end().verified(1);
}

//! Nodes with a boost, on a stock kernel with the module. Threads that handle messages are scheduled as their tier requires, over
//! shared memory and TCP, inline and on the pool.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::poll::{PollTimeout, poll};
use pronto::{Boost, Message, Node, Peer, WaitPolicy};

/// Number of calls. Only a handler that begins within the boost's slice observes the boost.
const TRIES: u32 = 200;

#[derive(Message)]
#[message(name = "boost.ask", reply = Scheduled)]
struct Ask {}

#[derive(Message)]
#[message(name = "boost.ask_pool", reply = Scheduled)]
struct AskPool {}

/// Scheduling policy of the handler's thread, as in `/proc`: 0 ordinary, 1 FIFO.
#[derive(Message, Debug, PartialEq, Eq)]
#[message(name = "boost.scheduled")]
struct Scheduled {
    policy: u32,
}

fn scheduled() -> Scheduled {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    // The policy is field 41 of stat(5); the state, first here, is field 3.
    Scheduled { policy: after_name.split(' ').nth(41 - 3).unwrap().parse().unwrap() }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn load_module() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let module = target.join("lab-modules").join(release.trim()).join("expedite/expedite.ko");
    run(Command::new("insmod").arg(module).args([
        "slice_us=5000",
        "thread_percent=100",
        "user_percent=100",
        "cpu_percent=100",
    ]));
}

/// Makes calls after pauses in which the node falls asleep. Returns whether an inline and a pooled handler had `policy`.
fn until(peer: &Peer, policy: u32) -> (bool, bool) {
    let pause = || poll(&mut [], PollTimeout::from(5_u8)).unwrap();
    let inline = (0..TRIES).any(|_| {
        pause();
        peer.call(&Ask {}).unwrap().policy == policy
    });
    let pooled = (0..TRIES).any(|_| {
        pause();
        peer.call(&AskPool {}).unwrap().policy == policy
    });
    (inline, pooled)
}

fn check(boost: Boost, status: &str, policy: u32) {
    for address in ["shm:@lab-boost", "tcp:127.0.0.1:0"] {
        let server = Node::builder(1)
            .boost(boost)
            // A node whose threads may be real-time ignores this policy and does not poll.
            .wait(WaitPolicy::Spin)
            .listen(address)
            .handle_inline(|_, _: Ask| scheduled())
            .handle(|_, _: AskPool| scheduled())
            .start()
            .unwrap();
        let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &server.listening()[0].to_string());
        let client = client.start().unwrap();
        let peer = client.wait_for_peer(1, Duration::from_secs(20)).unwrap();
        assert_eq!(until(&peer, policy), (true, true), "{boost:?} {address}: {}", server.status().boost);
        let boost = server.status().boost;
        assert!(boost.starts_with(status) && !boost.contains("without it"), "{address}: {boost}");
    }
}

/// Shows: operations.tier-status, operations.no-boost, operations.module-threads
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn handlers_are_scheduled_as_their_tier_requires() {
    check(Boost::None, "none", 0);
    check(Boost::Fifo, "fifo", 1);
    check(Boost::Auto, "fifo (module: the module expedite is not loaded)", 1);
    load_module();
    check(Boost::Module, "module", 1);
    check(Boost::Auto, "module", 1);
    run(Command::new("rmmod").arg("expedite"));
}

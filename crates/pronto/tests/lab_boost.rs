//! Nodes with a boost, on a stock kernel with the module. Threads that handle messages are scheduled as their tier requires, over
//! shared memory, TCP and RDMA, inline and on the pool.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::fs;
use std::process::Command;

use nix::poll::{PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use pronto::{Boost, Message, Node, Peer, Rdma, WaitPolicy};
use pronto_lab_module::Absent;

/// Parameters of the module: budgets that are never spent, and the longest slices.
const GENEROUS: &[&str] = &["slice_us=5000", "thread_percent=100", "user_percent=100", "cpu_percent=100"];

/// Number of calls. Only a handler that begins within the boost's slice observes the boost.
const TRIES: u32 = 200;

#[derive(Message)]
#[message(name = "boost.ask", reply = Scheduled)]
struct Ask {}

#[derive(Message)]
#[message(name = "boost.ask_pool", reply = Scheduled)]
struct AskPool {}

/// Scheduling policy of the handler's thread, as in `/proc`: 0 ordinary, 1 FIFO (the tier of that name), 2 RR (the module).
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

/// Runs `work`, in the network namespace of a node of the lab if there is one. Threads that it starts stay there.
fn within<T: Send>(node: Option<&str>, work: impl FnOnce() -> T + Send) -> T {
    let work = move || {
        if let Some(node) = node {
            let namespace = fs::File::open(format!("/run/netns/{node}")).unwrap();
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn check(boost: Boost, status: &str, policy: u32) {
    // The last address is that of the first node of the lab. Its link to the second one goes over RDMA.
    for address in ["shm:@lab-boost", "tcp:127.0.0.1:0", "tcp:10.77.0.1:7701"] {
        let is_remote = address.contains("10.77");
        if is_remote && !cfg!(feature = "verbs") {
            println!(
                "skipped: RDMA: the tests were built without the feature `verbs`, which the daemon enables"
            );
            continue;
        }
        let of = |id| {
            let node = Node::builder(id).rdma(if is_remote { Rdma::Require } else { Rdma::Auto });
            if is_remote { node.plaintext_i_understand() } else { node }
        };
        let server = of(1)
            .boost(boost)
            // A node whose threads may be real-time ignores this policy and does not poll.
            .wait(WaitPolicy::Spin)
            .listen(address)
            .handle_inline(|_, _: Ask| scheduled())
            .handle(|_, _: AskPool| scheduled());
        let server = within(is_remote.then_some("n0"), || server.start().unwrap());
        let client = of(2).wait(WaitPolicy::Block).peer(1, &server.listening()[0].to_string());
        let client = within(is_remote.then_some("n1"), || client.start().unwrap());
        let peer = client.wait_for_peer(1, Duration::from_secs(20)).unwrap();
        assert_eq!(until(&peer, policy), (true, true), "{boost:?} {address}: {}", server.status().boost);
        let provider = client.status().peers[0].info.map(|info| info.provider.to_string());
        assert_eq!(provider.as_deref() == Some("verbs"), is_remote, "{address}: {provider:?}");
        let boost = server.status().boost;
        assert!(boost.starts_with(status) && !boost.contains("without it"), "{address}: {boost}");
    }
}

/// Shows: operations.tier-status, operations.no-boost, operations.module-threads
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn handlers_are_scheduled_as_their_tier_requires() {
    let absent = Absent::hold();
    check(Boost::None, "none", 0);
    check(Boost::Fifo, "fifo", 1);
    check(Boost::Auto, "fifo (module: the module expedite is not loaded", 1);
    let _module = absent.load(GENEROUS);
    check(Boost::Module, "module", 2);
    check(Boost::Auto, "module", 2);
}

/// Shows: operations.module-in-use
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_module_stays_while_a_node_uses_it() {
    let absent = Absent::hold();
    let start =
        |id: u16| Node::builder(id).boost(Boost::Module).listen(&format!("shm:@lab-boost-{id}")).start();
    let early = start(1).unwrap();
    let module = absent.load(&[]);
    let late = start(2).unwrap();
    let refused = Command::new("rmmod").arg("expedite").output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
    assert_eq!(late.status().boost, "module");
    let boost = early.status().boost;
    assert!(boost.starts_with("none (module: the module expedite is not loaded"), "{boost}");
    drop(late);
    // This unloads the module, although a node runs that has asked for it.
    drop(module);
}

//! Threads that share a CPU with a serving thread that always polls.

mod affinity;

use core::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use pronto::{Node, Peer, WaitPolicy};

use affinity::bind_to_one_cpu;

const TIMEOUT: Duration = Duration::from_secs(10);
const TAG: u64 = 7;
/// Receives that are posted and cancelled, one after another.
const POSTS: u64 = 40;
/// Bound on context switches per post: one yield before each post, and one to the holder of the engine lock. Without that yield
/// it would take about 6 switches over shared memory and 50 over TCP, and hundreds in optimized builds.
const SWITCHES_PER_POST: u64 = 4;
/// Bound on the CPU time of this process per post. If the thread did not yield to the holder of the engine lock, each post over TCP would
/// take whole time slices of both threads, about 200 ms.
const CPU_TIME_PER_POST: Duration = Duration::from_millis(20);
/// Rounds of posts, of which the one with the fewest switches counts: on a busy machine the CPU also goes to other processes.
const ROUNDS: u32 = 6;
/// Time for which the test waits for a receive without a message.
const NOTHING_COMES: Duration = Duration::from_millis(200);

/// Returns the number of times that the CPU was given to another thread while this thread was runnable.
fn switches() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the call is permitted");
    u64::try_from(usage.involuntary_context_switches()).expect("the count is not negative")
}

/// Returns the CPU time of this thread, or of the whole process.
fn ran(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("the call is permitted");
    let part = |time: TimeVal| {
        Duration::from_micros(u64::try_from(time.num_microseconds()).expect("the count is not negative"))
    };
    part(usage.user_time()) + part(usage.system_time())
}

/// Returns an address to listen at for each transport.
fn addresses(name: &str) -> [String; 2] {
    [format!("shm:@pronto-test-one-cpu-{name}-{}", std::process::id()), "tcp:127.0.0.1:0".into()]
}

/// Starts a node elsewhere, and a node whose serving thread polls on this thread's CPU. Returns both and the peer handle.
fn node_polling_on_this_cpu(listen: &str) -> (Node, Node, Peer) {
    let other = Node::builder(721).wait(WaitPolicy::Block).listen(listen);
    let other = other.start().expect("the node starts");
    let address = other.listening()[0].to_string();
    bind_to_one_cpu();
    let here =
        Node::builder(722).wait(WaitPolicy::Spin).peer(721, &address).start().expect("the node starts");
    let peer = here.wait_for_peer(721, TIMEOUT).expect("the nodes connect").waiting(WaitPolicy::Block);
    (other, here, peer)
}

#[test]
fn a_receive_is_posted_while_a_serving_thread_polls_on_the_same_cpu() {
    for listen in addresses("post") {
        let at = listen.clone();
        let counted = std::thread::spawn(move || {
            let (_other, here, peer) = node_polling_on_this_cpu(&at);
            let memory = here.region(4096).expect("there is memory");
            let round = || {
                let before = (switches(), ran(UsageWho::RUSAGE_SELF));
                for _ in 0..POSTS {
                    // The serving thread is in the middle of a poll batch when this thread continues.
                    std::thread::yield_now();
                    let mut posted = peer.post(TAG, &memory, 0..4096).expect("the receive is posted");
                    posted.cancel();
                    posted.wait(TIMEOUT).expect_err("the receive was cancelled");
                }
                (switches() - before.0, ran(UsageWho::RUSAGE_SELF) - before.1)
            };
            let (switches, times): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| round()).unzip();
            switches.into_iter().min().zip(times.into_iter().min()).expect("there are rounds")
        });
        let (switches, ran) = counted.join().expect("the thread does not panic");
        assert!(
            switches <= POSTS * SWITCHES_PER_POST,
            "{listen}: {switches} context switches for {POSTS} receives"
        );
        assert!(
            ran.as_micros() <= u128::from(POSTS) * CPU_TIME_PER_POST.as_micros(),
            "{listen}: {ran:?} of CPU time for {POSTS} receives"
        );
    }
}

#[test]
fn a_blocking_wait_sleeps_while_a_serving_thread_polls_on_the_same_cpu() {
    for listen in addresses("wait") {
        let at = listen.clone();
        let waited = std::thread::spawn(move || {
            let (_other, here, peer) = node_polling_on_this_cpu(&at);
            let memory = here.region(4096).expect("there is memory");
            let mut posted = peer.post(TAG, &memory, 0..4096).expect("the receive is posted");
            let before = ran(UsageWho::RUSAGE_THREAD);
            posted.wait(NOTHING_COMES).expect_err("no message arrives");
            ran(UsageWho::RUSAGE_THREAD) - before
        });
        let ran = waited.join().expect("the thread does not panic");
        assert!(
            ran <= NOTHING_COMES / 10,
            "{listen}: the waiting thread ran for {ran:?} of {NOTHING_COMES:?}"
        );
    }
}

/// Only one of the two threads can move the message at a time. The receiver's thread would also receive messages that only the serving
/// thread may handle, so it must leave the work to the serving thread.
#[test]
fn a_long_message_is_left_to_a_serving_thread_that_polls_on_the_same_cpu() {
    const LEN: usize = 32 << 20;
    for listen in addresses("long") {
        let at = listen.clone();
        let waited = std::thread::spawn(move || {
            let (other, here, peer) = node_polling_on_this_cpu(&at);
            let (theirs, memory) = (other.region(LEN), here.region(LEN));
            let (theirs, memory) = (theirs.expect("there is memory"), memory.expect("there is memory"));
            let back = other.wait_for_peer(722, TIMEOUT).expect("the nodes connect");
            let mut posted = peer.post(TAG, &memory, 0..LEN as u64).expect("the receive is posted");
            std::thread::scope(|scope| {
                let whose = [UsageWho::RUSAGE_THREAD, UsageWho::RUSAGE_SELF];
                let before = whose.map(ran);
                scope.spawn(|| {
                    back.send(TAG, &theirs, 0..LEN as u64, TIMEOUT).expect("the message is received")
                });
                assert_eq!(posted.wait(TIMEOUT), Ok(LEN as u64));
                whose.map(ran).into_iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>()
            })
        });
        let ran = waited.join().expect("the thread does not panic");
        assert!(ran[0] <= ran[1] / 10, "{listen}: the waiting thread ran for {:?} of {:?}", ran[0], ran[1]);
    }
}

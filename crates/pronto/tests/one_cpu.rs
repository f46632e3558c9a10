//! Threads that share a processor with a serving thread that polls all the time.

mod cpu;

use core::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use pronto::{Node, Peer, WaitPolicy};

use cpu::on_one_processor;

const PATIENCE: Duration = Duration::from_secs(10);
const TAG: u64 = 7;
/// Receives that are posted and cancelled, one after another.
const POSTS: u64 = 40;
/// Once before each post the processor is given away, and once to who has the engine. By chance alone it would take 6 turns over shared
/// memory, and 50 over TCP; with optimization hundreds.
const TURNS_PER_POST: u64 = 4;
/// How long a receive is waited for.
const NOTHING_COMES: Duration = Duration::from_millis(200);

/// How often the processor was given to somebody else while this thread could go on.
fn turns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("it may be asked for");
    u64::try_from(usage.involuntary_context_switches()).expect("it counts up")
}

/// How long this thread has run, or the whole process.
fn ran(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("it may be asked for");
    let part =
        |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).expect("it counts up"));
    part(usage.user_time()) + part(usage.system_time())
}

/// A node whose serving thread polls on this thread's processor, a peer of it, and a node elsewhere.
fn beside_who_polls(listen: &str) -> (Node, Node, Peer) {
    let other = Node::builder(721).wait(WaitPolicy::Block).listen(listen);
    let other = other.start().expect("the other starts");
    let address = other.listening()[0].to_string();
    on_one_processor();
    let here = Node::builder(722).wait(WaitPolicy::Spin).peer(721, &address).start().expect("it starts");
    let peer = here.wait_for_peer(721, PATIENCE).expect("they meet").waiting(WaitPolicy::Block);
    (other, here, peer)
}

#[test]
fn a_receive_is_posted_past_a_serving_thread_that_polls_on_the_same_processor() {
    for listen in ["shm:@pronto-test-one-processor", "tcp:127.0.0.1:0"] {
        let counted = std::thread::spawn(move || {
            let (_other, here, peer) = beside_who_polls(listen);
            let memory = here.region(4096).expect("there is memory");
            let before = turns();
            for _ in 0..POSTS {
                // The other one is somewhere among its looks when this thread goes on.
                std::thread::yield_now();
                let mut posted = peer.post(TAG, &memory, 0..4096).expect("it is taken");
                posted.cancel();
                posted.wait(PATIENCE).expect_err("it was cancelled");
            }
            turns() - before
        });
        let turns = counted.join().expect("it does not panic");
        assert!(turns <= POSTS * TURNS_PER_POST, "{listen}: {turns} turns for {POSTS} receives");
    }
}

#[test]
fn a_wait_that_sleeps_does_so_beside_a_serving_thread_that_polls_on_the_same_processor() {
    for listen in ["shm:@pronto-test-one-processor-wait", "tcp:127.0.0.1:0"] {
        let waited = std::thread::spawn(move || {
            let (_other, here, peer) = beside_who_polls(listen);
            let memory = here.region(4096).expect("there is memory");
            let mut posted = peer.post(TAG, &memory, 0..4096).expect("it is taken");
            let before = ran(UsageWho::RUSAGE_THREAD);
            posted.wait(NOTHING_COMES).expect_err("nothing is sent");
            ran(UsageWho::RUSAGE_THREAD) - before
        });
        let ran = waited.join().expect("it does not panic");
        assert!(ran <= NOTHING_COMES / 10, "{listen}: it ran for {ran:?} of {NOTHING_COMES:?}");
    }
}

/// Of the two threads, one at a time can move the message; the one that the receiver waits with would take in what only the other one
/// may handle.
#[test]
fn a_long_message_is_left_to_a_serving_thread_that_polls_on_the_same_processor() {
    const LEN: usize = 32 << 20;
    for listen in ["shm:@pronto-test-one-processor-long", "tcp:127.0.0.1:0"] {
        let waited = std::thread::spawn(move || {
            let (other, here, peer) = beside_who_polls(listen);
            let (theirs, memory) = (other.region(LEN), here.region(LEN));
            let (theirs, memory) = (theirs.expect("there is memory"), memory.expect("there is memory"));
            let back = other.wait_for_peer(722, PATIENCE).expect("they meet");
            let mut posted = peer.post(TAG, &memory, 0..LEN as u64).expect("it is taken");
            std::thread::scope(|scope| {
                let whose = [UsageWho::RUSAGE_THREAD, UsageWho::RUSAGE_SELF];
                let before = whose.map(ran);
                scope.spawn(|| back.send(TAG, &theirs, 0..LEN as u64, PATIENCE).expect("it is received"));
                assert_eq!(posted.wait(PATIENCE), Ok(LEN as u64));
                whose.map(ran).into_iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>()
            })
        });
        let ran = waited.join().expect("it does not panic");
        assert!(ran[0] <= ran[1] / 10, "{listen}: it ran for {:?} of {:?}", ran[0], ran[1]);
    }
}

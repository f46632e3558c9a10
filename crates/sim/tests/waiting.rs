//! Nodes with several threads that call and wait: every call ends once with the right result, and no thread sleeps although something is
//! there for it. These stories need a switch point at every atomic operation: without, time does not pass for a thread that retries.
#![cfg(simulated)]

use pronto_core::Nanos;
use pronto_core::executor::WaitPolicy;
use pronto_core::session::Limits;
use pronto_sim::Span;
use pronto_sim::scenario::for_each_seed_or_soak;
use pronto_sim::threads::{Mix, Story};
use pronto_sync::atomic::{AtomicU64, Ordering};

/// Tells a story for each seed. Returns the sum over all seeds of a number of its result.
fn tell(
    seeds: u64,
    story: impl Fn(u64) -> Story + Sync,
    number: impl Fn(&pronto_sim::threads::Ending) -> u64 + Sync,
) -> u64 {
    let sum = AtomicU64::new(0);
    for_each_seed_or_soak(seeds, 20 * seeds, |seed| {
        let ending = story(seed).run();
        sum.fetch_add(number(&ending), Ordering::Relaxed);
        ending.hash
    });
    sum.load(Ordering::Relaxed)
}

#[test]
fn threads_that_call_and_wait_all_get_their_ends() {
    let handovers = tell(250, Story::new, |ending| ending.handovers);
    assert!(handovers != 0, "a poller has handed its role over");
}

#[test]
fn the_first_calls_are_refused_or_made_while_the_links_come_up() {
    let story = |seed| Story { callers: 4, steps: 2, ..Story::new(seed) };
    let calls = tell(400, story, |ending| ending.tally.calls);
    assert!(calls != 0);
}

#[test]
fn sleeping_callers_hand_the_poller_role_over() {
    let mix = Mix { steps: [8, 2, 2, 0, 0, 0, 0, 1], policies: [0, 1, 0], ..Mix::all() };
    let story = |seed| Story { callers: 4, mix, ..Story::new(seed) };
    let handovers = tell(150, story, |ending| ending.handovers);
    assert!(handovers != 0, "a sleeping poller has handed its role over");
}

#[test]
fn sleeping_callers_rely_on_a_spinning_serving_thread() {
    let mix = Mix { policies: [0, 2, 1], ..Mix::all() };
    let story = |seed| Story { serving: Some(WaitPolicy::Spin), override_one_in: 3, mix, ..Story::new(seed) };
    let replies = tell(150, story, |ending| ending.tally.replies);
    assert!(replies != 0);
}

#[test]
fn senders_wait_for_room() {
    let mix = Mix { steps: [2, 0, 2, 1, 8, 2, 0, 0], ..Mix::all() };
    let story = |seed| {
        let limits = Limits {
            requests: [1 + u16::try_from(seed % 2).expect("below two"), 1],
            ..Story::new(seed).limits
        };
        Story { limits, mix, ..Story::new(seed) }
    };
    let notices = tell(150, story, |ending| ending.tally.notices_arrived);
    assert!(notices != 0);
}

/// Tasks and threads compete for few call slots and credits. A task sleeps until it is woken for room.
#[test]
fn tasks_wait_for_room_in_a_queue() {
    let mix = Mix { steps: [2, 1, 1, 8, 3, 0, 0, 0], deadline_one_in: 20, ..Mix::all() };
    let story = |seed| {
        let few = |most: u64| 1 + u16::try_from(seed % most).expect("below the most");
        let limits = Limits { calls: few(3), requests: [few(2), 1], ..Story::new(seed).limits };
        Story { limits, callers: 4, mix, ..Story::new(seed) }
    };
    let replies = tell(150, story, |ending| ending.tally.replies);
    assert!(replies != 0);
}

#[test]
fn five_nodes_call_each_other() {
    let story = |seed| Story { nodes: 5, callers: 2, steps: 8, ..Story::new(seed) };
    let replies = tell(40, story, |ending| ending.tally.replies);
    assert!(replies != 0);
}

#[test]
fn waits_end_when_a_thread_panics_in_the_engine() {
    let story = |seed| Story { panic_one_in: 30, ..Story::new(seed) };
    let failures = tell(60, story, |ending| ending.failures);
    assert!(failures != 0);
}

/// A story in which links are lost.
fn cut(seed: u64) -> Story {
    Story::new(seed).with_cuts(Nanos::from_millis(1), Nanos::from_millis(8))
}

#[test]
fn waits_survive_the_loss_of_links() {
    let resumed = tell(60, cut, |ending| ending.resumed);
    assert!(resumed != 0);
}

/// A queue pair fails, which flushes its messages, and is closed later. In between a sender composes another message, while the peer reads
/// a flushed one in place.
#[test]
fn memory_of_flushed_messages_is_not_lent_again() {
    let ending = cut(546).run();
    assert!(ending.tally.calls != 0);
}

#[test]
fn the_safety_net_ends_sleeps_whose_event_is_lost() {
    let mix = Mix { policies: [0, 1, 0], ..Mix::all() };
    let story = |seed| Story { lost_event_one_in: 12, steps: 8, mix, ..Story::new(seed) };
    let lost = tell(40, story, |ending| ending.lost_wake_ups);
    assert!(lost != 0, "an event was lost, and counted");
}

/// A story in which followers sleep for a long time.
fn long_sleeps(seed: u64) -> Story {
    let work = Span::micros(1_000, 9_000);
    let mix =
        Mix { steps: [8, 0, 2, 0, 0, 0, 0, 0], policies: [0, 1, 0], laned_one_in: 1, work, ..Mix::all() };
    Story { callers: 5, steps: 6, mix, ..Story::new(seed) }
}

#[test]
fn followers_sleep_longer_than_the_safety_net_timeout() {
    let handovers = tell(20, long_sleeps, |ending| ending.handovers);
    assert!(handovers != 0);
}

/// A follower's sleep reaches its limit when its call has ended, and before the thread that has ended it wakes the follower.
#[test]
fn a_wake_up_that_comes_a_little_later_than_a_followers_limit_is_not_lost() {
    let ending = long_sleeps(97).run();
    assert_eq!(ending.lost_wake_ups, 0);
}

/// A serving thread leaves idle peers armed. A thread that leaves work for such a peer rouses it.
#[test]
fn nobody_waits_for_a_peer_that_rests() {
    let mix = Mix { policies: [1, 4, 1], ..Mix::all() };
    let story = |seed| {
        let nodes = 2 + usize::try_from(seed % 3).expect("below three");
        let story = Story { nodes, callers: 2, steps: 10, mix, resting: true, ..Story::new(seed) };
        if seed % 4 == 0 { story.with_cuts(Nanos::from_millis(1), Nanos::from_millis(8)) } else { story }
    };
    let rests = tell(150, story, |ending| ending.rests);
    assert!(rests != 0, "a peer has begun to rest");
}

/// A caller sends streams of notifications, whose doorbells are held, to peers that rest. The serving thread rings what the caller leaves.
#[test]
fn held_notifications_leave_although_their_peer_rests() {
    let mix = Mix { steps: [1, 0, 0, 0, 6, 0, 0, 4], notices: 24, long_one_in: 0, ..Mix::all() };
    let story = |seed| {
        let story = Story::new(seed);
        let limits = Limits { requests: [64, 56], ..story.limits };
        Story { callers: 1, steps: 10, mix, limits, resting: true, operation: Some(Nanos(2)), ..story }
    };
    let held = tell(60, story, |ending| ending.held);
    assert!(held != 0, "a notification was held");
}

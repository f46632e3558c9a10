//! Adaptive waits with a wait history or a hint: as fast as polling if messages come soon, as cheap as sleeping if they
//! come late.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::{Cluster, Knows, Options};
use pronto_sched_sim::link::Link;
use pronto_sched_sim::program::{From, Op, Program, Step, Wait, WaitRequest};
use pronto_sched_sim::record::Record;
use pronto_sched_sim::scheduler::eevdf::{Eevdf, Preemption};
use pronto_sched_sim::task::TaskOptions;
use pronto_sched_sim::workload::ping_pong::{self, PORT, Ponger, ROUND_TRIP};

const WAKE_UP: Nanos = Nanos::from_micros(20);
const CALLS: u32 = 300;

/// Calls, and sleeps from call to call.
#[derive(Debug)]
struct Caller {
    wait: WaitRequest,
    /// Gaps between calls, with the number of repetitions of each.
    gaps: Vec<(u32, Nanos)>,
    called: Option<Nanos>,
    rests: bool,
}

impl Caller {
    /// Of this call and what comes after it.
    fn next_gap(&mut self) -> Option<Nanos> {
        let (left, gap) = self.gaps.iter_mut().find(|(left, _)| *left != 0)?;
        *left -= 1;
        Some(*gap)
    }
}

impl Program for Caller {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        if core::mem::take(&mut self.rests) {
            return match self.next_gap() {
                None => Op::Exit,
                // A caller with a short gap has no time to sleep.
                Some(gap) if gap < WAKE_UP => Op::Compute(gap),
                Some(gap) => Op::Sleep(gap),
            };
        }
        match self.called {
            None => {
                self.called = Some(step.now);
                let last = self.gaps.iter().all(|(left, _)| *left == 0);
                Op::Send { port: PORT, bytes: 32, tag: u64::from(last) }
            }
            Some(at) if step.received.is_some() => {
                let value = step.now.since(at).0;
                step.records.add(Record { at: step.now, task: step.me, series: ROUND_TRIP, value });
                (self.called, self.rests) = (None, true);
                self.next(step)
            }
            Some(_) => Op::Receive { from: From::Port(PORT), wait: self.wait },
        }
    }
}

/// Measurements of calls.
#[derive(Clone, Debug)]
struct Seen {
    /// Of all round trips, nanoseconds, in their order.
    round_trips: Vec<u64>,
    /// CPU time of caller and service.
    ran: [u64; 2],
}

impl Seen {
    fn middle(&self) -> u64 {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }
}

/// Runs a caller and a service with a CPU each, and no other task. Handling a call takes `handling`.
fn run(wait: WaitRequest, gaps: &[(u32, Nanos)], handling: Nanos) -> Seen {
    let link = Link { latency: Nanos::from_micros(1), bandwidth: 10_000_000_000 / 8, ..Link::ETHERNET_100 };
    let switch = Nanos::from_micros(2);
    let options = Options { link, switch, wake_up: WAKE_UP, knows: Knows::Nothing, ..Options::standard(3) };
    let mut cluster = Cluster::new(options);
    let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Eevdf::new(1, Preemption::Lazy))));
    let service = ping_pong::Options {
        bytes: 32,
        pause: Nanos::ZERO,
        handling,
        extra: Nanos::ZERO,
        wait: wait.preference,
        pings: u32::MAX,
    };
    let caller = Caller { wait, gaps: gaps.to_vec(), called: None, rests: false };
    let caller = cluster.spawn(nodes[0], TaskOptions::default(), Box::new(caller));
    let service = cluster.spawn(nodes[1], TaskOptions::default(), Box::new(Ponger::new(service, PORT)));
    cluster.connect(caller, service);
    while cluster.task(caller).usage().ended.is_none() {
        assert!(cluster.now() < Nanos::from_millis(400_000), "it ends");
        cluster.run_until(cluster.now().after(Nanos::from_millis(100)));
    }
    let ran = [caller, service].map(|task| cluster.task(task).usage().ran.0);
    Seen { round_trips: cluster.records().of(caller, ROUND_TRIP).collect(), ran }
}

const SHORT: Nanos = Nanos::from_micros(2);
const HANDLING: Nanos = Nanos::from_micros(3);
const FAR: Nanos = Nanos::from_millis(5);

fn all_alike(wait: Wait, gap: Nanos) -> Seen {
    run(wait.into(), &[(CALLS, gap)], HANDLING)
}

#[test]
fn calls_that_come_soon_are_as_fast_as_polled_ones() {
    let [spin, adaptive] = [Wait::Spin, Wait::Adaptive].map(|wait| all_alike(wait, SHORT));
    assert_eq!(adaptive.middle(), spin.middle());
}

#[test]
fn late_calls_cost_the_service_as_much_as_sleeping() {
    let [block, adaptive] = [Wait::Block, Wait::Adaptive].map(|wait| all_alike(wait, FAR));
    let more = adaptive.ran[1] - block.ran[1];
    // Polls before each sleep would be 20 us for each call.
    assert!(more < u64::from(CALLS) * WAKE_UP.0 / 4, "{more} ns more");
    assert!(adaptive.middle() <= block.middle());
}

#[test]
fn the_history_of_late_calls_is_forgotten_within_some_calls() {
    let soon_again = [(CALLS, FAR), (CALLS, SHORT)];
    let [spin, adaptive] = [Wait::Spin, Wait::Adaptive].map(|wait| run(wait.into(), &soon_again, HANDLING));
    let tail = |seen: &Seen| seen.round_trips[seen.round_trips.len() - 200..].to_vec();
    assert_eq!(tail(&adaptive), tail(&spin), "after a hundred calls nothing tells them apart");
}

#[test]
fn a_caller_that_expects_a_late_reply_does_not_poll() {
    let slow = Nanos::from_micros(100);
    let calls = [(CALLS, SHORT)];
    let usual = WaitRequest::from(Wait::Adaptive);
    let asked = |expected: Option<Nanos>| expected.map_or(usual, |expected| usual.expecting(expected));
    let [usual, late, soon] =
        [None, Some(slow), Some(Nanos::ZERO)].map(|expected| run(asked(expected), &calls, slow).ran[0]);
    let block = run(Wait::Block.into(), &calls, slow).ran[0];
    assert_eq!(late, block, "it sleeps immediately");
    let polls = u64::from(CALLS) * WAKE_UP.0;
    assert!(usual - late >= polls, "answers after a few wake-ups are polled for: {usual} by {late}");
    let longer = usual - soon;
    assert!(longer <= 2 * WAKE_UP.0, "it learns on the way past waits of about one wake-up: {longer} ns");
}

#[test]
fn replies_that_always_take_long_are_not_polled_for() {
    let slow = Nanos::from_millis(2);
    let calls = [(CALLS, SHORT)];
    let [block, adaptive] = [Wait::Block, Wait::Adaptive].map(|wait| run(wait.into(), &calls, slow).ran[0]);
    assert!(adaptive - block < u64::from(CALLS) * WAKE_UP.0 / 4, "{adaptive} by {block}");
}

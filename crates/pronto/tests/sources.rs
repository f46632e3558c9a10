//! A program's own sources next to its peers, under every engine.

use core::time::Duration;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Instant;

use pronto::progress::{Engine, Place, Sleep, Source, Spec, Trigger};
use pronto::{Message, Nanos, Node, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicUsize, Ordering};

#[derive(Message, Debug, PartialEq)]
#[message(name = "sources.echo")]
struct Echo {
    number: u64,
}

#[derive(Message, Debug)]
#[message(name = "sources.ask", reply = Echo)]
struct Ask {
    number: u64,
}

const TIMEOUT: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "the wait is bounded")]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "timed out waiting until {what}");
        std::thread::yield_now();
    }
}

/// Source of datagrams, each of which is an event.
struct Datagrams(UnixDatagram, Arc<AtomicUsize>);

impl Source for Datagrams {
    fn poll(&mut self) -> usize {
        let mut taken = 0;
        while self.0.recv(&mut [0; 8]).is_ok() {
            taken += 1;
        }
        self.1.fetch_add(taken, Ordering::Release);
        taken
    }
}

/// Source that observes a word in memory.
struct Word(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl Source for Word {
    fn poll(&mut self) -> usize {
        let now = self.0.load(Ordering::Acquire);
        now - self.1.swap(now, Ordering::Release)
    }
}

struct Panics;

impl Source for Panics {
    fn poll(&mut self) -> usize {
        panic!("requested by the test")
    }
}

fn server(name: &str, policy: WaitPolicy, engine: Engine) -> (Node, String) {
    let address = format!("shm:@pronto-sources-{name}-{}", std::process::id());
    let node = Node::builder(1)
        .wait(policy)
        .engine(engine)
        .listen(&address)
        .handle_inline(|_, ask: Ask| Echo { number: ask.number });
    (node.start().expect("a node"), address)
}

fn client(address: &str) -> (Node, Peer) {
    let node = Node::builder(2).wait(WaitPolicy::Block).peer(1, address).start().expect("a node");
    let peer = node.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    (node, peer)
}

/// Shows: sources.source, sources.idle, sources.panics
#[test]
fn a_programs_sources_are_polled_together_with_its_peers() {
    for (name, policy) in
        [("block", WaitPolicy::Block), ("spin", WaitPolicy::Spin), ("both", WaitPolicy::Adaptive)]
    {
        let (server, address) = server(name, policy, Engine::Idle);
        let (_client, peer) = client(&address);
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (received, sent, seen): (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>) =
            Default::default();
        let socket = Spec::readable("datagrams", OwnedFd::from(theirs.try_clone().unwrap()));
        let _datagrams = server.manager().register(socket, Datagrams(theirs, Arc::clone(&received))).unwrap();
        let word = Word(Arc::clone(&sent), Arc::clone(&seen));
        let word = server.manager().register(Spec::memory("word", Sleep::Notified), word).unwrap();
        let _panics = server.manager().register(Spec::memory("bad", Sleep::Notified), Panics).unwrap();
        for number in 1..=200 {
            ours.send(b"event").unwrap();
            sent.store(number, Ordering::Release);
            word.notifier().notify();
            let asked = Ask { number: number as u64 };
            assert_eq!(peer.call(&asked).expect("a reply").number, asked.number);
            eventually("both sources were polled", || {
                received.load(Ordering::Acquire) == number && seen.load(Ordering::Acquire) == number
            });
        }
        let counters = server.manager().counters();
        assert_eq!((counters.lost_wake_ups, counters.panics), (0, 1));
        assert_eq!(server.manager().failures()[0].name, "bad");
    }
}

/// Shows: sources.timer
#[test]
fn a_timer_serves_for_a_program_that_computes() {
    let (_server, address) = server("timer", WaitPolicy::Adaptive, Engine::Timer(Nanos::from_millis(2)));
    let (_client, peer) = client(&address);
    for number in 0..20 {
        assert_eq!(peer.call(&Ask { number }).expect("a reply").number, number);
    }
}

/// Shows: sources.none
#[test]
fn without_an_engine_a_node_serves_only_when_its_program_calls_progress() {
    let (server, address) = server("none", WaitPolicy::Adaptive, Engine::None);
    let (_client, peer) = client(&address);
    // Messages that arrive before the link is established are processed together with it.
    server.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    let pending = peer.start(&Ask { number: 5 }).expect("a call slot is free");
    let mut pending = Some(pending);
    // These yields must not run the handler. Their number is small, because on a busy machine each takes long, and no thread checks the
    // peers' liveness meanwhile.
    for _ in 0..50 {
        std::thread::yield_now();
    }
    assert!(pending.as_mut().unwrap().poll().is_none(), "no thread may have processed the request");
    let reply = std::thread::scope(|scope| {
        let waits = scope.spawn(|| pending.take().unwrap().wait());
        while !waits.is_finished() {
            server.progress();
        }
        waits.join().unwrap()
    });
    assert_eq!(reply.expect("a reply").number, 5);
}

/// Shows: sources.spare, sources.stops
#[test]
fn a_tasklet_that_never_returns_blocks_neither_peers_nor_shutdown() {
    for engine in [Engine::Idle, Engine::Timer(Nanos::from_millis(2))] {
        let (server, address) = server("stuck", WaitPolicy::Adaptive, engine);
        let (_client, peer) = client(&address);
        let kind = server.manager().kind("stuck", &[Trigger::Idle, Trigger::Timer]).unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (released, manager) = (std::sync::Mutex::new(released), server.manager().clone());
        let tasklet = kind.tasklet(Place::Anywhere, move || {
            let released = released.lock().expect("no holder panics");
            // The test ends the tasklet after the node has ended.
            let _over = manager.may_block(|| released.recv());
        });
        tasklet.schedule();
        eventually("the spare thread has taken over", || server.manager().counters().relieved == 1);
        for number in 0..100 {
            assert_eq!(peer.call(&Ask { number }).expect("a reply").number, number);
        }
        let is_down = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(server);
                is_down.store(1, Ordering::Release);
            });
            eventually("the node ends", || is_down.load(Ordering::Acquire) == 1);
        });
        drop(release);
    }
}

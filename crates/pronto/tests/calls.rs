//! Calls between two nodes, over every transport and waiting policy.

use core::time::Duration;
use std::sync::{Arc, Barrier, Mutex, mpsc};

use nix::sys::resource::{UsageWho, getrusage};

use pronto::progress::BusyPoll;
use pronto::{CallError, CallRejection, Limits, Message, Node, NodeId, SendError, WaitPolicy};

#[derive(Message, Debug, PartialEq)]
#[message(name = "test.sum")]
struct Sum {
    total: u64,
}

#[derive(Message, Debug)]
#[message(name = "test.add", reply = Sum)]
struct Add {
    values: Vec<u64>,
}

#[derive(Message, Debug, PartialEq)]
#[message(name = "test.page", class = bulk)]
struct Page {
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "test.fetch", reply = Page)]
struct Fetch {
    len: u32,
}

/// In one class with its reply, which therefore brings its credit back.
#[derive(Message, Debug)]
#[message(name = "test.fetch.bulk", reply = Page, class = bulk)]
struct FetchBulk {
    len: u32,
}

const SOON: Duration = Duration::from_secs(10);

fn server(address: &str, policy: WaitPolicy) -> Node {
    Node::builder(1)
        .wait(policy)
        .listen(address)
        .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
        .handle(|_, fetch: Fetch| Page { bytes: vec![7; fetch.len as usize] })
        .start()
        .expect("it starts")
}

fn both(name: &str, transport: &str, policy: WaitPolicy) -> (Node, Node) {
    let listen = match transport {
        "shm" => format!("shm:@pronto-test-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let server = server(&listen, policy);
    let address = server.listening()[0].to_string();
    let client = Node::builder(2).wait(policy).peer(1, &address).start().expect("it starts");
    (server, client)
}

fn calls_of_all_sizes(name: &str, transport: &str, policy: WaitPolicy) {
    let (_server, client) = both(name, transport, policy);
    let peer = client.wait_for_peer(1, SOON).expect("it comes up");
    for len in [0_u64, 1, 4, 5, 100, 1000] {
        let sum = peer.call(&Add { values: (0..len).collect() }).expect("answered");
        assert_eq!(sum.total, (0..len).sum());
    }
    for len in [0, 35, 36, 37, 40, 41, 4096, 65_536, 1 << 20, (4 << 20) - 64] {
        let page = peer.call(&Fetch { len }).expect("answered");
        assert_eq!(page.bytes.len(), len as usize);
        assert!(page.bytes.iter().all(|byte| *byte == 7));
    }
    for _ in 0..1000 {
        assert_eq!(peer.call(&Add { values: vec![1, 2] }).expect("answered").total, 3);
    }
}

#[test]
fn shm_block() {
    calls_of_all_sizes("block", "shm", WaitPolicy::Block);
}

#[test]
fn shm_adaptive() {
    calls_of_all_sizes("adaptive", "shm", WaitPolicy::Adaptive);
}

#[test]
fn shm_spin() {
    calls_of_all_sizes("spin", "shm", WaitPolicy::Spin);
}

#[test]
fn tcp_block() {
    calls_of_all_sizes("block", "tcp", WaitPolicy::Block);
}

#[test]
fn tcp_adaptive() {
    calls_of_all_sizes("adaptive", "tcp", WaitPolicy::Adaptive);
}

#[test]
fn many_callers_share_a_peer() {
    for transport in ["shm", "tcp"] {
        let (_server, client) = both("many", transport, WaitPolicy::Block);
        let peer = client.wait_for_peer(1, SOON).expect("it comes up");
        let caller = |i: u64| {
            let peer = peer.clone();
            move || {
                for j in 0..200 {
                    let sum = peer.call(&Add { values: vec![i, j] }).expect("answered");
                    assert_eq!(sum.total, i + j);
                }
            }
        };
        std::thread::scope(|scope| {
            for i in 0..8 {
                scope.spawn(caller(i));
            }
        });
        let status = client.status();
        let peer = status.peers.iter().find(|peer| peer.node == NodeId(1)).expect("known");
        let counted =
            |name| peer.counters.iter().find(|(counter, _)| *counter == name).map(|(_, count)| *count);
        assert_eq!(counted("lost_wake_ups"), Some(0), "{transport}: a wake-up was lost");
        assert_eq!(peer.open_calls, 0);
    }
}

#[derive(Message, Debug)]
#[message(name = "test.meet", reply = ())]
struct Meet {}

/// Four handlers that wait for each other: each worker that takes a call has the next one woken before it blocks.
#[test]
fn workers_run_side_by_side() {
    for policy in [WaitPolicy::Block, WaitPolicy::Adaptive, WaitPolicy::Spin] {
        let meeting = Arc::new(Barrier::new(4));
        let node = Node::builder(1)
            .wait(policy)
            .workers(4)
            .listen(&format!("shm:@pronto-test-meet-{policy:?}-{}", std::process::id()))
            .handle(move |_, _: Meet| {
                meeting.wait();
            })
            .start()
            .unwrap();
        let client = Node::builder(2).peer(1, &node.listening()[0].to_string()).start().unwrap();
        let peer = client.wait_for_peer(1, SOON).unwrap();
        for _ in 0..50 {
            let together = peer.together();
            let calls = [(); 4].map(|()| peer.start(&Meet {}).unwrap());
            drop(together);
            for call in calls {
                call.wait().unwrap();
            }
        }
    }
}

#[derive(Message, Debug)]
#[message(name = "test.tell")]
struct Tell {}

/// How often the calling thread has gone to sleep.
fn sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).expect("it is known").voluntary_context_switches()
}

/// The peer's handlers wait, and with them its credits: a sender does not ask all the time whether there is one.
#[test]
fn a_sender_without_credit_sleeps_until_it_comes() {
    for transport in ["shm", "tcp"] {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let waits = Arc::clone(&gate);
        let (tells, told) = mpsc::channel();
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-credit-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let node = Node::builder(1).wait(WaitPolicy::Block).workers(1).listen(&listen);
        let node = node.on(move |_, _: Tell| {
            drop(waits.lock().unwrap());
            tells.send(()).unwrap();
        });
        let node = node.start().unwrap();
        let address = node.listening()[0].to_string();
        let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().unwrap();
        let peer = client.wait_for_peer(1, SOON).unwrap();
        let mut sent = 0;
        while peer.notify(&Tell {}).is_ok() {
            sent += 1;
        }
        let shut = Duration::from_millis(200);
        let slept = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let before = sleeps();
                peer.notify_within(&Tell {}, SOON).unwrap();
                sleeps() - before
            });
            std::thread::park_timeout(shut);
            drop(closed);
            waiting.join().unwrap()
        });
        assert!(slept < 200, "{transport}: {slept} times in {shut:?}");
        // And many times, where credits come while the sender falls asleep.
        let more = 20_000;
        (0..more).for_each(|_| peer.notify_within(&Tell {}, SOON).unwrap());
        (0..sent + 1 + more).for_each(|_| told.recv_timeout(SOON).unwrap());
        assert_eq!(peer.session().stats().lost_wake_ups.count(), 0, "{transport}: a wake-up was lost");
    }
}

/// Inline handlers cannot wait for room, and a window of calls never leaves the chunk that their replies lie in empty: the next
/// chunk must be ready before it is full, long before the node's clock ticks again.
#[test]
fn a_window_of_long_replies_never_lacks_room() {
    let address = format!("shm:@pronto-test-window-{}", std::process::id());
    let _server = Node::builder(1)
        .listen(&address)
        .handle_inline(|_, fetch: FetchBulk| Page { bytes: vec![7; fetch.len as usize] })
        .start()
        .expect("it starts");
    let client = Node::builder(2).peer(1, &address).start().expect("it starts");
    let peer = client.wait_for_peer(1, SOON).expect("it comes up");
    let mut pending = std::collections::VecDeque::new();
    for _ in 0..2_000 {
        if pending.len() == 32 {
            let oldest: pronto::Pending<FetchBulk> = pending.pop_front().expect("there are 32");
            assert_eq!(oldest.wait().expect("answered").bytes.len(), 16_384);
        }
        pending.push_back(peer.start(&FetchBulk { len: 16_384 }).expect("there is room"));
    }
}

/// What lies encoded in a region travels from there, to a handler that has it decoded, and to one that reads it where it lies.
#[test]
fn messages_travel_from_a_region() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    for transport in ["shm", "tcp"] {
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-region-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let hears = Arc::clone(&heard);
        let server = Node::builder(1)
            .listen(&listen)
            .handle_in_place::<Add, _>(|_, place| {
                let mut total = 0;
                place
                    .read_pieces(|piece| total += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>())
                    .expect("not forked");
                Sum { total }
            })
            .on_inline(move |_, page: Page| hears.lock().expect("nobody panics").push(page.bytes.len()))
            .handle_inline(|_, fetch: FetchBulk| Page { bytes: vec![7; fetch.len as usize] })
            .start()
            .expect("it starts");
        let client = Node::builder(2).peer(1, &server.listening()[0].to_string()).start().expect("it starts");
        let peer = client.wait_for_peer(1, SOON).expect("it comes up");
        let region = client.region(20_000).expect("there is memory");
        let add = Add { values: vec![1, 2, 0x0300] };
        let mut encoded = [0; 28];
        pronto::rpc::encode_message(&add, &mut encoded).expect("it fits");
        region.write(100, &encoded).expect("it fits");
        let sum = peer.start_from::<Add>(&region, 100..128).expect("there is room").wait().expect("answered");
        assert_eq!(sum.total, 3 + 1 + 2 + 3, "the count and the three values, byte by byte");
        region.write(0, &9_996_u32.to_le_bytes()).expect("it fits");
        peer.notify_from::<Page>(&region, 0..10_000).expect("there is room");
        assert_eq!(peer.call(&FetchBulk { len: 1 }).expect("answered").bytes, [7], "behind the notification");
        assert_eq!(heard.lock().expect("nobody panics").pop(), Some(9_996), "{transport}");
        let outside = peer.notify_from::<Page>(&region, 19_999..20_001).expect_err("beyond the region");
        assert!(
            matches!(outside, CallError::Rejected(CallRejection::Here(SendError::OutOfRegion))),
            "{outside}"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
        let backwards = peer.start_from::<Add>(&region, 8..4).map(drop);
        assert!(backwards.is_err(), "it ends before it begins");
    }
}

/// A caller that has stopped waiting learns from the region when the peer has read its request.
#[test]
fn a_region_is_held_until_the_peer_has_read_it() {
    let (open, gate) = mpsc::channel::<()>();
    let (entered, enters) = mpsc::channel();
    let gate = Mutex::new(gate);
    let listen = format!("shm:@pronto-test-held-{}", std::process::id());
    let server = Node::builder(1)
        .listen(&listen)
        .handle_in_place::<Add, _>(move |_, place| {
            entered.send(place.len()).expect("the test goes on");
            gate.lock().expect("no holder panics").recv_timeout(SOON).expect("the test opens it");
            Sum { total: 0 }
        })
        .start()
        .expect("it starts");
    let client = Node::builder(2).peer(1, &server.listening()[0].to_string()).start().expect("it starts");
    let peer = client.wait_for_peer(1, SOON).expect("it comes up");
    let region = client.region(20_000).expect("there is memory");
    let mut encoded = vec![0; 12_000];
    let len = pronto::rpc::encode_message(&Add { values: vec![1; 1_000] }, &mut encoded).expect("it fits");
    region.write(0, &encoded[..len]).expect("it fits");
    assert!(!region.is_held_elsewhere());
    let call = peer.start_from::<Add>(&region, 0..len as u64).expect("there is room");
    assert_eq!(enters.recv_timeout(SOON).expect("the handler runs"), len);
    drop(call);
    assert!(region.is_held_elsewhere(), "the handler may still read the bytes");
    open.send(()).expect("the handler waits");
    let (_open, pause) = mpsc::channel::<()>();
    let mut polls = 0..10_000;
    while region.is_held_elsewhere() {
        assert!(polls.next().is_some(), "the handler has returned");
        client.progress();
        let _millisecond = pause.recv_timeout(Duration::from_millis(1));
    }
}

#[test]
fn unknown_types_are_refused_here() {
    let (_server, client) = both("unknown", "shm", WaitPolicy::Block);
    #[derive(Message)]
    #[message(name = "test.unknown", reply = Sum)]
    struct Unknown {}
    let peer = client.wait_for_peer(1, SOON).expect("it comes up");
    let refused = peer.call(&Unknown {}).expect_err("nobody handles it");
    assert!(matches!(refused, CallError::Rejected(CallRejection::Here(_))), "{refused:?}");
    assert!(!peer.handles::<Unknown>());
    assert!(peer.handles::<Add>());
}

/// Runs a future on this thread, which sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = core::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut core::task::Context::from_waker(&waker)) {
            core::task::Poll::Ready(output) => return output,
            core::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "only time tells a wake-up from a tick that came to the rescue"
)]
fn an_answer_wakes_the_node_for_a_future() {
    for transport in ["shm", "tcp"] {
        let (_server, client) = both("future", transport, WaitPolicy::Block);
        let peer = client.wait_for_peer(1, SOON).expect("it comes up");
        let median = || {
            let mut times: Vec<_> = (0..101)
                .map(|i| {
                    let begun = std::time::Instant::now();
                    let sum =
                        block_on(peer.start(&Add { values: vec![i, 1] }).expect("sent")).expect("answered");
                    assert_eq!(sum.total, i + 1);
                    // A call that is waited for by its caller comes between, and leaves things as they were.
                    assert_eq!(peer.call(&Add { values: vec![i] }).expect("answered").total, i);
                    begun.elapsed()
                })
                .collect();
            times.sort_unstable();
            times[50]
        };
        // Beside threads that compute a woken one may have to wait for the end of a slice, which lasts as long as a tick.
        let medians = [(); 4].map(|()| median());
        let prompt = medians.iter().any(|median| *median < Duration::from_millis(3));
        assert!(prompt, "{transport}: {medians:?}, as if only ticks woke it");
    }
}

/// The dialling side takes its leave, and does not come back. Its connections end one after the other; whichever end is seen first, what
/// was said before counts.
#[test]
fn a_node_that_drains_says_goodbye_once() {
    for round in 0..20 {
        let (server, client) = both(&format!("goodbye-{round}"), "tcp", WaitPolicy::Block);
        let peer = client.wait_for_peer(1, SOON).expect("it comes up");
        assert_eq!(peer.call(&Add { values: vec![1] }).expect("answered").total, 1);
        server.wait_for_peer(2, SOON).expect("it is up here as well");
        let events = server.events();
        client.drain(SOON).expect("nothing is open");
        let mut seen = vec![events.next_within(SOON).expect("it goes").expect("all are read")];
        while let Some(event) = events.next_within(Duration::from_millis(30)) {
            seen.push(event.expect("all are read"));
        }
        assert!(matches!(seen[..], [pronto::Event::PeerDown { .. }]), "round {round}: {seen:?}");
    }
}

#[test]
fn who_asks_for_busy_polling_is_told_what_became_of_it() {
    let server = server("tcp:127.0.0.1:0", WaitPolicy::Block);
    let address = server.listening()[0].to_string();
    let says = |builder: pronto::Builder, polled: &str| {
        let client = builder.wait(WaitPolicy::Block).peer(1, &address).start().expect("it starts");
        let peer = client.wait_for_peer(1, SOON).expect("they meet");
        let page = peer.call(&Fetch { len: 3 << 20 }).expect("an answer");
        assert_eq!(page.bytes.len(), 3 << 20);
        let engine = client.status().engine;
        assert_eq!(engine.contains("before sleeps"), !polled.is_empty(), "{engine}");
        assert!(engine.contains(polled) || engine.contains("no device is polled: "), "{engine}");
        client.status().peers[0].choice.clone().expect("a link was chosen")
    };
    let plain = says(Node::builder(2), "");
    assert!(plain.starts_with("tcp: ") && !plain.contains("polling"), "{plain}");
    // The loopback interface has nothing to poll, and who may not ask is refused.
    let how = BusyPoll { micros: 50, packets: 16, prefer: true };
    let builder = Node::builder(3).tcp_busy_poll(how).tcp_socket_buffer(256 << 10);
    let asked = says(builder, "polled for 50 us, 16 packets per poll, preferred over interrupts");
    assert!(asked.starts_with(&plain) && asked.contains("no busy polling, as "), "{asked}");
}

/// What callers take in themselves is nothing to their serving thread, which wakes for it in vain now and then. That must not make it
/// deaf for what is its own: a channel that is left out for good reason rests for seconds.
#[test]
fn a_channel_whose_events_callers_take_is_not_left_out() {
    for policy in [WaitPolicy::Block, WaitPolicy::Adaptive, WaitPolicy::Spin] {
        let server = server("tcp:127.0.0.1:0", WaitPolicy::Adaptive);
        let address = server.listening()[0].to_string();
        let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().expect("it starts");
        let peer = client.wait_for_peer(1, SOON).expect("it is there").waiting(policy);
        for total in 0..2_000 {
            assert_eq!(peer.call(&Add { values: vec![total] }).expect("an answer"), Sum { total });
        }
        let counters = client.status().progress;
        assert!(counters.contains(&("muted", 0)), "{policy:?}: {counters:?}");
    }
}

/// What a reply gave back may not have been taken in when the next call is started, and is taken in then.
#[test]
fn a_window_of_one_is_free_again_when_its_call_has_been_answered() {
    for transport in ["shm", "tcp"] {
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-window-of-one-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let limits = Limits { requests: [1, 1], ..Limits::default() };
        let server = Node::builder(1)
            .limits(limits)
            .listen(&listen)
            .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
            .start()
            .expect("it starts");
        let address = server.listening()[0].to_string();
        let client = Node::builder(2).peer(1, &address).start().expect("it starts");
        let peer = client.wait_for_peer(1, SOON).expect("it comes up").waiting(WaitPolicy::Spin);
        let calls = 1_000;
        let mut refused = 0;
        for total in 0..calls {
            let add = Add { values: vec![total] };
            assert_eq!(peer.call(&add).expect("answered").total, total);
            let mut was_refused = false;
            let started = loop {
                match peer.start(&add) {
                    Ok(started) => break started,
                    // A thread that takes messages in may have been taken off its processor.
                    Err(CallError::Rejected(CallRejection::Here(SendError::NoCredit { .. }))) => {
                        was_refused = true
                    }
                    Err(error) => panic!("{transport}: {error}"),
                }
            };
            refused += u64::from(was_refused);
            assert_eq!(started.wait().expect("answered").total, total, "{transport}");
        }
        assert!(refused < calls / 2, "{transport}: the room that each reply brings is not found: {refused}");
    }
}

/// Asks for an answer that does not come while the test lasts.
#[derive(Message, Debug)]
#[message(name = "test.stay", reply = Sum)]
struct Stay {}

#[test]
fn errors_say_what_to_do() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let address = format!("shm:@pronto-test-advice-{}", std::process::id());
    let server = Node::builder(1)
        .listen(&address)
        .handle_inline(|_, add: Add| add.values.first().map(|total| Sum { total: *total }).ok_or(7_u64))
        .handle(|_, _: Fetch| -> Page { panic!("asked to") })
        .handle(move |_, _: Stay| {
            let _closed = held.lock().expect("one handler").recv_timeout(SOON);
            Sum { total: 0 }
        })
        .start()
        .expect("it starts");
    let limits = Limits { calls: 1, ..Limits::default() };
    let client = Node::builder(2).limits(limits).peer(1, &address).start().expect("it starts");
    let unknown = client.wait_for_peer(77, Duration::ZERO).expect_err("nobody is there").to_string();
    assert!(unknown.contains("no address of it was given: give one (`Builder::peer`"), "{unknown}");
    let unknown = client.peer(77).expect("there is room").call(&Add { values: vec![] });
    let said = unknown.expect_err("nobody is there").to_string();
    assert_eq!(said.matches("node 77 is not connected: wait for it").count(), 1, "{said}");
    assert!(said.contains("given an address of the other"), "{said}");

    let peer = client.wait_for_peer(1, SOON).expect("they meet");
    let said = peer.call(&Add { values: vec![] }).expect_err("its own").to_string();
    assert!(said.contains("`HandlerError::decode` reads it"), "{said}");
    let said = peer.call(&Fetch { len: 1 }).expect_err("it panics").to_string();
    assert_eq!(said, "no reply: the handler panicked: see the log of its node");

    // The only slot belongs to the call until it is answered, although nobody waits for that any more.
    let late = peer.call_within(&Stay {}, Duration::from_millis(20)).expect_err("nobody answers").to_string();
    assert!(
        late.contains("its handler may have run or may still run: give it more time (`call_within`)"),
        "{late}"
    );
    let full = peer.start(&Add { values: vec![1] }).expect_err("there is no slot").to_string();
    assert!(full.contains("1 calls to this peer are open") && full.contains("raise limits.calls"), "{full}");
    drop(hold);
    assert_eq!(peer.call(&Add { values: vec![1] }).expect("it is free again").total, 1);
    drop(server);
}

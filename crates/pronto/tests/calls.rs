//! Calls between two nodes, over every transport and with every wait policy.

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

/// A request in the same class as its reply, which therefore returns its credit.
#[derive(Message, Debug)]
#[message(name = "test.fetch.bulk", reply = Page, class = bulk)]
struct FetchBulk {
    len: u32,
}

const TIMEOUT: Duration = Duration::from_secs(10);

fn server(address: &str, policy: WaitPolicy) -> Node {
    Node::builder(1)
        .wait(policy)
        .listen(address)
        .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
        .handle(|_, fetch: Fetch| Page { bytes: vec![7; fetch.len as usize] })
        .start()
        .expect("the node starts")
}

fn connected_pair(name: &str, transport: &str, policy: WaitPolicy) -> (Node, Node) {
    let listen = match transport {
        "shm" => format!("shm:@pronto-test-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let server = server(&listen, policy);
    let address = server.listening()[0].to_string();
    let client = Node::builder(2).wait(policy).peer(1, &address).start().expect("the node starts");
    (server, client)
}

fn calls_of_all_sizes(name: &str, transport: &str, policy: WaitPolicy) {
    let (_server, client) = connected_pair(name, transport, policy);
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    for len in [0_u64, 1, 4, 5, 100, 1000] {
        let sum = peer.call(&Add { values: (0..len).collect() }).expect("a reply");
        assert_eq!(sum.total, (0..len).sum());
    }
    for len in [0, 35, 36, 37, 40, 41, 4096, 65_536, 1 << 20, (4 << 20) - 64] {
        let page = peer.call(&Fetch { len }).expect("a reply");
        assert_eq!(page.bytes.len(), len as usize);
        assert!(page.bytes.iter().all(|byte| *byte == 7));
    }
    for _ in 0..1000 {
        assert_eq!(peer.call(&Add { values: vec![1, 2] }).expect("a reply").total, 3);
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

/// Shows: operations.port-0
#[test]
fn tcp_block() {
    calls_of_all_sizes("block", "tcp", WaitPolicy::Block);
}

#[test]
fn tcp_adaptive() {
    calls_of_all_sizes("adaptive", "tcp", WaitPolicy::Adaptive);
}

/// Shows: calls.peer-threads, embedding.threads
#[test]
fn many_callers_share_a_peer() {
    for transport in ["shm", "tcp"] {
        let (_server, client) = connected_pair("many", transport, WaitPolicy::Block);
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
        let caller = |i: u64| {
            let peer = peer.clone();
            move || {
                for j in 0..200 {
                    let sum = peer.call(&Add { values: vec![i, j] }).expect("a reply");
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
        let peer = status.peers.iter().find(|peer| peer.node == NodeId(1)).expect("the peer is known");
        let counted =
            |name| peer.counters.iter().find(|(counter, _)| *counter == name).map(|(_, count)| *count);
        assert_eq!(counted("lost_wake_ups"), Some(0), "{transport}: a wake-up was lost");
        assert_eq!(peer.open_calls, 0);
    }
}

#[derive(Message, Debug)]
#[message(name = "test.meet", reply = ())]
struct Meet {}

/// Four handlers wait for each other. Each worker that takes a call must wake the next worker before it blocks.
///
/// Shows: messages.unordered
#[test]
fn workers_run_concurrently() {
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
        let peer = client.wait_for_peer(1, TIMEOUT).unwrap();
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

/// Returns the number of times that the calling thread has gone to sleep.
fn sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).expect("the usage is known").voluntary_context_switches()
}

#[expect(clippy::disallowed_methods, reason = "the number of sleeps depends on the elapsed time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The peer's handlers block and hold all credits. A sender must sleep until a credit arrives, not poll for it.
///
/// Shows: calls.notify-within
#[test]
fn a_sender_without_credit_sleeps_until_one_arrives() {
    for transport in ["shm", "tcp"] {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let waits = Arc::clone(&gate);
        let (handled, handled_messages) = mpsc::channel();
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-credit-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let node = Node::builder(1).wait(WaitPolicy::Block).workers(1).listen(&listen);
        let node = node.on(move |_, _: Tell| {
            drop(waits.lock().unwrap());
            handled.send(()).unwrap();
        });
        let node = node.start().unwrap();
        let address = node.listening()[0].to_string();
        let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().unwrap();
        let peer = client.wait_for_peer(1, TIMEOUT).unwrap();
        let mut sent = 0;
        while peer.notify(&Tell {}).is_ok() {
            sent += 1;
        }
        let shut = Duration::from_millis(200);
        let (slept, took) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let (before, begun) = (sleeps(), now());
                peer.notify_within(&Tell {}, TIMEOUT).unwrap();
                (sleeps() - before, begun.elapsed())
            });
            std::thread::park_timeout(shut);
            drop(closed);
            waiting.join().unwrap()
        });
        let most = 10 + took.as_millis();
        assert!(u128::try_from(slept).unwrap() <= most, "{transport}: {slept} sleeps in {took:?}");
        // Repeats this many times, with credits that arrive while the sender falls asleep.
        let more = 20_000;
        (0..more).for_each(|_| peer.notify_within(&Tell {}, TIMEOUT).unwrap());
        (0..sent + 1 + more).for_each(|_| handled_messages.recv_timeout(TIMEOUT).unwrap());
        assert_eq!(peer.session().stats().lost_wake_ups.count(), 0, "{transport}: a wake-up was lost");
    }
}

/// Inline handlers cannot wait for room. A window of calls never leaves the memory chunk of their replies empty, so the next chunk
/// must be ready before the current one is full, long before the node's next tick.
#[test]
fn a_window_of_long_replies_never_lacks_room() {
    let address = format!("shm:@pronto-test-window-{}", std::process::id());
    let _server = Node::builder(1)
        .listen(&address)
        .handle_inline(|_, fetch: FetchBulk| Page { bytes: vec![7; fetch.len as usize] })
        .start()
        .expect("the node starts");
    let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let mut pending = std::collections::VecDeque::new();
    for _ in 0..2_000 {
        if pending.len() == 32 {
            let oldest: pronto::Pending<FetchBulk> = pending.pop_front().expect("there are 32");
            assert_eq!(oldest.wait().expect("a reply").bytes.len(), 16_384);
        }
        pending.push_back(peer.start(&FetchBulk { len: 16_384 }).expect("there is room"));
    }
}

/// An encoded message is sent directly from a region, to a handler that receives it decoded and to one that reads it in place.
///
/// Shows: calls.from-region, calls.in-place
#[test]
fn messages_travel_from_a_region() {
    let received = Arc::new(Mutex::new(Vec::new()));
    for transport in ["shm", "tcp"] {
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-region-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let receiver = Arc::clone(&received);
        let server = Node::builder(1)
            .listen(&listen)
            .handle_in_place::<Add, _>(|_, place| {
                let mut total = 0;
                place
                    .read_pieces(|piece| total += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>())
                    .expect("not forked");
                Sum { total }
            })
            .on_inline(move |_, page: Page| receiver.lock().expect("no holder panics").push(page.bytes.len()))
            .handle_inline(|_, fetch: FetchBulk| Page { bytes: vec![7; fetch.len as usize] })
            .start()
            .expect("the node starts");
        let client =
            Node::builder(2).peer(1, &server.listening()[0].to_string()).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
        let region = client.region(20_000).expect("there is memory");
        let add = Add { values: vec![1, 2, 0x0300] };
        let mut encoded = [0; 28];
        pronto::rpc::encode_message(&add, &mut encoded).expect("the message fits");
        region.write(100, &encoded).expect("the message fits");
        let sum = peer.start_from::<Add>(&region, 100..128).expect("there is room").wait().expect("a reply");
        assert_eq!(sum.total, 3 + 1 + 2 + 3, "the sum of all bytes of the count and the three values");
        region.write(0, &9_996_u32.to_le_bytes()).expect("the message fits");
        peer.notify_from::<Page>(&region, 0..10_000).expect("there is room");
        assert_eq!(
            peer.call(&FetchBulk { len: 1 }).expect("a reply").bytes,
            [7],
            "the reply follows the notification"
        );
        assert_eq!(received.lock().expect("no holder panics").pop(), Some(9_996), "{transport}");
        let outside =
            peer.notify_from::<Page>(&region, 19_999..20_001).expect_err("the range exceeds the region");
        assert!(
            matches!(outside, CallError::Rejected(CallRejection::Here(SendError::OutOfRegion))),
            "{outside}"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "the test passes a reversed range")]
        let backwards = peer.start_from::<Add>(&region, 8..4).map(drop);
        assert!(backwards.is_err(), "a reversed range must be refused");
    }
}

/// After a caller has stopped waiting, the region shows when the peer has read the request.
///
/// Shows: calls.by-reference
#[test]
fn a_region_is_held_until_the_peer_has_read_it() {
    let (open, gate) = mpsc::channel::<()>();
    let (entered, enters) = mpsc::channel();
    let gate = Mutex::new(gate);
    let listen = format!("shm:@pronto-test-held-{}", std::process::id());
    let server = Node::builder(1)
        .listen(&listen)
        .handle_in_place::<Add, _>(move |_, place| {
            entered.send(place.len()).expect("the test is still running");
            gate.lock().expect("no holder panics").recv_timeout(TIMEOUT).expect("the test opens it");
            Sum { total: 0 }
        })
        .start()
        .expect("the node starts");
    let client =
        Node::builder(2).peer(1, &server.listening()[0].to_string()).start().expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let region = client.region(20_000).expect("there is memory");
    let mut encoded = vec![0; 12_000];
    let len =
        pronto::rpc::encode_message(&Add { values: vec![1; 1_000] }, &mut encoded).expect("the message fits");
    region.write(0, &encoded[..len]).expect("the message fits");
    assert!(!region.is_held_elsewhere());
    let call = peer.start_from::<Add>(&region, 0..len as u64).expect("there is room");
    assert_eq!(enters.recv_timeout(TIMEOUT).expect("the handler runs"), len);
    drop(call);
    assert!(region.is_held_elsewhere(), "the handler may still read the bytes");
    open.send(()).expect("the handler waits");
    let (_open, pause) = mpsc::channel::<()>();
    let mut polls = 0..10_000;
    while region.is_held_elsewhere() {
        assert!(polls.next().is_some(), "the region is still held after the handler has returned");
        client.progress();
        let _millisecond = pause.recv_timeout(Duration::from_millis(1));
    }
}

/// Shows: calls.no-handler, protocol.listed, messages.unknown-name
#[test]
fn unknown_types_are_refused_here() {
    let (_server, client) = connected_pair("unknown", "shm", WaitPolicy::Block);
    #[derive(Message)]
    #[message(name = "test.unknown", reply = Sum)]
    struct Unknown {}
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let refused = peer.call(&Unknown {}).expect_err("the type has no handler");
    assert!(matches!(refused, CallError::Rejected(CallRejection::Here(_))), "{refused:?}");
    assert!(!peer.handles::<Unknown>());
    assert!(peer.handles::<Add>());
}

/// The dialling side drains and does not come back. Its connections end one after the other. Whichever end is detected first, the
/// goodbye that was sent before must count.
///
/// Shows: operations.goodbye
#[test]
fn a_node_that_drains_says_goodbye_once() {
    for round in 0..20 {
        let (server, client) = connected_pair(&format!("goodbye-{round}"), "tcp", WaitPolicy::Block);
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
        assert_eq!(peer.call(&Add { values: vec![1] }).expect("a reply").total, 1);
        server.wait_for_peer(2, TIMEOUT).expect("the client connects");
        let events = server.events();
        client.drain(TIMEOUT).expect("no call is open");
        let mut seen =
            vec![events.next_within(TIMEOUT).expect("the peer goes down").expect("no event is missed")];
        while let Some(event) = events.next_within(Duration::from_millis(30)) {
            seen.push(event.expect("no event is missed"));
        }
        assert!(matches!(seen[..], [pronto::Event::PeerDown { .. }]), "round {round}: {seen:?}");
    }
}

/// Shows: operations.busy-poll-refused, operations.napi
#[test]
fn the_status_reports_the_result_of_requested_busy_polling() {
    let server = server("tcp:127.0.0.1:0", WaitPolicy::Block);
    let address = server.listening()[0].to_string();
    let chosen = |builder: pronto::Builder, polled: &str| {
        let client = builder.wait(WaitPolicy::Block).peer(1, &address).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
        let page = peer.call(&Fetch { len: 3 << 20 }).expect("a reply");
        assert_eq!(page.bytes.len(), 3 << 20);
        let engine = client.status().engine;
        assert_eq!(engine.contains("before sleeps"), !polled.is_empty(), "{engine}");
        assert!(engine.contains(polled) || engine.contains("no device is polled: "), "{engine}");
        client.status().peers[0].choice.clone().expect("a link was chosen")
    };
    let plain = chosen(Node::builder(2), "");
    assert!(plain.starts_with("tcp: ") && !plain.contains("polling"), "{plain}");
    // The loopback interface has no device to poll, and an unprivileged process is refused.
    let how = BusyPoll { micros: 50, packets: 16, prefer: true };
    let builder = Node::builder(3).tcp_busy_poll(how).tcp_socket_buffer(256 << 10);
    let asked = chosen(builder, "polled for 50 us, 16 packets per poll, preferred over interrupts");
    assert!(asked.starts_with(&plain) && asked.contains("no busy polling, as "), "{asked}");
}

/// Callers process the events of their channel themselves, so the serving thread sometimes wakes for it without success. The
/// channel must not be muted for that, because a muted channel rests for seconds.
#[test]
fn a_channel_whose_events_callers_process_is_not_muted() {
    for policy in [WaitPolicy::Block, WaitPolicy::Adaptive, WaitPolicy::Spin] {
        let server = server("tcp:127.0.0.1:0", WaitPolicy::Adaptive);
        let address = server.listening()[0].to_string();
        let client =
            Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects").waiting(policy);
        for total in 0..2_000 {
            assert_eq!(peer.call(&Add { values: vec![total] }).expect("a reply"), Sum { total });
        }
        let counters = client.status().progress;
        assert!(counters.contains(&("muted", 0)), "{policy:?}: {counters:?}");
    }
}

/// The credit of a reply may not have been processed when the next call starts; the start then processes it.
#[test]
fn a_window_of_one_is_free_again_after_the_reply() {
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
            .expect("the node starts");
        let address = server.listening()[0].to_string();
        let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects").waiting(WaitPolicy::Spin);
        let calls = 1_000;
        let mut refused = 0;
        for total in 0..calls {
            let add = Add { values: vec![total] };
            assert_eq!(peer.call(&add).expect("a reply").total, total);
            let mut was_refused = false;
            let started = loop {
                match peer.start(&add) {
                    Ok(started) => break started,
                    // The thread that processes messages may have been preempted.
                    Err(CallError::Rejected(CallRejection::Here(SendError::NoCredit { .. }))) => {
                        was_refused = true
                    }
                    Err(error) => panic!("{transport}: {error}"),
                }
            };
            refused += u64::from(was_refused);
            assert_eq!(started.wait().expect("a reply").total, total, "{transport}");
        }
        assert!(refused < calls / 2, "{transport}: the credit of the reply was not found {refused} times");
    }
}

/// A request without a reply during the test.
#[derive(Message, Debug)]
#[message(name = "test.stay", reply = Sum)]
struct Stay {}

/// Shows: calls.slot-kept, calls.debug, calls.display
#[test]
fn errors_suggest_an_action() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let address = format!("shm:@pronto-test-advice-{}", std::process::id());
    let server = Node::builder(1)
        .listen(&address)
        .handle_inline(|_, add: Add| add.values.first().map(|total| Sum { total: *total }).ok_or(7_u64))
        .handle(|_, _: Fetch| -> Page { panic!("asked to") })
        .handle(move |_, _: Stay| {
            let _closed = held.lock().expect("one handler").recv_timeout(TIMEOUT);
            Sum { total: 0 }
        })
        .start()
        .expect("the node starts");
    let limits = Limits { calls: 1, ..Limits::default() };
    let client = Node::builder(2).limits(limits).peer(1, &address).start().expect("the node starts");
    let unknown = client.wait_for_peer(77, Duration::ZERO).expect_err("the peer is unknown").to_string();
    assert!(unknown.contains("no address of it: add one (`Builder::peer`"), "{unknown}");
    let unknown = client.peer(77).expect("there is room").call(&Add { values: vec![] });
    let text = unknown.expect_err("the peer is unknown").to_string();
    assert_eq!(text.matches("node 77 is not connected: wait for it").count(), 1, "{text}");
    assert!(text.contains("has the address of the other"), "{text}");
    let unknown = client.peer(77).expect("there is room").call(&Add { values: vec![] });
    assert_eq!(format!("{unknown:?}"), format!("Err({text})"), "a `main` prints it in this form");
    let faulty = pronto::Config::parse("node = 1\nlisten = [\"udp:1\"]\n").expect_err("no such transport");
    assert_eq!(format!("{faulty:?}"), faulty.to_string());

    let peer = client.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
    let text = peer.call(&Add { values: vec![] }).expect_err("the handler returns an error").to_string();
    assert!(text.contains("decode it with `HandlerError::decode`"), "{text}");
    let text = peer.call(&Fetch { len: 1 }).expect_err("the handler panics").to_string();
    assert_eq!(text, "no reply: the handler panicked: see the log of its node");

    // The only slot belongs to the call until its reply arrives, although the caller has stopped waiting.
    let late =
        peer.call_within(&Stay {}, Duration::from_millis(20)).expect_err("no reply arrives").to_string();
    assert!(
        late.contains("its handler may have run or may still run: give it more time (`call_within`)"),
        "{late}"
    );
    let full = peer.start(&Add { values: vec![1] }).expect_err("all call slots are in use").to_string();
    assert!(full.contains("1 calls to this peer are open") && full.contains("raise limits.calls"), "{full}");
    drop(hold);
    assert_eq!(peer.call(&Add { values: vec![1] }).expect("the slot is free again").total, 1);
    drop(server);
}

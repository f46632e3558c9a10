//! The flight recorder: what threads do is there when it is asked for, also from another node.

use core::time::Duration;

use pronto::admin::{NoteReport, recent, recent_of};
use pronto::{CallError, Context, Message, Node, WaitPolicy};

#[derive(Debug, Message)]
#[message(name = "recorder.answer")]
struct Answer {}

#[derive(Debug, Message)]
#[message(name = "recorder.ask", reply = Answer)]
struct Ask {
    breaks: bool,
}

#[derive(Debug, Message)]
#[message(name = "recorder.wait", reply = Answer)]
struct AskPatiently {}

const PATIENCE: Duration = Duration::from_secs(10);

fn said(notes: &[NoteReport], text: &str) -> bool {
    notes.iter().any(|note| note.text.contains(text))
}

#[test]
fn calls_handlers_and_their_ends_are_noted() {
    // Never answered while the test lasts.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let address = format!("shm:@pronto-test-recorder-{}", std::process::id());
    let server = Node::builder(701)
        .listen(&address)
        .handle_inline(|_, ask: Ask| {
            assert!(!ask.breaks, "asked to break");
            Answer {}
        })
        .handle(move |_: &Context<'_>, _: AskPatiently| {
            let _closed = held.lock().expect("one handler").recv_timeout(PATIENCE);
            Answer {}
        })
        .start()
        .expect("the server starts");
    let client = Node::builder(702).peer(701, &address).start().expect("the client starts");
    let peer = client.wait_for_peer(701, PATIENCE).expect("they meet");
    peer.call(&Ask { breaks: false }).expect("it is answered");
    assert!(peer.call(&Ask { breaks: true }).is_err(), "its handler panics");
    let late = peer.call_within(&AskPatiently {}, Duration::from_millis(50));
    assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
    drop(hold);

    // Both nodes are in this process, whose threads are asked over the link.
    let report = recent_of(&peer, 4096).expect("it answers");
    let called = |note: &NoteReport| note.text.starts_with("called, peer 701");
    assert!(report.notes.iter().filter(|note| called(note)).count() >= 3, "{:?}", report.notes);
    for text in [
        "peer up, peer 702",
        "handles, peer 702",
        "handler panicked, peer 702",
        "ended, peer 701",
        ": failure",
        ": deadline",
        "sleeps",
    ] {
        assert!(said(&report.notes, text), "no `{text}` in {:?}", report.notes);
    }
    let times: Vec<u64> = report.notes.iter().map(|note| note.time_us).collect();
    assert!(times.is_sorted() && times.last() > Some(&0), "{times:?}");
    assert!(said(&recent(4096), "called, peer 701"), "and here without asking anybody");
    assert_eq!(recent(2).len(), 2);
    drop(server);
}

/// What is noted first after a sleep has a time after it.
#[test]
fn a_message_that_ends_a_sleep_has_the_time_of_its_coming() {
    const APART: Duration = Duration::from_millis(200);
    let address = format!("shm:@pronto-test-recorder-apart-{}", std::process::id());
    let server = Node::builder(703).wait(WaitPolicy::Block).listen(&address);
    let _server = server.handle_inline(|_, _: Ask| Answer {}).start().expect("the server starts");
    let client = Node::builder(704).peer(703, &address).start().expect("the client starts");
    let peer = client.wait_for_peer(703, PATIENCE).expect("they meet");
    for _ in 0..2 {
        std::thread::park_timeout(APART);
        peer.call(&Ask { breaks: false }).expect("it is answered");
    }
    let notes = recent(4096);
    let handled = notes.iter().filter(|note| note.text.starts_with("handles, peer 704"));
    let times: Vec<_> = handled.map(|note| Duration::from_micros(note.time_us)).collect();
    // Times are rounded down to 64 ns, and then to microseconds.
    let apart = times[1] - times[0] + Duration::from_micros(2);
    assert!(times.len() == 2 && apart >= APART, "{times:?}");
}

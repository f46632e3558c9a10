//! The flight recorder: it records what threads do, and can be read locally and from another node.

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

const TIMEOUT: Duration = Duration::from_secs(10);

fn contains_note(notes: &[NoteReport], text: &str) -> bool {
    notes.iter().any(|note| note.text.contains(text))
}

/// Shows: operations.recorded, operations.recent
#[test]
fn calls_handlers_and_their_ends_are_recorded() {
    // The handler does not reply while the test lasts.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let address = format!("shm:@pronto-test-recorder-{}", std::process::id());
    let server = Node::builder(701)
        .listen(&address)
        .handle_inline(|_, ask: Ask| {
            assert!(!ask.breaks, "panic requested by the test");
            Answer {}
        })
        .handle(move |_: &Context<'_>, _: AskPatiently| {
            let _closed = held.lock().expect("one handler").recv_timeout(TIMEOUT);
            Answer {}
        })
        .start()
        .expect("the server starts");
    let client = Node::builder(702).peer(701, &address).start().expect("the client starts");
    let peer = client.wait_for_peer(701, TIMEOUT).expect("the nodes connect");
    peer.call(&Ask { breaks: false }).expect("a reply");
    assert!(peer.call(&Ask { breaks: true }).is_err(), "the handler panics");
    let late = peer.call_within(&AskPatiently {}, Duration::from_millis(50));
    assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
    drop(hold);

    // Both nodes are in this process, so the reply contains the notes of both.
    let report = recent_of(&peer, 4096).expect("a reply");
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
        assert!(contains_note(&report.notes, text), "no `{text}` in {:?}", report.notes);
    }
    let times: Vec<u64> = report.notes.iter().map(|note| note.time_us).collect();
    assert!(times.is_sorted() && times.last() > Some(&0), "{times:?}");
    assert!(contains_note(&recent(4096), "called, peer 701"), "the local recorder has the notes too");
    assert_eq!(recent(2).len(), 2);
    drop(server);
}

#[derive(Debug, Message)]
#[message(name = "recorder.poke", reply = Answer)]
struct Poke {}

#[derive(Debug, Message)]
#[message(name = "recorder.poke_pooled", reply = Answer)]
struct PokePooled {}

/// Shows: operations.entry-time
#[test]
fn notes_after_a_sleep_have_times_after_it() {
    const PAUSE: Duration = Duration::from_millis(100);
    // Each node's clock begins at its start, so the notes of the two runs are distinguished by the caller.
    let shm = format!("shm:@pronto-test-recorder-pause-{}", std::process::id());
    for (caller, listen) in [(704, shm.as_str()), (705, "tcp:127.0.0.1:0")] {
        let server = Node::builder(703)
            .wait(WaitPolicy::Block)
            .listen(listen)
            .handle_inline(|_, _: Poke| Answer {})
            .handle(|_: &Context<'_>, _: PokePooled| Answer {})
            .start()
            .expect("the server starts");
        let address = server.listening()[0].to_string();
        let client = Node::builder(caller)
            .wait(WaitPolicy::Block)
            .peer(703, &address)
            .start()
            .expect("the node starts");
        let peer = client.wait_for_peer(703, TIMEOUT).expect("the nodes connect");
        let (_hold, never) = std::sync::mpsc::channel::<()>();
        let handled = |call: &dyn Fn() -> Result<Answer, CallError>| {
            call().expect("a reply");
            let of_handler = |note: &NoteReport| note.text.starts_with(&format!("handles, peer {caller},"));
            recent(4096)
                .iter()
                .filter(|note| of_handler(note))
                .map(|note| note.time_us)
                .max()
                .expect("the handler was recorded")
        };
        let calls: [&dyn Fn() -> _; 2] = [&|| peer.call(&Poke {}), &|| peer.call(&PokePooled {})];
        for call in calls {
            let before = handled(call);
            assert!(never.recv_timeout(PAUSE).is_err(), "no message is sent on this channel");
            let after = handled(call);
            let pause = u64::try_from(PAUSE.as_micros()).expect("the pause is short");
            assert!(after - before > pause / 2, "{before} and {after}, over {listen}");
        }
    }
}

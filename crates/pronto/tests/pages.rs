//! Messages of a page and more: bytes that own the memory where they arrived, and replies into memory of the caller.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use pronto::rpc::encode_message;
use pronto::{Bytes, CallError, Message, Node, Payload as _, Peer, Unreadable};

#[derive(Message, Debug)]
#[message(name = "pages.page", class = bulk)]
struct Page {
    address: u64,
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "pages.fetch", reply = Page)]
struct Fetch {
    address: u64,
    len: u32,
}

/// Like [`Page`], as the layout is the same: in place.
#[derive(Message, Debug)]
#[message(name = "pages.keep", reply = (), class = bulk)]
struct Keep {
    address: u64,
    bytes: Bytes,
}

#[derive(Message, Debug)]
#[message(name = "pages.echoed", class = bulk)]
struct Echoed {
    bytes: Bytes,
}

#[derive(Message, Debug)]
#[message(name = "pages.echo", reply = Echoed, class = bulk)]
struct Echo {
    bytes: Bytes,
}

const TIMEOUT: Duration = Duration::from_secs(20);

type Kept = Arc<Mutex<Vec<Bytes>>>;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at * 7 + seed).to_le_bytes()[0]).collect()
}

/// A server that keeps what it gets, and a client.
fn nodes(listen: &str) -> (Node, Node, Peer, Kept) {
    let kept = Kept::default();
    let keeps = Arc::clone(&kept);
    let server = Node::builder(1)
        .listen(listen)
        .plaintext_i_understand()
        .handle_inline(move |_, keep: Keep| {
            assert_eq!(keep.address, keep.bytes.len() as u64);
            keeps.lock().expect("no holder panics").push(keep.bytes);
        })
        .handle_inline(|_, echo: Echo| Echoed { bytes: echo.bytes })
        .handle(|_, fetch: Fetch| match fetch.len {
            0 => Err("nothing".to_owned()),
            len => Ok(Page { address: fetch.address, bytes: pattern(fetch.address, len as usize) }),
        })
        .start()
        .expect("the node starts");
    let client = Node::builder(2)
        .plaintext_i_understand()
        .peer(1, &server.listening()[0].to_string())
        .start()
        .expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    (server, client, peer, kept)
}

fn keep(peer: &Peer, seed: u64, len: usize) {
    let bytes = pattern(seed, len).into();
    peer.call(&Keep { address: len as u64, bytes }).expect("the handler keeps it");
}

const LENGTHS: [usize; 5] = [0, 100, 4096, 40_000, 70_000];

/// Shows: calls.bytes, messages.bytes-owned, messages.out-of-bounds, messages.stay-readable
#[test]
fn kept_bytes_outlive_the_handler_and_the_connection() {
    for (name, listen) in
        [("shm", format!("shm:@pronto-pages-{}", std::process::id())), ("tcp", "tcp:127.0.0.1:0".to_owned())]
    {
        let (_server, client, peer, kept) = nodes(&listen);
        for round in 0..20 {
            for len in LENGTHS {
                keep(&peer, round, len);
            }
        }
        drop((peer, client));
        let kept = kept.lock().expect("no holder panics");
        assert_eq!(kept.len(), 20 * LENGTHS.len());
        for (number, bytes) in kept.iter().enumerate() {
            let (round, len) = ((number / LENGTHS.len()) as u64, LENGTHS[number % LENGTHS.len()]);
            assert_eq!(bytes.to_vec().as_ref(), Ok(&pattern(round, len)), "{name}, {len} bytes");
            let mut end = [0; 1];
            for offset in [len, usize::MAX] {
                let refused = bytes.copy_to(offset, &mut end);
                assert!(matches!(refused, Err(Unreadable::OutOfBounds(_))), "{name}: {refused:?}");
            }
            assert_eq!(bytes.is_lent(), name == "shm" && len > 1000, "{name}, {len} bytes");
        }
    }
}

/// A region is memory of the program, which may write other bytes to it once the link has ended.
///
/// Shows: messages.withdrawn
#[test]
fn bytes_of_a_region_are_withdrawn_when_its_link_ends() {
    let (server, client, peer, kept) = nodes(&format!("shm:@pronto-pages-region-{}", std::process::id()));
    let region = client.region(1 << 16).expect("memory");
    let message = Keep { address: 40_000, bytes: pattern(5, 40_000).into() };
    let mut encoded = vec![0; message.encoded_len()];
    encode_message(&message, &mut encoded).expect("it fits");
    region.write(0, &encoded).expect("within the region");
    let sent = peer.start_from::<Keep>(&region, 0..encoded.len() as u64).expect("there is room");
    sent.wait().expect("the handler keeps it");
    let bytes = kept.lock().expect("no holder panics").pop().expect("one is kept");
    assert_eq!(bytes.to_vec(), Ok(pattern(5, 40_000)), "the link is there");
    let events = server.events();
    drop((peer, client));
    events.next_within(TIMEOUT).expect("the client goes away").expect("no event is missed");
    assert!(matches!(bytes.to_vec(), Err(Unreadable::Withdrawn(_))), "the region may hold other bytes");
}

/// Shows: calls.bytes
#[test]
fn bytes_are_echoed_from_where_they_arrived() {
    let (_server, _client, peer, _kept) = nodes(&format!("shm:@pronto-pages-echo-{}", std::process::id()));
    for len in LENGTHS {
        let echoed = peer.call(&Echo { bytes: pattern(3, len).into() }).expect("an echo").bytes;
        assert_eq!(echoed.to_vec().as_ref(), Ok(&pattern(3, len)), "{len} bytes");
        // The part of a payload, passed on: the second echo reads the memory of the first.
        let again = peer.call(&Echo { bytes: echoed }).expect("an echo").bytes;
        assert_eq!(again.to_vec().as_ref(), Ok(&pattern(3, len)), "{len} bytes");
    }
}

/// Shows: calls.into
#[test]
fn a_reply_is_received_into_memory_of_the_caller() {
    let (_server, _client, peer, _kept) = nodes(&format!("shm:@pronto-pages-into-{}", std::process::id()));
    let mut page = Page { address: 0, bytes: Vec::with_capacity(5000) };
    let memory = page.bytes.as_ptr();
    for len in [1, 100, 300, 4096, 5000, 20] {
        peer.call_into(&Fetch { address: 9, len }, &mut page).expect("a page");
        assert_eq!((page.address, &page.bytes), (9, &pattern(9, len as usize)));
        assert_eq!(page.bytes.as_ptr(), memory, "{len} bytes are allocated");
    }
    let refused = peer.call_into_within(&Fetch { address: 9, len: 0 }, &mut page, TIMEOUT);
    assert!(matches!(refused, Err(CallError::Handler(_))), "{refused:?}");
    assert_eq!(page.bytes, pattern(9, 20), "a failed call changed the reply");
}

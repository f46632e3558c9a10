//! Handlers hold long requests while they wait for long replies, which arrive behind more long requests.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use pronto::{Class, Config, Message, Node, WaitPolicy};
use pronto_core::session::Limits;

use crate::rig::{Fetch, Page, Sum, TIMEOUT, counter, shared_run};

#[derive(Message, Debug)]
#[message(name = "faults.grind", class = bulk, reply = Sum)]
struct Grind {
    bytes: Vec<u8>,
}

/// Payload bytes of each request and each reply; less than 1 MiB with the overhead of the codec.
const LEN: u32 = (1 << 20) - 64;
/// Requests in flight at a time: twice as many as fit into the receive budget of `GRINDER`.
const REQUESTS: u64 = 8;
const GRINDER: &str = "
    node = 1
    listen = [\"tcp:127.0.0.1:0\"]
    wait = \"block\"
    [limits]
    receive_budget = 4194304
";

/// Node 1 can hold at most four of the requests within its receive budget, and no handler ends before it has a reply of the same
/// length. Node 2 sends all requests before the first of these replies.
///
/// Shows: operations.receive-budget
#[test]
fn replies_arrive_behind_requests_that_exceed_the_receive_budget() {
    let _shared = shared_run();
    assert!(u64::from(Limits::default().requests[Class::Bulk.index()]) >= REQUESTS);
    let grinder = Node::from_config(&Config::parse(GRINDER).unwrap())
        .unwrap()
        .handle(|context, grind: Grind| {
            let page = context.peer().call_within(&Fetch { len: LEN }, TIMEOUT);
            Sum { total: page.map_or(0, |page| (grind.bytes.len() + page.bytes.len()) as u64) }
        })
        .start()
        .unwrap();
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let caller = Node::builder(2)
        .wait(WaitPolicy::Block)
        .peer(1, &grinder.listening()[0].to_string())
        .handle(move |_, fetch: Fetch| {
            let _opened = gate.lock().unwrap().recv();
            Page { bytes: vec![7; fetch.len as usize] }
        })
        .start()
        .unwrap();
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    let request = Grind { bytes: vec![3; LEN as usize] };
    let calls: Vec<_> = (0..REQUESTS).map(|_| peer.start_within(&request, 2 * TIMEOUT).unwrap()).collect();
    drop(open);
    for call in calls {
        let total = call.wait().unwrap().total;
        assert_eq!(total, 2 * u64::from(LEN), "a reply is stuck behind the requests");
    }
    assert_eq!(counter(&caller, 1, "links_lost"), 0);
}

//! Layers of tower around calls between real nodes.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Waker};
use core::time::Duration;
use std::sync::Arc;

use pronto::{Builder, CallError, Limits, Message, Node, Peer, WaitPolicy};
use pronto_tower::{Client, RetryUnexecuted, serve};
use tokio::sync::{Notify, Semaphore};
use tower::util::Oneshot;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

#[derive(Message, Debug, PartialEq)]
#[message(name = "tower.sum")]
struct Sum {
    total: u64,
}

#[derive(Message, Clone, Debug)]
#[message(name = "tower.add", reply = Sum)]
struct Add {
    values: Vec<u64>,
}

/// Counts of the handlers.
#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    changed: Notify,
}

impl Counts {
    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

/// A handler that runs, until it is dropped.
struct Running(Arc<Counts>);

impl Running {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.begun.fetch_add(1, Ordering::SeqCst);
        let running = counts.running.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(running, Ordering::SeqCst);
        counts.changed.notify_waiters();
        Self(Arc::clone(counts))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// Returns a service that adds once the gate lets it.
fn gated(
    counts: &Arc<Counts>,
    gate: &Arc<Semaphore>,
) -> impl Service<Add, Response = Sum, Error = String, Future: Send> + Clone + Send + 'static {
    let (counts, gate) = (Arc::clone(counts), Arc::clone(gate));
    service_fn(move |add: Add| {
        let (counts, gate) = (Arc::clone(&counts), Arc::clone(&gate));
        async move {
            let _running = Running::new(&counts);
            gate.acquire().await.map_err(|closed| closed.to_string())?.forget();
            if add.values.is_empty() {
                return Err("nothing to add".to_owned());
            }
            Ok(Sum { total: add.values.iter().sum() })
        }
    })
}

struct Pair {
    server: Node,
    _client: Node,
    peer: Peer,
}

async fn pair(transport: &str, name: &str, calls: u16, adapt: impl FnOnce(Builder) -> Builder) -> Pair {
    let address = match transport {
        "shm" => format!("shm:@pronto-tower-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let server =
        adapt(Node::builder(1).wait(WaitPolicy::Block).listen(&address)).start().expect("the server starts");
    let address = server.listening()[0].to_string();
    let limits = Limits { calls, ..Limits::default() };
    let client = Node::builder(2).wait(WaitPolicy::Block).limits(limits).peer(1, &address);
    let client = client.start().expect("the client starts");
    let peer = client.wait_for_peer_async(1, PATIENCE).await.expect("the nodes connect");
    Pair { server, _client: client, peer }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test does not hang") });
}

fn add(value: u64) -> Add {
    Add { values: vec![value, 1] }
}

/// Shows: adapters.tower
#[test]
fn a_service_answers_a_client_with_its_reply_or_its_error() {
    for transport in TRANSPORTS {
        run(async {
            let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(2)));
            let pair = pair(transport, "answers", 8, |server| serve(server, gated(&counts, &gate))).await;
            let client = Client::new(pair.peer.clone()).within(PATIENCE);
            assert_eq!(client.clone().oneshot(add(4)).await.expect("a reply").total, 5);
            match client.oneshot(Add { values: Vec::new() }).await {
                Err(CallError::Handler(error)) => {
                    assert_eq!(error.decode::<String>().expect("a text"), "nothing to add");
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

/// Shows: adapters.tower-ready
#[test]
fn a_client_sheds_load_while_a_call_waits_for_room() {
    for transport in TRANSPORTS {
        run(async {
            let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
            let pair = pair(transport, "sheds", 2, |server| serve(server, gated(&counts, &gate))).await;
            let client = Client::<Add>::new(pair.peer.clone()).within(PATIENCE);
            let mut shedding = ServiceBuilder::new().load_shed().service(client.clone());
            let mut calls = Vec::new();
            // Two calls have slots, and the third one waits for one.
            for value in 0..3 {
                calls.push(tokio::spawn(
                    shedding.ready().await.expect("a shedding service is ready").call(add(value)),
                ));
            }
            counts.until(|counts| counts.begun() == 2).await;
            let mut ready = client;
            assert!(ready.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
            let shed = shedding.ready().await.expect("a shedding service is ready").call(add(9)).await;
            assert!(shed.expect_err("the load is shed").is::<tower::load_shed::error::Overloaded>());
            let waits = tokio::spawn(async move { ready.ready().await.map(|_| ()) });
            gate.add_permits(3);
            waits.await.expect("no panic").expect("the client is ready when the third call has left");
            for (value, call) in (0..).zip(calls) {
                assert_eq!(call.await.expect("no panic").expect("a reply").total, value + 1);
            }
            assert_eq!(counts.begun(), 3, "the call that was shed was not sent");
        });
    }
}

#[test]
fn a_call_that_is_dropped_while_it_waits_for_room_leaves_the_client_ready() {
    run(async {
        let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let pair = pair("shm", "leaves", 1, |server| serve(server, gated(&counts, &gate))).await;
        let mut client = Client::<Add>::new(pair.peer.clone()).within(PATIENCE);
        let (_open, waits) = (client.call(add(1)), client.call(add(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(client.poll_ready(&mut context).is_pending());
        drop(waits);
        assert!(client.poll_ready(&mut context).is_ready());
    });
}

/// Shows: adapters.tower-timeout
#[test]
fn a_timeout_layer_cancels_the_callee() {
    for transport in TRANSPORTS {
        run(async {
            let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
            let pair = pair(transport, "timeout", 8, |server| serve(server, gated(&counts, &gate))).await;
            let client = Client::new(pair.peer.clone()).within(PATIENCE);
            // The time begins when the handler runs, however busy the machine is.
            let begun = Arc::clone(&counts);
            let mut call = Box::pin(client.oneshot(add(1)));
            tokio::select! {
                outcome = &mut call => panic!("{outcome:?}"),
                () = begun.until(|counts| counts.running() == 1) => {}
            }
            let late = ServiceBuilder::new()
                .timeout(Duration::from_millis(10))
                .service_fn(|call: Pin<Box<Oneshot<Client<Add>, Add>>>| call)
                .oneshot(call)
                .await;
            assert!(late.expect_err("the time is over").is::<tower::timeout::error::Elapsed>());
            counts.until(|counts| counts.running() == 0).await;
            assert_eq!(counts.begun(), 1);
        });
    }
}

/// Shows: adapters.tower-limit
#[test]
fn a_concurrency_limit_bounds_the_handlers() {
    for transport in TRANSPORTS {
        run(async {
            let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
            let limited = ServiceBuilder::new().concurrency_limit(3).service(gated(&counts, &gate));
            let pair = pair(transport, "limit", 64, |server| serve(server, limited)).await;
            let client = Client::new(pair.peer.clone()).within(PATIENCE);
            let calls: Vec<_> =
                (0..40).map(|value| tokio::spawn(client.clone().oneshot(add(value)))).collect();
            counts.until(|counts| counts.running() == 3).await;
            gate.add_permits(40);
            for (value, call) in (0..).zip(calls) {
                assert_eq!(call.await.expect("no panic").expect("a reply").total, value + 1);
            }
            assert_eq!((counts.begun(), counts.most.load(Ordering::SeqCst)), (40, 3));
        });
    }
}

/// Shows: adapters.tower-retry
#[test]
fn only_calls_that_were_not_executed_are_repeated() {
    run(async {
        let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(100)));
        let pair = pair("tcp", "retry", 8, |server| serve(server, gated(&counts, &gate))).await;
        let made = Arc::new(AtomicUsize::new(0));
        let client = Client::new(pair.peer.clone()).within(PATIENCE);
        let counted = {
            let made = Arc::clone(&made);
            service_fn(move |add: Add| {
                made.fetch_add(1, Ordering::SeqCst);
                client.clone().oneshot(add)
            })
        };
        let client = ServiceBuilder::new().retry(RetryUnexecuted::new(3)).service(counted);
        // An error of the handler: it was executed, so the call is not repeated.
        let error = client.clone().oneshot(Add { values: Vec::new() }).await.expect_err("an error");
        assert!(matches!(error, CallError::Handler(_)));
        assert_eq!((made.swap(0, Ordering::SeqCst), counts.begun()), (1, 1));
        // The peer goes away while the handler runs: it may have been executed.
        gate.forget_permits(100);
        let waits = tokio::spawn(client.clone().oneshot(add(1)));
        counts.until(|counts| counts.running() == 1).await;
        drop(pair.server);
        waits.await.expect("no panic").expect_err("the peer is gone");
        assert_eq!(made.swap(0, Ordering::SeqCst), 1, "a call that was executed is not repeated");
        // Nothing was sent, so the call is repeated as often as the policy says.
        let error = client.oneshot(add(1)).await.expect_err("the peer is gone");
        assert!(error.is_retryable(), "{error}");
        assert_eq!(made.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn the_program_in_the_documentation_is_the_example() {
    let page = include_str!("../../../docs/adapters.md");
    assert!(page.contains(include_str!("../examples/layers.rs")));
}

//! Empty polls of an idle link over shared memory, from one ring up to a session's turn.

use core::hint::black_box;

use criterion::Criterion;
use pronto::rpc::NodeId;
use pronto_bench::pair::{Nobody, Still};
use pronto_core::fabric::{
    InlineMessage, MessageSlot, PollOutcome, QueuePair as _, ShortMessage, poll_by_value,
};
use pronto_core::session::{Authenticated, Identity, Limits, Links, Session, agree, greet};
use pronto_fabric_shm::{Link, ShmQueuePair};
use pronto_wire::{Class, Epoch, SessionId};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("empty-poll");
    let still = Still::alone();
    let (session, mut far) = idle(&still);
    let (mut inline, mut short) = (InlineMessage::default(), ShortMessage::default());
    let mut poll =
        |qp: &mut ShmQueuePair| poll_idle(qp, MessageSlot { inline: &mut inline, short: &mut short });
    group.bench_function("queue-pair", |bencher| bencher.iter(|| poll(&mut far.control)));
    group.bench_function("both-queue-pairs", |bencher| {
        bencher.iter(|| (poll(&mut far.control), poll(&mut far.bulk)));
    });
    group.bench_function("session-turn", |bencher| {
        bencher.iter(|| {
            let progress = black_box(&session).turn(1, || false, &mut Nobody, &still);
            assert_eq!(progress.map(|progress| progress.moved), Some(0), "the link is idle");
        });
    });
    group.finish();
}

/// Polls both queues of a queue pair, which are empty.
fn poll_idle(qp: &mut ShmQueuePair, slot: MessageSlot<'_>) {
    let is_idle = qp.poll_send().is_none() && matches!(qp.poll(slot), Ok(PollOutcome::Nothing));
    assert!(is_idle, "the link is idle");
}

/// Returns a session with a link, and the link's other end, which sends nothing.
fn idle(still: &Still<ShmQueuePair>) -> (Session<ShmQueuePair>, Link) {
    let limits = Limits::default();
    let identity =
        |node| Identity { node: NodeId(node), epoch: Epoch(1), name: String::new(), types: Vec::new() };
    let (me, other) = (identity(1), identity(2));
    let id = SessionId(1);
    let theirs = greet(&other, &limits, me.node, Some(id));
    let agreement =
        agree(&me, &limits, Authenticated::claimed(theirs), id, None).expect("two that greet alike agree");
    let (near, mut far) =
        Link::pair(Class::ALL.map(|class| agreement.connection(class))).expect("memory is there");
    let session = Session::new(other.node, limits);
    session.install(Links { pairs: [near.control, near.bulk], agreement }, &mut Nobody, still);
    // The first messages of a new link have to be processed before it is idle.
    while session.turn(1, || false, &mut Nobody, still).is_some_and(|progress| progress.moved != 0) {}
    for qp in [&mut far.control, &mut far.bulk] {
        while poll_by_value(qp).expect("alive").is_some() {}
    }
    (session, far)
}

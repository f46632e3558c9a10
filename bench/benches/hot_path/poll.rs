//! Empty polls: what a look at an idle link over shared memory takes, from one ring up to a session's turn.

use core::hint::black_box;

use criterion::Criterion;
use pronto::rpc::NodeId;
use pronto_core::fabric::{
    InlineMessage, MessageSlot, PollOutcome, QueuePair as _, ShortMessage, poll_by_value,
};
use pronto_core::session::{Identity, Limits, Links, Session, agree, greet};
use pronto_fabric_shm::{Link, ShmQueuePair};
use pronto_wire::{Class, Epoch, SessionId};

use crate::still::{Nobody, Still};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("empty-poll");
    let (session, mut far) = idle();
    let (mut inline, mut short) = (InlineMessage::default(), ShortMessage::default());
    let mut look = |qp: &mut ShmQueuePair| look(qp, MessageSlot { inline: &mut inline, short: &mut short });
    group.bench_function("queue-pair", |bencher| bencher.iter(|| look(&mut far.control)));
    group.bench_function("both-queue-pairs", |bencher| {
        bencher.iter(|| (look(&mut far.control), look(&mut far.bulk)));
    });
    group.bench_function("session-turn", |bencher| {
        bencher.iter(|| {
            let progress = black_box(&session).turn(1, || false, &mut Nobody, &Still);
            assert_eq!(progress.map(|progress| progress.moved), Some(0), "the link is idle");
        });
    });
    group.finish();
}

/// Both queues of a queue pair, which have nothing.
fn look(qp: &mut ShmQueuePair, slot: MessageSlot<'_>) {
    let is_idle = qp.poll_send().is_none() && matches!(qp.poll(slot), Ok(PollOutcome::Nothing));
    assert!(is_idle, "the link is idle");
}

/// A session with a link, and the link's other end, of which nothing comes.
fn idle() -> (Session<ShmQueuePair>, Link) {
    let limits = Limits::default();
    let identity =
        |node| Identity { node: NodeId(node), epoch: Epoch(1), name: String::new(), types: Vec::new() };
    let (me, other) = (identity(1), identity(2));
    let id = SessionId(1);
    let theirs = greet(&other, &limits, me.node, Some(id));
    let agreement = agree(&me, &limits, theirs, id, None).expect("two that greet alike agree");
    let (near, mut far) =
        Link::pair(Class::ALL.map(|class| agreement.connection(class))).expect("memory is there");
    let session = Session::new(other.node, limits);
    session.install(Links { pairs: [near.control, near.bulk], agreement }, &mut Nobody, &Still);
    // What a new link says first is not idleness.
    while session.turn(1, || false, &mut Nobody, &Still).is_some_and(|progress| progress.moved != 0) {}
    for qp in [&mut far.control, &mut far.bulk] {
        while poll_by_value(qp).expect("alive").is_some() {}
    }
    (session, far)
}

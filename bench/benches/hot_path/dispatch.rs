//! Dispatch: a turn in a lane, the key of a message that is ordered by it, and a handler from bytes to reply.

use core::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use pronto::Message;
use pronto::rpc::codec::encode_message;
use pronto::rpc::handler::Incoming;
use pronto::rpc::{NodeId, Route};
use pronto_bench::pair::Still;
use pronto_core::Nanos;
use pronto_core::dispatch::Lanes;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Limits, Response, Session, TokenSlot};
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_wire::{Class, InlinePayload};

use crate::codec::Small;

#[derive(Message, Debug)]
#[message(name = "bench.keyed", reply = Small, order = by_key(address))]
struct Keyed {
    address: u64,
    task: u32,
}

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch");
    for others in [0, OTHERS] {
        group.bench_function(format!("lane/{others}-others"), |bencher| {
            let mut lanes = Lanes::new();
            for lane in 1..=others {
                lanes.push(lane, 0_u64);
            }
            bencher.iter(|| {
                let turn = lanes.push(black_box(0), 7).expect("an idle lane runs immediately");
                (turn, lanes.finish(&0))
            });
        });
    }
    let request = Keyed { address: 1 << 40, task: 7 };
    let mut bytes = [0; 40];
    let len = encode_message(&request, &mut bytes).expect("it is small");
    let route = Route::<Still<ShmQueuePair>>::inline(|_, keyed: Keyed| Small {
        address: keyed.address,
        task: keyed.task,
        value: 1,
        wakes: true,
    });
    group.bench_function("key", |bencher| {
        bencher.iter(|| route.lane_of(black_box(&bytes[..len])).expect("it was encoded"));
    });
    let host = Arc::new(Still::alone());
    let session = Arc::new(Session::new(NodeId(2), Limits::default()));
    let incoming = Incoming::new(None, &session, &host, Nanos::NEVER);
    let payload = InlinePayload::new(&bytes[..len]).expect("it is small");
    let handled = |payload: &InlinePayload| {
        let mut slot = TokenSlot::unowed(None, Class::Control);
        route.run(&incoming, Arrived::<ShmLease>::Inline(*payload), slot.token());
        slot.into_response()
    };
    assert!(matches!(handled(&payload), Some(Response::Reply { .. })), "the handler replies");
    group.bench_function("handler", |bencher| bencher.iter(|| handled(black_box(&payload))));
    group.finish();
}

/// Number of busy lanes, as in a busy node.
const OTHERS: u64 = 64;

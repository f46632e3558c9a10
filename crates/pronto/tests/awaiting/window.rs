//! Windows grow while calls are open, as far as both sides allow.

use std::collections::BTreeSet;

use pronto::Limits;

use crate::executor::Executor;
use crate::rig::{Held, LONG, Page, Pair, Sum, TRANSPORTS, pair_with};

/// Spawns `count` tasks that each call with a request that the test answers.
fn spawn<'a>(executor: &mut Executor<'a>, pair: &'a Pair, count: u64) {
    for number in 0..count {
        executor.spawn(async move {
            let sum = pair.peer.call_async_within(&Held { number }, LONG).await.unwrap();
            assert_eq!(sum.total, number);
        });
    }
}

/// Shows: calls.window-grows
#[test]
fn thousands_of_calls_are_open_at_the_same_time() {
    const CALLS: u16 = 3_000;
    for transport in TRANSPORTS {
        let limits = Limits { requests: [CALLS; 2], ..Limits::default() };
        assert!(limits.first_requests[0] < 100, "a link begins with a small window");
        let pair = pair_with(transport, "thousands", CALLS, |server| server.limits(limits));
        let mut executor = Executor::default();
        spawn(&mut executor, &pair, CALLS.into());
        let mut held = Vec::new();
        // None is answered before all have arrived.
        executor.run_until("all requests arrive", |_| {
            held.extend(core::iter::from_fn(|| pair.try_received()));
            held.len() == usize::from(CALLS)
        });
        let numbers: BTreeSet<_> = held.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), held.len(), "{transport}: each arrives once");
        for (number, responder) in held {
            responder.reply(&Sum { total: number });
        }
        executor.run_all();
    }
}

/// Shows: calls.window-grows
#[test]
fn a_window_grows_to_its_limit_only() {
    const LIMIT: u16 = 100;
    for transport in TRANSPORTS {
        let limits = Limits { requests: [LIMIT; 2], first_requests: [3, 3], ..Limits::default() };
        let pair = pair_with(transport, "limit", 1_000, |server| {
            server.limits(limits).handle_inline(|_, page: Page| Sum { total: page.bytes.len() as u64 })
        });
        let mut executor = Executor::default();
        spawn(&mut executor, &pair, 150);
        let mut held = Vec::new();
        executor.run_until("the window is used", |_| {
            held.extend(core::iter::from_fn(|| pair.try_received()));
            held.len() == usize::from(LIMIT)
        });
        // Another request of the same class would have arrived before this reply, or with the next one.
        for _ in 0..10 {
            assert_eq!(pair.peer.call(&Page { bytes: vec![0; 7] }).unwrap().total, 7);
        }
        assert!(pair.is_empty(), "{transport}: more requests are in flight than the server allows");
        for (number, responder) in held {
            responder.reply(&Sum { total: number });
        }
        let mut others = 0;
        executor.run_until("the others arrive", |_| {
            while let Some((number, responder)) = pair.try_received() {
                responder.reply(&Sum { total: number });
                others += 1;
            }
            others == 150 - LIMIT
        });
        executor.run_all();
    }
}

//! A window that grows while it is full, and a link that begins with a small window again while many calls are open.

use pronto_core::Nanos;
use pronto_core::session::{Limits, OutgoingPayload, SendError};
use pronto_sim::SimOptions;
use pronto_wire::{CallId, Class};

use super::pair::{Outcome, Pair, Room, spec};

const FIRST: u16 = 2;
const LIMIT: u16 = 30;

fn limits() -> Limits {
    Limits {
        calls: 40,
        requests: [LIMIT; 2],
        first_requests: [FIRST; 2],
        send_memory: [1 << 20; 2],
        ..Limits::default()
    }
}

/// Makes calls of the near side until one is refused for lack of a credit.
fn fill(pair: &Pair, calls: &mut Vec<CallId>) {
    loop {
        let number = (calls.len() as u64).to_le_bytes();
        let payload = OutgoingPayload::inline(&number).expect("eight bytes fit an inline message");
        match pair.near.call(&spec(Class::Control, Nanos::NEVER), payload, &pair.executor) {
            Ok(call) => calls.push(call),
            Err(refused) => {
                assert_eq!(refused, SendError::NoCredit { class: Class::Control });
                return;
            }
        }
    }
}

/// Shows: protocol.window-update
#[test]
fn a_full_window_doubles_up_to_its_limit() {
    for options in [SimOptions::like_shm(), SimOptions::like_tcp()] {
        let mut pair = Pair::new(options, limits());
        let mut calls = Vec::new();
        for expected in [2, 4, 8, 16, 30, 30] {
            fill(&pair, &mut calls);
            assert_eq!(calls.len(), expected);
            pair.turn();
        }
        assert_eq!(pair.callee.numbers(), (0..LIMIT.into()).collect::<Vec<u64>>());
        let asked = core::mem::take(&mut pair.callee.asked);
        asked.iter().for_each(|asked| pair.respond(asked));
        pair.turn();
        assert!(calls.iter().all(|call| pair.outcome(*call) == Outcome::Reply));
        assert_eq!(pair.near.credits(Class::Control), LIMIT.into(), "each credit came back");
        assert_eq!(pair.near.credits(Class::Bulk), FIRST.into(), "the other class has its own window");
    }
}

/// Shows: protocol.window-update
#[test]
fn requests_that_are_sent_again_make_the_window_of_the_next_link_grow() {
    let mut pair = Pair::new(SimOptions::like_tcp(), limits());
    let mut calls = Vec::new();
    for _ in 0..5 {
        fill(&pair, &mut calls);
        pair.turn();
    }
    assert_eq!(calls.len(), usize::from(LIMIT));
    pair.cut();
    let before = pair.callee.asked.len();
    pair.link(Room { requests: LIMIT, send_memory: 1 << 20 });
    pair.turn();
    assert_eq!(pair.callee.asked.len(), before, "duplicates are dropped");
    assert_eq!(pair.exchanged().requests, LIMIT.into(), "each request was sent again");
    let asked = core::mem::take(&mut pair.callee.asked);
    asked.iter().for_each(|asked| pair.respond(asked));
    pair.turn();
    assert!(calls.iter().all(|call| pair.outcome(*call) == Outcome::Reply));
}

//! Lost wake-ups: none occurs with many blocking senders.

use pronto::WaitPolicy;

use crate::rig::{Add, TRANSPORTS, client, counter, shared_run, started};

/// Shows: operations.handovers
#[test]
fn eight_blocking_senders_lose_no_wake_up() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "lost_wake_ups");
        let (caller, peer) = client(2, &address);
        let calls = if std::env::var_os("PRONTO_SOAK").is_some() { 100_000 } else { 10_000 };
        std::thread::scope(|scope| {
            for sender in 0..8 {
                let peer = peer.waiting(WaitPolicy::Block);
                scope.spawn(move || {
                    for n in 0..calls {
                        assert_eq!(peer.call(&Add { values: vec![sender, n] }).unwrap().total, sender + n);
                    }
                });
            }
        });
        assert_eq!(counter(&caller, 1, "lost_wake_ups"), 0, "{transport}: a caller's wake-up was lost");
        assert_eq!(
            counter(&node, 2, "lost_wake_ups"),
            0,
            "{transport}: the serving thread's wake-up was lost"
        );
        assert!(counter(&caller, 1, "handovers") > 0, "the senders must hand over the poller role");
    }
}

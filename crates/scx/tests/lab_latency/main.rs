//! Time until a message reaches its handler while other processes compute on the handler's CPU, and the sender is on another CPU: without
//! the scheduler, with it, with a flag, and as a real-time thread. All times are virtual.
//!
//! In some boots the quantum of virtual time (docs/measuring.md) adds milliseconds to more than a tenth of the delays. The test therefore
//! compares with always-FIFO by the median. lab_one_cpu compares the 90th percentiles, also with that of an unflagged handler.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../machine/mod.rs"]
mod machine;
#[path = "../pings/mod.rs"]
mod pings;

use pronto_scx::Flags as _;

use machine::{Alone, Hogs, load, pin};
use pings::{Ends, HANDLER, PINGS, ROUNDS, SETTINGS, Setting, figures, round, tcp, unix};

/// CPU of the sender.
const SENDER: usize = 1;

/// Nice values of the hogs.
const HOGS: [i32; 6] = [0; 6];

/// Checks that a flag makes the handler's median delay close to that of always-FIFO, and its 90th percentile `factor` times shorter than under the
/// kernel's own scheduler.
fn check_boost(name: &str, connect: fn() -> Ends, factor: u32) {
    let _alone = Alone::take();
    pin(SENDER);
    let _hogs = Hogs::start(&HANDLER.to_string(), &HOGS);
    println!("{name}, {} hogs, {} messages for each setting", HOGS.len(), ROUNDS * PINGS);
    let kernel: Vec<_> = (0..ROUNDS).map(|_| round(connect(), Setting::Unflagged, None)).collect();
    let kernel = figures("kernel's own", &kernel);
    let loaded = load();
    let mut rounds = [const { Vec::new() }; SETTINGS.len()];
    for _ in 0..ROUNDS {
        for (rounds, setting) in rounds.iter_mut().zip(SETTINGS) {
            rounds.push(round(connect(), setting, Some(&loaded)));
        }
    }
    let [_unflagged, flagged, fifo] =
        [0, 1, 2].map(|index| figures(&format!("{:?}", SETTINGS[index]), &rounds[index]));
    let counters = loaded.counters();
    println!("{counters:?}");
    assert_eq!(loaded.exit(), None);
    let messages = u64::try_from(ROUNDS * PINGS).unwrap();
    assert!(counters.boosts * 100 >= messages * 95, "{} of {messages} were boosted", counters.boosts);
    assert!(10 * flagged.p50 <= 16 * fifo.p50, "{flagged:?} with a flag, {fifo:?} with always-FIFO");
    assert!(
        factor * flagged.p90 <= kernel.p90,
        "{flagged:?} with a flag, {kernel:?} with the kernel's own scheduler"
    );
}

/// Shows: operations.scx
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_thread_at_a_unix_socket_is_nearly_as_fast_as_always_fifo() {
    check_boost("unix socket", unix, 4);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_thread_at_a_tcp_connection_is_nearly_as_fast_as_always_fifo() {
    check_boost("tcp", tcp, 3);
}

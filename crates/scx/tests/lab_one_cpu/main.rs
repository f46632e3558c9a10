//! Time until a message reaches its handler on a machine with one CPU, on which other processes compute and a real-time thread sends. With
//! one CPU, virtual time has no quantum (docs/measuring.md).
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../machine/mod.rs"]
mod machine;
#[path = "../pings/mod.rs"]
mod pings;

use pronto_scx::Flags as _;

use machine::{Alone, Hogs, load};
use pings::{Ends, HANDLER, PINGS, ROUNDS, SETTINGS, Setting, figures, round, set_fifo, tcp, unix};

/// Nice values of the hogs.
const HOGS: [i32; 6] = [0; 6];

/// Checks that a flag makes the handler's delay close to that of always-FIFO, and `factor` times shorter than without a flag.
fn check_boost(name: &str, connect: fn() -> Ends, factor: u32) {
    let _alone = Alone::take();
    let _hogs = Hogs::start(&HANDLER.to_string(), &HOGS);
    println!("{name}, {} hogs, {} messages for each setting", HOGS.len(), ROUNDS * PINGS);
    // This thread sends.
    set_fifo();
    let kernel: Vec<_> = (0..ROUNDS).map(|_| round(connect(), Setting::Unflagged, None)).collect();
    figures("kernel's own", &kernel);
    let loaded = load();
    let mut rounds = [const { Vec::new() }; SETTINGS.len()];
    for _ in 0..ROUNDS {
        for (rounds, setting) in rounds.iter_mut().zip(SETTINGS) {
            rounds.push(round(connect(), setting, Some(&loaded)));
        }
    }
    let [unflagged, flagged, fifo] =
        [0, 1, 2].map(|index| figures(&format!("{:?}", SETTINGS[index]), &rounds[index]));
    let counters = loaded.counters();
    println!("{counters:?}");
    assert_eq!(loaded.exit(), None);
    let messages = u64::try_from(ROUNDS * PINGS).unwrap();
    assert!(counters.boosts * 100 >= messages * 95, "{} of {messages} were boosted", counters.boosts);
    assert!(10 * flagged.p90 <= 16 * fifo.p90, "{flagged:?} with a flag, {fifo:?} with always-FIFO");
    assert!(factor * flagged.p90 <= unflagged.p90, "{flagged:?} with a flag, {unflagged:?} without");
}

/// Shows: operations.scx
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_shortens_the_delay_of_a_unix_socket() {
    check_boost("unix socket, one CPU", unix, 15);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_shortens_the_delay_of_a_tcp_connection() {
    check_boost("tcp, one CPU", tcp, 6);
}

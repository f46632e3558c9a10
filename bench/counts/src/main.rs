//! Fixed scenarios whose instructions are counted. Everything runs in one thread and nothing waits, so that a scenario
//! executes the same instructions each time, on an idle machine and on a busy one.
//!
//! `cargo xtask counts` runs this program under callgrind, which writes its counters out when the program enters
//! [`counted_boundary`]. Each scenario is counted twice, with [`CALLS`] repetitions and with twice as many. The
//! difference is the cost of [`CALLS`] repetitions, without the work before and after.
//!
//! Without callgrind, the program runs as well: it checks every reply, and prints the scenario of each region.

#![forbid(unsafe_code)]

mod message;
// Compiled into this program, which therefore does not link the experiments: they would change which functions are inlined, and their
// features those of the libraries.
#[path = "../../src/pair.rs"]
#[expect(dead_code, unreachable_pub, reason = "the library's module, of which the scenarios use a part")]
mod pair;
mod parts;
mod peers;
mod scenarios;

use core::hint::black_box;

use crate::pair::{shm_link, tcp_link};
use anyhow::Context as _;
use scenarios::Pair;

/// Number of repetitions of a scenario in the first region.
const CALLS: u32 = 200;

/// Enough repetitions to allocate all memory used on first use, and to wrap every ring around.
const WARM_UP: u32 = 600;

fn main() -> anyhow::Result<()> {
    calls("shm", &Pair::new(shm_link)?)?;
    calls("tcp", &Pair::new(tcp_link)?)?;
    peers::run()?;
    parts::run()
}

/// Marks the start or end of a counted region. At its entry, callgrind writes out its counters and resets them: every
/// second file belongs to a region.
#[inline(never)]
fn counted_boundary(scenario: &str) {
    black_box(scenario);
}

/// Runs a scenario: first to warm up, then in two regions.
pub(crate) fn count(name: &str, mut scenario: impl FnMut()) {
    for _ in 0..WARM_UP {
        scenario();
    }
    for times in [CALLS, 2 * CALLS] {
        println!("{name} {times}");
        counted_boundary(name);
        for _ in 0..times {
            scenario();
        }
        counted_boundary(name);
    }
}

fn calls<Q: pronto_core::fabric::QueuePair + 'static>(provider: &str, pair: &Pair<Q>) -> anyhow::Result<()> {
    pair.call_32(7).context("the first call of 32 bytes")?;
    pair.call_200(7).context("the first call of 200 bytes")?;
    pair.send_64(7).context("the first send of 64 bytes")?;
    count(&format!("call-{provider}-32"), || {
        pair.call_32(black_box(7)).expect("both nodes live");
    });
    count(&format!("call-{provider}-200"), || {
        pair.call_200(black_box(7)).expect("both nodes live");
    });
    count(&format!("send-{provider}-64"), || {
        pair.send_64(black_box(7)).expect("both nodes live");
    });
    count(&format!("window-{provider}-32"), || {
        pair.window_32(black_box(7)).expect("both nodes live");
    });
    count(&format!("idle-turn-{provider}"), || pair.idle_turn());
    count(&format!("loan-{provider}-4096"), || pair.loan());
    Ok(())
}

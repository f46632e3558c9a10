//! Fixed scenarios whose instructions are counted. Everything runs in one thread and nothing waits, so that a scenario carries
//! out the same instructions each time, on an idle machine and on a busy one.
//!
//! `cargo xtask counts` runs this program under callgrind, which writes its counters out when it enters
//! [`counted_boundary`]. Each scenario is counted twice, with [`CALLS`] and with twice as many; the
//! difference is what so many calls take, without what comes before and after.
//!
//! Without callgrind the program runs all the same: it checks every answer, and prints which region is which scenario.

#![forbid(unsafe_code)]

mod message;
mod parts;
mod peers;
mod scenarios;

use core::hint::black_box;

use anyhow::Context as _;
use pronto_counts::pair::{shm_link, tcp_link};
use scenarios::Pair;

/// How often a scenario is carried out, the first time.
const CALLS: u32 = 200;

/// Enough for memory that is made on first use, and for every ring to have gone round.
const WARM_UP: u32 = 600;

fn main() -> anyhow::Result<()> {
    calls("shm", &Pair::new(shm_link)?)?;
    calls("tcp", &Pair::new(tcp_link)?)?;
    peers::run()?;
    parts::run()
}

/// Where a counted region begins, or ends. Entering this, callgrind writes out what it has counted so far, and starts again
/// from zero: every second of its files is a region's.
#[inline(never)]
fn counted_boundary(scenario: &str) {
    black_box(scenario);
}

/// Carries a scenario out: warm first, then twice in a region.
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

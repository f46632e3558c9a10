//! Send memory that was needed for a moment: it stays ready for a while, as the next burst may need it, and is then freed.

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::SimOptions;
use pronto_wire::Class;

use super::pair::{Pair, few};

/// Time between two checks for idle memory.
const CHECK: Nanos = Nanos::from_millis(250);

#[test]
fn a_chunk_is_freed_at_the_second_check_that_finds_it_idle() {
    let mut pair = Pair::new(SimOptions::like_verbs(), Limits { send_memory: [16 << 20; 2], ..few() });
    let open_chunks = |pair: &Pair| pair.near.ring_stats(Class::Bulk).expect("there is a link").open_chunks;
    let before = open_chunks(&pair);
    let held: Vec<_> =
        (0..3).map(|_| pair.near.loan(Class::Bulk, 1 << 20, 0).expect("a chunk has room")).collect();
    pair.pass(Nanos::from_millis(4));
    assert_eq!(open_chunks(&pair), before + 1, "another chunk is made ready");
    drop(held);
    pair.pass(Nanos(CHECK.0 - Nanos::from_millis(10).0));
    assert_eq!(open_chunks(&pair), before + 1, "at most one check has found it idle");
    pair.pass(Nanos(2 * CHECK.0));
    assert_eq!(open_chunks(&pair), before);
}

//! The end of a peer's process. The thread that sees it names the session of the process's link, because another thread may have begun a
//! session with the peer's next process meanwhile.

use pronto_sim::SimOptions;
use pronto_wire::SessionId;

use super::pair::{Nothing, Pair, few};

#[test]
fn the_end_of_an_earlier_process_does_not_end_the_session_of_the_next() {
    let pair = Pair::new(SimOptions::like_shm(), few());
    let present = pair.near.info(&pair.executor).expect("the session has begun").session;
    let earlier = SessionId(present.0 - 1);
    assert!(!pair.near.take_down_died(earlier, &mut Nothing, &pair.executor));
    assert!(pair.near.is_linked(&pair.executor), "the session of the living process is not affected");
    assert!(pair.near.take_down_died(present, &mut Nothing, &pair.executor));
    assert!(!pair.near.is_up(), "the session of the process that ended has ended");
    assert!(!pair.near.take_down_died(present, &mut Nothing, &pair.executor), "it ends once");
}

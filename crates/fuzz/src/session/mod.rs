//! A whole session with a peer that sends any frames: the engine that nodes use, over a simulated connection.
//!
//! The input is a sequence of steps of both sides. Some steps of the peer are those of a correct peer, so that inputs reach deep states;
//! others send any frame. [`peer`] has the peer and its records, [`side`] this side and its records. [`mod@play`] compares them.
//!
//! # Invariants that every input keeps
//! 1. No panic, neither of the session nor of its assertions.
//! 2. A call of this side ends exactly once: with a response that the peer sent for that call, at its deadline, or with the session.
//! 3. A request of the peer is delivered at most once in a session, as it was sent.
//! 4. This side holds no more requests than its window permits, whatever the peer sends.
//! 5. This side sends only valid frames, each request once on a link, and at most one response for each request on a link.
//! 6. If the link still exists at the end, every delivered request has its response, and a correct peer can call and be called.
//! 7. Headers of this side have its pressure if both sides have agreed on that, and are of a kind that may have it; else none.
//! 8. After the session nothing is left: no open call, no held payload.

mod peer;
mod play;
mod side;

use play::play;

/// Plays an input; see the module.
pub fn session(input: &[u8]) {
    let _played = play(input);
}

#[cfg(test)]
mod tests {
    use super::peer::OF_PEER;
    use super::play;

    /// Inputs that find no fault because nothing happens in them would be worthless.
    #[test]
    fn seeds_reach_the_states_that_they_are_named_for() {
        let correct = play(include_bytes!("../../seeds/session/correct"));
        assert!(correct.linked && correct.delivered >= 7 && correct.replies >= 7, "{correct:?}");
        let resumed = play(include_bytes!("../../seeds/session/resumed"));
        assert!(resumed.linked && resumed.links == 4 && resumed.delivered >= 4, "{resumed:?}");
        let replaced = play(include_bytes!("../../seeds/session/replaced"));
        assert!(replaced.linked && replaced.links == 3, "{replaced:?}");
        let stale = play(include_bytes!("../../seeds/session/stale"));
        assert!(stale.linked && stale.replies >= 2, "{stale:?}");
        let declined = play(include_bytes!("../../seeds/session/pause_declined"));
        assert!(declined.linked && declined.asks_for_pause, "{declined:?}");
        let accepted = play(include_bytes!("../../seeds/session/pause_accepted"));
        assert!(!accepted.linked && accepted.asks_for_pause && accepted.pauses == 1, "{accepted:?}");
        let pressure = play(include_bytes!("../../seeds/session/pressure"));
        assert!(pressure.linked && pressure.delivered >= 7 && pressure.replies >= 7, "{pressure:?}");
        assert!(pressure.pressure >= OF_PEER, "{pressure:?}");
        for corrupt in [
            &include_bytes!("../../seeds/session/flood")[..],
            include_bytes!("../../seeds/session/unknown_kind"),
            include_bytes!("../../seeds/session/acknowledges_too_much"),
        ] {
            let corrupt = play(corrupt);
            assert!(!corrupt.linked, "the peer broke the protocol: {corrupt:?}");
        }
    }
}

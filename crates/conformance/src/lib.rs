//! Conformance suite of the fabric: the contract of [`pronto_core::fabric::QueuePair`] as tests.
//!
//! A provider implements [`Harness`], which makes connected pairs of its queue pairs, and calls [`run`]:
//!
//! ```text
//! #[test]
//! fn conformance() {
//!     let summary = pronto_conformance::run(&MyHarness::new());
//!     summary.announce();
//!     summary.assert_complete(&[Capability::GlobalAtomics]); // what this provider lacks
//! }
//! ```
//!
//! There is one file under `chapters/` per subject. The tests drive queue pairs as the engine does (see the order of
//! calls in the documentation of the fabric), on the calling thread unless a test is about threads.
//! [`Harness::patience`] limits every wait. If a call does not return, a watchdog ends the process and names the test.
//! The duration of a test is not limited: over an emulated device, some take minutes.
//!
//! # Checks in every test
//! 1. Each message arrives once, in the order of posting, with the posted header (except its fabric word) and payload.
//! 2. Each signalled work request completes once, unsignalled ones never.
//! 3. A buffer is overwritten as soon as its work request completes as done, so a completion that comes too early
//!    corrupts the received payload.
//! 4. No more messages are in flight or held in leases than the agreed depth.
//!
//! # Assumptions that it does not make
//! A send completion may come before or after the message arrives, and before or after its lease is dropped. A refused
//! one-sided access may end the connection. Completions may come in any order.
#![deny(unsafe_code)]

mod channel;
mod chapters;
mod memory;
mod random;
mod rig;
mod suite;
mod summary;
mod watchdog;

use std::thread;

use pronto_core::fabric::{ConnectionLimits, QueuePair, Region};

pub use suite::{run, run_chapter};
pub use summary::{Capability, Ended, Outcome, Summary};

/// Factory of a provider's queue pairs for the suite.
pub trait Harness {
    /// The provider's queue pair.
    type Qp: QueuePair;
    /// State that keeps a pair connected in addition to its two ends, and that carries its messages if they do not move
    /// by themselves. Belongs to one pair.
    type Link;

    /// Returns the provider's name, as in its capabilities.
    fn name(&self) -> &'static str;

    /// Returns two connected queue pairs of one class. `limits` are those of end `a`; end `b` has
    /// [`ConnectionLimits::mirrored`]. All pairs of a harness connect the same nodes, but never share a queue pair.
    fn pair(&self, limits: ConnectionLimits) -> Pair<Self::Qp, Self::Link>;

    /// Returns memory that may be granted on, and sent from, any queue pair of this harness. The harness must not keep
    /// a clone.
    fn region(&self, len: usize) -> Region;

    /// Lets the transport make progress after polling found nothing: a simulation advances its clock, others let
    /// threads run.
    fn settle(&self, _link: &mut Self::Link) {
        thread::yield_now();
    }

    /// Cuts the connection as an unplugged cable or a killed process would, while both ends live. Returns false if the
    /// harness cannot do this.
    fn break_link(&self, _link: &mut Self::Link) -> bool {
        false
    }

    /// Returns whether a sleeper on the queue pair's channel would wake now, or `None` if there is no channel.
    fn event(&self, qp: &Self::Qp) -> Option<bool> {
        qp.channel().map(|channel| channel::is_ready(channel.fd, channel.interest))
    }

    /// Returns the number of unsuccessful rounds of polling after which a test gives up.
    fn patience(&self) -> u32 {
        500_000
    }
}

/// Two connected queue pairs.
#[derive(Debug)]
pub struct Pair<Q, L> {
    /// One end.
    pub a: Q,
    /// Other end.
    pub b: Q,
    /// State that keeps them connected.
    pub link: L,
}

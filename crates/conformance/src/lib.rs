//! The conformance suite of the fabric seam: what [`pronto_core::fabric::QueuePair`] promises, as tests.
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
//! One file under `chapters/` per subject. The tests drive queue pairs as the engine does (see the order of calls in
//! the seam's documentation), on the calling thread but where a test is about threads. Every wait is bounded by
//! [`Harness::patience`], and a call that does not return by a watchdog that ends the process and names the test. How long a test
//! takes is not bounded: some take minutes over an emulated device.
//!
//! # What the suite checks in every test, whatever it is about
//! 1. Each message arrives once, in the order of posting, with the header (but for its fabric word) and payload that
//!    were posted.
//! 2. Each signalled work request completes once, unsignalled ones never.
//! 3. A buffer is overwritten as soon as its work request completes as done, so a completion that comes too early
//!    corrupts what arrives.
//! 4. No more messages are in flight or held in leases than the agreed depth.
//!
//! # What it does not assume
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

/// How a provider's queue pairs come into being, for the suite.
pub trait Harness {
    /// The provider's queue pair.
    type Qp: QueuePair;
    /// What keeps a pair connected besides its two ends, and what carries its messages if they do not move by
    /// themselves. Belongs to one pair.
    type Link;

    /// The provider's name, as in its capabilities.
    fn name(&self) -> &'static str;

    /// Two connected queue pairs of one class; `limits` as end `a` sees them, [`ConnectionLimits::mirrored`] for end `b`. All pairs of a
    /// harness lie between the same two nodes, or between more, but never share a queue pair.
    fn pair(&self, limits: ConnectionLimits) -> Pair<Self::Qp, Self::Link>;

    /// Memory that may be granted on, and sent from, any queue pair of this harness. The harness keeps no clone.
    fn region(&self, len: usize) -> Region;

    /// Lets the transport move when polling gave nothing: a simulation advances its clock, others let threads run.
    fn settle(&self, _link: &mut Self::Link) {
        thread::yield_now();
    }

    /// Cuts the connection as a pulled cable or a killed process would, both ends alive. False if there is no way.
    fn break_link(&self, _link: &mut Self::Link) -> bool {
        false
    }

    /// Whether a sleeper on the queue pair's channel would wake now; none if there is no channel.
    fn event(&self, qp: &Self::Qp) -> Option<bool> {
        qp.channel().map(|channel| channel::is_ready(channel.fd, channel.interest))
    }

    /// Fruitless rounds of polling after which a test gives up.
    fn patience(&self) -> u32 {
        500_000
    }
}

/// Two connected queue pairs.
#[derive(Debug)]
pub struct Pair<Q, L> {
    /// One end.
    pub a: Q,
    /// The other.
    pub b: Q,
    /// What keeps them connected.
    pub link: L,
}

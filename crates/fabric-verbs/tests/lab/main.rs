//! The provider on soft-RoCE devices: the conformance suite, and tests of behaviour specific to verbs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod arming;
mod conformance;
mod faults;
mod forks;
mod grants;
mod pair;
mod peer;
mod pin_limit;
mod place;
mod receivers;
mod registration;
mod removal;
mod returned;

// SPDX-License-Identifier: GPL-2.0
//! A module that greets, and computes a decision of `crates/sched-policy`: the proof that one source serves both worlds,
//! and that C objects can be linked in.

use kernel::prelude::*;

#[path = "../../crates/sched-policy/src/policy/mod.rs"]
pub mod policy;

use policy::boost::{step, Action, Event, Phase, Terms};
use policy::caps::Accounts;
use policy::time::Nanos;

module! {
    type: Hello,
    name: "hello",
    authors: ["The Pronto authors"],
    description: "Greets, and asks the scheduling policy for a boost",
    license: "GPL",
}

extern "C" {
    /// From numbers.c.
    fn hello_in_interrupt() -> kernel::ffi::c_int;
}

/// The loaded module.
struct Hello;

impl kernel::Module for Hello {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: the function takes nothing and reads a counter of this processor.
        let in_interrupt = unsafe { hello_in_interrupt() };
        let terms = Terms::standard();
        let accounts = Accounts::new(&terms.caps, Nanos::ZERO);
        let first = step(Phase::NEW, accounts, Event::Wait, Nanos::ZERO, &terms);
        let Action::Raise(until) = first.action else { return Err(EINVAL) };
        pr_info!("hello from Rust; a boost would last {} ns; in an interrupt: {}\n", until.0, in_interrupt);
        Ok(Self)
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        pr_info!("goodbye\n");
    }
}

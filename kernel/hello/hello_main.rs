// SPDX-License-Identifier: GPL-2.0
//! A module that prints a greeting and a decision of `crates/sched-policy`. It shows that one source compiles for user space
//! and for the kernel, and that C objects can be linked into a Rust module.

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
    description: "Prints a greeting and a decision of the scheduling policy",
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
        // SAFETY: the function has no arguments and reads a counter of this CPU.
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

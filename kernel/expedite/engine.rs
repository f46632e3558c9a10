// SPDX-License-Identifier: GPL-2.0
//! Start and end of the module, and the requests of devices. Both forms of the module share them (README.md).

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use crate::policy::boost::{Meter, Terms};
use crate::policy::budget::{self, Cap};
use crate::policy::caps::{self, Caps};
use crate::policy::share::Share;
use crate::policy::time::Nanos;
use crate::{abi, flags, glue, state, threads};

/// Minimum and maximum of the parameter `slice_us`.
const SLICE_US: (u32, u32) = (10, 5_000);

/// The parameters of the module, as they are described where they are declared. `struct expedite_parameters` of portable/module.h.
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) slice_us: u32,
    pub(crate) thread_percent: u32,
    pub(crate) user_percent: u32,
    pub(crate) cpu_percent: u32,
    pub(crate) sleepers_only: u32,
    pub(crate) even_if_idle: u32,
    pub(crate) user_flags: u32,
}

impl Parameters {
    /// Returns them as devices report them.
    fn caps(&self) -> abi::Caps {
        abi::Caps {
            slice_us: self.slice_us,
            thread_percent: self.thread_percent,
            user_percent: self.user_percent,
            cpu_percent: self.cpu_percent,
            sleepers_only: self.sleepers_only,
            even_if_idle: self.even_if_idle,
            user_flags: self.user_flags,
            reserved: 0,
        }
    }

    /// Returns the terms that the parameters set.
    ///
    /// # Errors
    /// `EINVAL`: a parameter is out of range, or a cap never allows a single slice. The kernel's log says which.
    fn terms(&self) -> Result<Terms> {
        if !(SLICE_US.0..=SLICE_US.1).contains(&self.slice_us) {
            pr_err!("slice_us={} is not between {} and {}\n", self.slice_us, SLICE_US.0, SLICE_US.1);
            return Err(EINVAL);
        }
        let slice = Nanos::from_micros(u64::from(self.slice_us));
        let cap = |name: &str, percent: u32| {
            let cap = Cap { share: Share::percent(percent), window: caps::WINDOW };
            let terms = budget::Terms::capped(cap, slice);
            if percent > 100 {
                pr_err!("{}={} is more than 100\n", name, percent);
                return Err(EINVAL);
            }
            if percent > 0 && terms.most() < slice {
                pr_err!(
                    "{}={} never allows a boost of slice_us={}: at most {} us\n",
                    name,
                    percent,
                    self.slice_us,
                    terms.most().0 / 1_000
                );
                return Err(EINVAL);
            }
            Ok(terms)
        };
        let sleepers_only = self.sleepers_only != 0;
        let thread = if sleepers_only {
            budget::Terms::quantum(caps::LITTLE)
        } else {
            cap("thread_percent", self.thread_percent)?
        };
        let caps = Caps {
            thread,
            user: cap("user_percent", self.user_percent)?,
            cpu: cap("cpu_percent", self.cpu_percent)?,
        };
        Ok(Terms { slice, caps, meter: if sleepers_only { Meter::All } else { Meter::Boosted } })
    }
}

/// Slice of the trial: the loading thread has this time after its wake-up to find itself raised.
const TRIAL_SLICE: Nanos = Nanos::from_millis(1);

/// Returns the terms of the trial, which do not depend on the parameters.
fn trial_terms() -> Terms {
    let slice = TRIAL_SLICE;
    let whole = budget::Terms::capped(Cap { share: Share::percent(100), window: caps::WINDOW }, slice);
    Terms { slice, caps: Caps { thread: whole, user: whole, cpu: whole }, meter: Meter::Boosted }
}

/// Workers and state, while the module is loaded. They stop in the reverse order.
pub(crate) struct Engine;

impl Engine {
    /// Starts the workers, with a state without flags.
    ///
    /// # Errors
    /// See [`Parameters::terms`] and [`flags::try_out`]. `ENOMEM`.
    pub(crate) fn start(parameters: &Parameters) -> Result<Self> {
        let terms = parameters.terms()?;
        let now = Nanos(glue::clock());
        let mut state = state::State::new(terms, now)?;
        state.caps = parameters.caps();
        let mut state = Some(state);
        flags::prepare(parameters.user_flags);
        to_result(glue::workers_start())?;
        let engine = Self;
        to_result(glue::children_watch())?;
        if glue::trial_is_possible() {
            // The trial needs its boost, and has a state of its own, whose budgets suffice.
            state::set_only_if_busy(false);
            state::replace(Some(state::State::new(trial_terms(), now)?));
            flags::try_out()?;
            threads::forget_all();
        } else {
            pr_info!("no trial: the loading thread is real-time, or is to run after others\n");
        }
        state::set_only_if_busy(parameters.even_if_idle == 0);
        drop(state::replace(state.take()));
        Ok(engine)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // No device is open, so there is no flag and no arrival.
        glue::cancel_reap();
        threads::forget_all();
        glue::children_leave();
        glue::workers_stop();
        drop(state::replace(None));
        glue::wait_for_stragglers();
    }
}

/// Returns the state and the counters of the whole module.
pub(crate) fn totals() -> abi::Totals {
    let counted = state::with(|state| abi::Totals {
        flags: state.flags,
        threads: u64::from(state.threads.count()),
        accounts: u64::from(state.accounts.count()),
        ..state.totals
    });
    let mut totals = counted.unwrap_or_default();
    threads::add_tallies(&mut totals);
    totals
}

/// Handles a request of a device.
///
/// # Errors
/// `ENOTTY`: there is no such request. `EFAULT`: its argument cannot be read or written. Others: see expedite.h.
pub(crate) fn request(device: &flags::DeviceFlags, command: u32, argument: usize) -> Result {
    let user = UserPtr::from_addr(argument);
    match command {
        abi::FLAG => {
            let flag = UserSlice::new(user, size_of::<abi::Flag>()).reader().read::<abi::Flag>()?;
            flags::set(device, &flag)
        }
        abi::UNFLAG => {
            let fd = UserSlice::new(user, size_of::<i32>()).reader().read::<i32>()?;
            flags::take_back(device, fd)
        }
        abi::FIND => {
            let fd = UserSlice::new(user, size_of::<i32>()).reader().read::<i32>()?;
            flags::find(device, fd)
        }
        abi::WAIT => {
            let wait = UserSlice::new(user, size_of::<abi::Wait>()).reader().read::<abi::Wait>()?;
            flags::wait(device, &wait)
        }
        abi::QUERY => {
            let (mut reader, mut writer) = UserSlice::new(user, size_of::<abi::Query>()).reader_writer();
            let asked = reader.read::<abi::Query>()?;
            if asked.tid < 0 || asked.reserved != 0 {
                return Err(EINVAL);
            }
            let mut query = abi::Query { tid: asked.tid, ..abi::Query::default() };
            flags::with_thread(asked.tid, |task| threads::query(task, &mut query))?;
            writer.write(&query)
        }
        abi::CAPS => {
            let caps = state::with(|state| state.caps).unwrap_or_default();
            UserSlice::new(user, size_of::<abi::Caps>()).writer().write(&caps)
        }
        abi::TOTALS => UserSlice::new(user, size_of::<abi::Totals>()).writer().write(&totals()),
        _ => Err(ENOTTY),
    }
}

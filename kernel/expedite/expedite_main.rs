// SPDX-License-Identifier: GPL-2.0
//! Runs a thread immediately when data arrives for it: `/dev/expedite`, whose ABI is expedite.h.
//!
//! | file | content |
//! | --- | --- |
//! | flags.rs, descriptors.c | flags on open files: which files can be flagged, which object is held, when a flag ends |
//! | links.rs | lists from which an element is removed without a search |
//! | waiters.c | finding the threads that an arrival is about to wake |
//! | standing.c | the user that pays for a thread, limits of its groups, idle CPUs |
//! | threads.rs | the decision when data arrives for a thread |
//! | threads/boost.rs | the one boost of a thread: raised, dispatched, lowered, charged |
//! | threads/refusal.rs | denials that hold for a while, and are repeated without the lock |
//! | threads/table.rs | threads by their task; removal of idle ones |
//! | threads/tally.rs | counters of arrivals without a boost |
//! | accounts.rs | accounts of users, CPUs, flags and groups |
//! | wait.c | waiting through the device |
//! | state.rs | the state under one lock, and the counters |
//! | tasks.c | scheduling classes and timers |
//! | trace.h, trace.c | tracepoints |
//! | workers.c | a real-time worker per CPU |
//! | crates/sched-policy | all scheduling decisions |

use core::borrow::Borrow;

use kernel::c_str;
use kernel::error::to_result;
use kernel::fs::File;
use kernel::miscdevice::{MiscDevice, MiscDeviceOptions, MiscDeviceRegistration};
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

mod abi;
mod accounts;
mod flags;
mod glue;
mod links;
#[path = "../../crates/sched-policy/src/policy/mod.rs"]
pub mod policy;
mod state;
mod threads;

use policy::boost::{Meter, Terms};
use policy::budget::{self, Cap};
use policy::caps::{self, Caps};
use policy::share::Share;
use policy::time::Nanos;

module! {
    type: Expedite,
    name: "expedite",
    authors: ["The Pronto authors"],
    description: "Runs a thread immediately when data arrives for it, within a budget",
    license: "GPL",
    params: {
        slice_us: u32 {
            default: 200,
            description: "Length of a boost after an arrival, in microseconds (10 to 5000)",
        },
        thread_percent: u32 {
            default: 10,
            description: "Maximum boosted share of a CPU per thread, in percent, within any 100 ms",
        },
        user_percent: u32 {
            default: 25,
            description: "Maximum boosted share of each CPU for all threads of a user, in percent, within any 100 ms",
        },
        cpu_percent: u32 {
            default: 50,
            description: "Maximum boosted share of each CPU for all threads, in percent, within any 100 ms",
        },
        sleepers_only: u32 {
            default: 0,
            description: "1: boost only threads that use less than 2 % of a CPU in total",
        },
        even_if_idle: u32 {
            default: 0,
            description: "1: boost a thread even while a CPU is idle on which it may run",
        },
        user_flags: u32 {
            default: 4096,
            description: "Maximum number of flags of one user",
        },
    },
}

/// Minimum and maximum of the parameter `slice_us`.
const SLICE_US: (u32, u32) = (10, 5_000);

/// Returns a parameter's number: Linux 7.2 returns a reference to it, 7.3 the value.
fn number(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

/// Returns the terms that the parameters set.
///
/// # Errors
/// `EINVAL`: a parameter is out of range, or a cap never allows a single slice. The kernel's log says which.
fn terms() -> Result<Terms> {
    let slice_us = number(module_parameters::slice_us.value());
    if !(SLICE_US.0..=SLICE_US.1).contains(&slice_us) {
        pr_err!("slice_us={} is not between {} and {}\n", slice_us, SLICE_US.0, SLICE_US.1);
        return Err(EINVAL);
    }
    let slice = Nanos::from_micros(u64::from(slice_us));
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
                slice_us,
                terms.most().0 / 1_000
            );
            return Err(EINVAL);
        }
        Ok(terms)
    };
    let sleepers_only = number(module_parameters::sleepers_only.value()) != 0;
    let thread = if sleepers_only {
        budget::Terms::quantum(caps::LITTLE)
    } else {
        cap("thread_percent", number(module_parameters::thread_percent.value()))?
    };
    let caps = Caps {
        thread,
        user: cap("user_percent", number(module_parameters::user_percent.value()))?,
        cpu: cap("cpu_percent", number(module_parameters::cpu_percent.value()))?,
    };
    Ok(Terms { slice, caps, meter: if sleepers_only { Meter::All } else { Meter::Boosted } })
}

/// Workers and state, while the module is loaded. They stop in the reverse order.
struct Engine;

impl Engine {
    fn start() -> Result<Self> {
        let terms = terms()?;
        let now = Nanos(glue::clock());
        let accounts = accounts::Accounting::new(&terms.caps, glue::cpus(), now)?;
        flags::prepare(number(module_parameters::user_flags.value()));
        state::set_only_if_busy(number(module_parameters::even_if_idle.value()) == 0);
        to_result(glue::workers_start())?;
        state::replace(Some(state::State {
            terms,
            threads: threads::Table::new(),
            accounts,
            totals: abi::Totals::default(),
            flags: 0,
        }));
        Ok(Self)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Every device is closed, so there is no flag and no arrival.
        glue::cancel_reap();
        threads::forget_all();
        glue::workers_stop();
        drop(state::replace(None));
        glue::wait_for_stragglers();
    }
}

/// The loaded module. The fields are dropped in this order: first the device, so that it cannot be opened any more.
#[pin_data]
struct Expedite {
    #[pin]
    device: MiscDeviceRegistration<Device>,
    engine: Engine,
}

impl kernel::InPlaceModule for Expedite {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            engine: Engine::start()?,
            device <- MiscDeviceRegistration::register(MiscDeviceOptions { name: c_str!("expedite") }),
        })
    }
}

/// Returns the state and the counters of the whole module.
fn totals() -> abi::Totals {
    let counted = state::with(|state| {
        abi::Totals {
            flags: state.flags,
            threads: u64::from(state.threads.count()),
            accounts: u64::from(state.accounts.count()),
            ..state.totals
        }
    });
    let mut totals = counted.unwrap_or_default();
    threads::add_tallies(&mut totals);
    totals
}

/// One open device. While it is open, the module cannot be unloaded, and the flags that were set through it last.
struct Device {
    flags: flags::DeviceFlags,
}

#[vtable]
impl MiscDevice for Device {
    type Ptr = KBox<Self>;

    fn open(_file: &File, _device: &MiscDeviceRegistration<Self>) -> Result<KBox<Self>> {
        let device = KBox::new(Self { flags: flags::DeviceFlags::new() }, GFP_KERNEL_ACCOUNT)?;
        if glue::module_get() {
            Ok(device)
        } else {
            Err(ENODEV)
        }
    }

    fn release(device: KBox<Self>, _file: &File) {
        flags::device_closed(&device.flags);
        drop(device);
        // SAFETY: the reference is that of `open`. Unloading the module waits until this thread has left its code.
        unsafe { glue::expedite_module_put() };
    }

    fn ioctl(device: &Self, _file: &File, command: u32, argument: usize) -> Result<isize> {
        let user = UserPtr::from_addr(argument);
        match command {
            abi::FLAG => {
                let flag = UserSlice::new(user, size_of::<abi::Flag>()).reader().read::<abi::Flag>()?;
                flags::set(&device.flags, &flag)?;
            }
            abi::UNFLAG => {
                let fd = UserSlice::new(user, size_of::<i32>()).reader().read::<i32>()?;
                flags::take_back(&device.flags, fd)?;
            }
            abi::FIND => {
                let fd = UserSlice::new(user, size_of::<i32>()).reader().read::<i32>()?;
                flags::find(&device.flags, fd)?;
            }
            abi::WAIT => {
                let wait = UserSlice::new(user, size_of::<abi::Wait>()).reader().read::<abi::Wait>()?;
                flags::wait(&device.flags, &wait)?;
            }
            abi::QUERY => {
                let (mut reader, mut writer) = UserSlice::new(user, size_of::<abi::Query>()).reader_writer();
                let asked = reader.read::<abi::Query>()?;
                if asked.tid < 0 || asked.reserved != 0 {
                    return Err(EINVAL);
                }
                let mut query = abi::Query { tid: asked.tid, ..abi::Query::default() };
                flags::with_thread(asked.tid, |task| threads::query(task, &mut query))?;
                writer.write(&query)?;
            }
            abi::TOTALS => UserSlice::new(user, size_of::<abi::Totals>()).writer().write(&totals())?,
            _ => return Err(ENOTTY),
        }
        Ok(0)
    }
}

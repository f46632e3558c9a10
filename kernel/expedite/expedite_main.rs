// SPDX-License-Identifier: GPL-2.0
//! Runs a thread immediately when data arrives for it: `/dev/expedite`, whose ABI is expedite.h.
//!
//! This is the form of the module for kernels with Rust. portable/ makes the other form of the same files.
//!
//! | file | content |
//! | --- | --- |
//! | engine.rs | start and end, requests of devices |
//! | flags.rs, descriptors.c | flags on open files: which files can be flagged, which object is held, when a flag ends |
//! | flags/requests.rs | requests of devices about flags |
//! | flags/arrivals.rs | arrivals at flagged files |
//! | flags/reaper.rs | removal of flags on closed files |
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
//! | compat.h | names of newer kernels, for older ones |
//! | portable_main.rs, portable/ | the other form: a replacement of the crate `kernel`, and the script that makes the object |
//! | flags/trial.rs, trial.c | the trial when the module is loaded |
//! | children.c | the scheduling of new threads that a boosted thread creates |
//! | workers.c | a real-time worker per CPU |
//! | crates/sched-policy | all scheduling decisions |

use core::borrow::Borrow;

use kernel::c_str;
use kernel::fs::File;
use kernel::miscdevice::{MiscDevice, MiscDeviceOptions, MiscDeviceRegistration};
use kernel::prelude::*;

mod abi;
mod accounts;
mod engine;
mod flags;
mod glue;
mod links;
#[path = "../../crates/sched-policy/src/policy/mod.rs"]
pub mod policy;
mod state;
mod threads;

use engine::{Engine, Parameters};

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

/// Returns a parameter's number: Linux 7.2 returns a reference to it, 7.3 the value.
fn number(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

/// Returns the parameters with which the module is loaded.
fn parameters() -> Parameters {
    Parameters {
        slice_us: number(module_parameters::slice_us.value()),
        thread_percent: number(module_parameters::thread_percent.value()),
        user_percent: number(module_parameters::user_percent.value()),
        cpu_percent: number(module_parameters::cpu_percent.value()),
        sleepers_only: number(module_parameters::sleepers_only.value()),
        even_if_idle: number(module_parameters::even_if_idle.value()),
        user_flags: number(module_parameters::user_flags.value()),
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
            engine: Engine::start(&parameters())?,
            device <- MiscDeviceRegistration::register(MiscDeviceOptions { name: c_str!("expedite") }),
        })
    }
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
        engine::request(&device.flags, command, argument)?;
        Ok(0)
    }
}

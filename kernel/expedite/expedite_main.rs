// SPDX-License-Identifier: GPL-2.0
//! Runs a thread immediately when data arrives for it: `/dev/expedite`, whose ABI is expedite.h.
//!
//! | file | content |
//! | --- | --- |
//! | flags.rs, descriptors.c | flags on open files: which files can be flagged, which object is held, when a flag ends |
//! | waiters.c | finding the threads that an arrival is about to wake |
//! | threads.rs | the decision when data arrives for a thread |
//! | threads/boost.rs | the one boost of a thread: raised, dispatched, lowered, charged |
//! | threads/refusal.rs | denials that hold for a while, and are repeated without the lock |
//! | threads/table.rs | threads by their task; removal of idle ones |
//! | accounts.rs | accounts of users, CPUs and flags |
//! | wait.c | waiting through the device |
//! | state.rs | the state under one lock, and the counters |
//! | tasks.c | scheduling classes and timers |
//! | workers.c | a real-time worker per CPU |
//! | crates/sched-policy | all scheduling decisions |

use core::borrow::Borrow;
use core::ptr::addr_of;

use kernel::c_str;
use kernel::debugfs::{Dir, File as DebugFile};
use kernel::error::to_result;
use kernel::fmt;
use kernel::fs::File;
use kernel::miscdevice::{MiscDevice, MiscDeviceOptions, MiscDeviceRegistration};
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

mod abi;
mod accounts;
mod flags;
mod glue;
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
    },
}

/// Minimum and maximum of the parameter `slice_us`.
const SLICE_US: (u32, u32) = (10, 5_000);

/// Returns a parameter's number: Linux 7.2 returns a reference to it, 7.3 the value.
fn number(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

/// Returns the terms that the parameters set.
fn terms() -> Terms {
    let slice = Nanos::from_micros(u64::from(
        number(module_parameters::slice_us.value()).max(SLICE_US.0).min(SLICE_US.1),
    ));
    let cap = |percent: u32| {
        let cap = Cap { share: Share::percent(percent), window: caps::WINDOW };
        budget::Terms::capped(cap, slice)
    };
    let sleepers_only = number(module_parameters::sleepers_only.value()) != 0;
    let thread = if sleepers_only {
        budget::Terms::quantum(caps::LITTLE)
    } else {
        cap(number(module_parameters::thread_percent.value()))
    };
    let caps = Caps {
        thread,
        user: cap(number(module_parameters::user_percent.value())),
        cpu: cap(number(module_parameters::cpu_percent.value())),
    };
    Terms { slice, caps, meter: if sleepers_only { Meter::All } else { Meter::Boosted } }
}

/// Workers and state, while the module is loaded. They stop in the reverse order.
struct Engine;

impl Engine {
    fn start() -> Result<Self> {
        let terms = terms();
        let now = Nanos(glue::clock());
        let accounts = accounts::Accounting::new(&terms.caps, glue::cpus(), now)?;
        flags::prepare();
        to_result(glue::workers_start())?;
        state::replace(Some(state::State {
            terms,
            threads: threads::Table::new(),
            accounts,
            totals: state::Totals::default(),
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
    #[pin]
    counters: DebugFile<()>,
    folder: Dir,
    engine: Engine,
}

impl kernel::InPlaceModule for Expedite {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        let folder = Dir::new(c_str!("expedite"));
        try_pin_init!(Self {
            engine: Engine::start()?,
            folder: folder.clone(),
            counters <- folder.read_callback_file(c_str!("counters"), (), &show),
            device <- MiscDeviceRegistration::register(MiscDeviceOptions { name: c_str!("expedite") }),
        })
    }
}

/// Writes the counters, one per line.
fn show(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counted = state::with(|state| {
        let mut totals = state.totals;
        threads::add_tallies(&state.threads, &mut totals);
        (totals, state.threads.count(), state.accounts.count())
    });
    let Some((totals, threads, accounts)) = counted else { return Ok(()) };
    let counts = totals.counts;
    let [read, poll, epoll, uring, wait, named] = totals.by_way;
    let lines = [
        ("flags", totals.flags),
        ("threads", u64::from(threads)),
        ("accounts", u64::from(accounts)),
        ("told_read", read),
        ("told_poll", poll),
        ("told_epoll", epoll),
        ("told_io_uring", uring),
        ("told_wait", wait),
        ("named", named),
        ("calls", counts.calls),
        ("direct", counts.direct),
        ("worker", counts.worker),
        ("running", counts.running),
        ("boosted", counts.boosted),
        ("realtime", counts.realtime),
        ("denied_thread", counts.denied_thread),
        ("denied_user", counts.denied_user),
        ("denied_cpu", counts.denied_cpu),
        ("denied_flag", counts.denied_flag),
        ("denied_memory", counts.denied_memory),
        ("drops", counts.drops),
        ("replaced", counts.replaced),
        ("boosted_ns", counts.boosted_ns),
    ];
    for (name, value) in lines {
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

/// One open device. While it is open, the module cannot be unloaded, and the flags that were set through it last.
struct Device {
    /// Makes the address of each open device unique.
    _place: u8,
}

impl Device {
    fn number(&self) -> usize {
        addr_of!(*self).addr()
    }
}

#[vtable]
impl MiscDevice for Device {
    type Ptr = KBox<Self>;

    fn open(_file: &File, _device: &MiscDeviceRegistration<Self>) -> Result<KBox<Self>> {
        let device = KBox::new(Self { _place: 0 }, GFP_KERNEL_ACCOUNT)?;
        if glue::module_get() {
            Ok(device)
        } else {
            Err(ENODEV)
        }
    }

    fn release(device: KBox<Self>, _file: &File) {
        flags::device_closed(device.number());
        drop(device);
        // SAFETY: the reference is that of `open`. Unloading the module waits until this thread has left its code.
        unsafe { glue::expedite_module_put() };
    }

    fn ioctl(device: &Self, _file: &File, command: u32, argument: usize) -> Result<isize> {
        let user = UserPtr::from_addr(argument);
        match command {
            abi::FLAG => {
                let flag = UserSlice::new(user, size_of::<abi::Flag>()).reader().read::<abi::Flag>()?;
                flags::set(device.number(), &flag)?;
            }
            abi::UNFLAG => {
                let fd = UserSlice::new(user, size_of::<i32>()).reader().read::<i32>()?;
                flags::take_back(device.number(), fd)?;
            }
            abi::WAIT => {
                let wait = UserSlice::new(user, size_of::<abi::Wait>()).reader().read::<abi::Wait>()?;
                flags::wait(device.number(), &wait)?;
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
            _ => return Err(ENOTTY),
        }
        Ok(0)
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Runs a thread at once when data arrives for it: `/dev/expedite`, whose ABI is expedite.h.
//!
//! | file | what |
//! | --- | --- |
//! | flags.rs, descriptors.c | flags on what is open: what can be flagged, what is held, when a flag ends |
//! | waiters.c | which threads an arrival is about to wake |
//! | threads.rs | what is decided when something arrives for a thread |
//! | threads/boost.rs | its one boost: raised, dispatched, lowered, paid for |
//! | threads/refusal.rs | refusals that hold for a while, and are repeated without the lock |
//! | threads/table.rs | threads by their task, and when they are forgotten |
//! | accounts.rs | what users, processors and flags pay |
//! | wait.c | waiting through the device |
//! | state.rs | all of it under one lock, and the counters |
//! | tasks.c | the scheduler and timers |
//! | workers.c | a real-time worker for each processor |
//! | crates/sched-policy | every decision |

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
    description: "Runs a thread at once when data arrives for it, within a budget",
    license: "GPL",
    params: {
        slice_us: u32 {
            default: 200,
            description: "Microseconds for which a thread is boosted after an arrival (10 to 5000)",
        },
        thread_percent: u32 {
            default: 10,
            description: "Of a processor, what a thread can run boosted within any 100 ms",
        },
        user_percent: u32 {
            default: 25,
            description: "Of each processor, what all threads of a user can run boosted within any 100 ms",
        },
        cpu_percent: u32 {
            default: 50,
            description: "Of each processor, what can be run boosted within any 100 ms",
        },
        sleepers_only: u32 {
            default: 0,
            description: "1: boost only threads that use less than 2 % of a processor in all",
        },
    },
}

/// The slice that can be asked for at the most and least, microseconds.
const SLICE_US: (u32, u32) = (10, 5_000);

/// A parameter: 7.2 lends the number, 7.3 gives it.
fn number(parameter: impl Borrow<u32>) -> u32 {
    *parameter.borrow()
}

/// What the parameters say.
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
        processor: cap(number(module_parameters::cpu_percent.value())),
    };
    Terms { slice, caps, meter: if sleepers_only { Meter::All } else { Meter::Boosted } }
}

/// What runs as long as the module is loaded; ends in the reverse order.
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
        // Every device is closed, so there is no flag and nothing can arrive.
        glue::reap_never();
        threads::forget_all();
        glue::workers_stop();
        drop(state::replace(None));
        glue::wait_for_stragglers();
    }
}

/// The loaded module. The fields are dropped in this order: first nobody can open the device any more.
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

/// The counters, one a line.
fn show(_: &(), out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counted = state::with(|state| {
        let mut totals = state.totals;
        threads::add_tallies(&state.threads, &mut totals);
        (totals, state.threads.count(), state.accounts.count())
    });
    let Some((totals, threads, accounts)) = counted else { return Ok(()) };
    let counts = totals.counts;
    let [read, poll, epoll, uring, wait, named] = totals.told;
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

/// The device, opened once: as long as it is open, the module stays, and so do the flags that were set through it.
struct Device {
    /// Makes the address of each open device its own.
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
        // SAFETY: taken in `open`. Whoever unloads the module now waits until this thread has left its code.
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

//! Every request with invalid arguments.

use core::ffi::{c_ulong, c_void};
use core::ptr::null_mut;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use nix::sys::eventfd::EventFd;
use pronto_expedite::{Device, Flag, Refused, THIS_THREAD};

use crate::machine::{Module, Numbered};
use crate::program::run;

const FLAG: c_ulong = 0x4020_45e0;
const UNFLAG: c_ulong = 0x4004_45e1;
const QUERY: c_ulong = 0xc0a8_45e2;
const WAIT: c_ulong = 0x4010_45e3;
const TOTALS: c_ulong = 0x80e0_45e4;
const FIND: c_ulong = 0x4004_45e5;

/// `struct expedite_flag`, as words of 32 bits: fd, tid, slice, percent, reserved.
type Words = [i32; 8];

fn request(device: &Device, number: c_ulong, argument: *mut c_void) -> Result<(), Errno> {
    // SAFETY: the kernel checks the argument; these tests verify that it does.
    Errno::result(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), number, argument) }).map(drop)
}

fn flag(device: &Device, mut words: Words) -> Result<(), Errno> {
    request(device, FLAG, words.as_mut_ptr().cast())
}

/// `struct expedite_wait`: fd, reserved, time.
fn wait(device: &Device, mut words: [i32; 4]) -> Result<(), Errno> {
    request(device, WAIT, words.as_mut_ptr().cast())
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn unknown_requests_and_sizes_are_refused() {
    let _module = Module::load(&[]);
    let device = Device::open().unwrap();
    let mut room = [0_u64; 4096];
    let sizes = [0, 1, 4, 8, 16, 31, 33, 64, 120, 127, 129, 4095, 16_383];
    for number in 0xdf..=0xe7 {
        for direction in 0..4 {
            for size in sizes {
                let request_number = (direction << 30) | (size << 16) | (c_ulong::from(b'E') << 8) | number;
                if [FLAG, UNFLAG, QUERY, WAIT, TOTALS, FIND].contains(&request_number) {
                    continue;
                }
                let result = request(&device, request_number, room.as_mut_ptr().cast());
                assert_eq!(result, Err(Errno::ENOTTY), "{request_number:#x}");
            }
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn invalid_addresses_are_refused() {
    let _module = Module::load(&[]);
    let device = Device::open().unwrap();
    let kernel = usize::MAX - 4095;
    for address in
        [null_mut(), core::ptr::without_provenance_mut(1), core::ptr::without_provenance_mut(kernel)]
    {
        for number in [FLAG, UNFLAG, QUERY, WAIT, TOTALS, FIND] {
            assert_eq!(request(&device, number, address), Err(Errno::EFAULT), "{number:#x} {address:?}");
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn descriptors_that_cannot_be_flagged_are_refused() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    for fd in [-1, i32::MIN, 1_000_000, i32::MAX, libc::AT_FDCWD] {
        assert_eq!(flag(&device, [fd, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::EBADF), "{fd}");
        let mut fd = fd;
        assert_eq!(request(&device, UNFLAG, (&raw mut fd).cast()), Err(Errno::EBADF));
        assert_eq!(request(&device, FIND, (&raw mut fd).cast()), Err(Errno::EBADF));
        assert_eq!(wait(&device, [fd, 0, 0, 0]), Err(Errno::EBADF));
    }
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let fifo = std::env::temp_dir().join("fifo");
    let _ = std::fs::remove_file(&fifo);
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let both_ends = File::options().read(true).write(true).open(&fifo).unwrap();
    let file = File::open(std::env::args().next().unwrap()).unwrap();
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    // SAFETY: the call creates a descriptor, which stays open until the end of the process.
    let netlink = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) };
    // SAFETY: the call creates a descriptor, which stays open until the end of the process.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) };
    let mut none = core::mem::MaybeUninit::uninit();
    // SAFETY: the call fills the set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised, and outlives the call.
    let signals = unsafe { libc::signalfd(-1, none.as_ptr(), 0) };
    for (what, fd) in [
        ("a file", file.as_raw_fd()),
        ("the writing end of a pipe", writer.as_raw_fd()),
        ("both ends of a fifo", both_ends.as_raw_fd()),
        ("an epoll instance", epoll.0.as_raw_fd()),
        ("the device", device.as_fd().as_raw_fd()),
        ("a netlink socket", netlink),
        ("a timer", timer),
        ("signals", signals),
    ] {
        let result = flag(&device, [fd, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(result, Err(Errno::EOPNOTSUPP), "{what}");
    }
    let folder = File::open("/proc").unwrap();
    assert_eq!(device.flag(&folder, Flag::default()), Err(Refused::Unsupported));
    assert_eq!(device.unflag(&reader), Err(Refused::Unknown));
    assert_eq!(module.counters()["flags"], 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn fields_without_meaning_must_be_zero() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    let (one, _other) = UnixStream::pair().unwrap();
    let fd = one.as_raw_fd();
    for at in 5..8 {
        let mut words = [fd, 0, 0, 0, 0, 0, 0, 0];
        // The first of them has one option.
        words[at] = if at == 5 { 2 } else { 1 };
        assert_eq!(flag(&device, words), Err(Errno::EINVAL), "word {at}");
    }
    assert_eq!(flag(&device, [fd, -1, 0, 0, 0, 0, 0, 0]), Err(Errno::EINVAL));
    assert_eq!(wait(&device, [fd, 1, 0, 0]), Err(Errno::EINVAL));
    let mut query = [0_i32; 32];
    query[1] = 1;
    assert_eq!(request(&device, QUERY, query.as_mut_ptr().cast()), Err(Errno::EINVAL));
    assert_eq!(module.counters()["flags"], 0);
    flag(&device, [fd, 0, -1, -1, 0, 0, 0, 0]).unwrap();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn only_root_may_open_the_device_by_default() {
    let _module = Module::load(&[]);
    let open = || {
        let other = Numbered::spawn(|| {
            // SAFETY: the call takes numbers only. It affects this thread alone; the process keeps its user.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
            Device::open().map(drop)
        });
        other.join()
    };
    assert_eq!(open(), Err(Refused::NotPermitted));
    run(std::process::Command::new("chmod").args(["666", "/dev/expedite"]));
    assert_eq!(open(), Ok(()));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn threads_of_other_users_cannot_be_named() {
    let _module = Module::load(&[]);
    run(std::process::Command::new("chmod").args(["666", "/dev/expedite"]));
    let (one, _other) = UnixStream::pair().unwrap();
    let no_thread = i32::MAX;
    let outcome = Numbered::spawn(move || {
        // Affects this thread alone; the process keeps its user.
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        let device = Device::open().unwrap();
        let name = |thread| device.flag(&one, Flag { thread, ..Flag::default() });
        let others = name(1);
        let missing = name(no_thread);
        let own = name(THIS_THREAD);
        (others, missing, own, device.query(1), device.query(no_thread))
    });
    let refused = (Err(Refused::NotOwned), Err(Refused::NoThread), Ok(()));
    let (others, missing, own, query, no_query) = outcome.join();
    assert_eq!((others, missing, own), refused);
    assert_eq!((query, no_query), (Err(Refused::NotOwned), Err(Refused::NoThread)));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_device_holds_at_most_1024_flags() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 4_096, 4_096).unwrap();
    let events: Vec<_> = (0..1_100).map(|_| EventFd::new().unwrap()).collect();
    let flagged = events.iter().take_while(|event| device.flag(event, Flag::default()).is_ok()).count();
    assert_eq!(flagged, 1_024);
    assert_eq!(device.flag(&events[1_099], Flag::default()), Err(Refused::Full));
    assert_eq!(module.counters()["flags"], 1_024);
    device.unflag(&events[512]).unwrap();
    device.flag(&events[1_099], Flag::default()).unwrap();
    drop(device);
    assert_eq!(module.counters()["flags"], 0);
}

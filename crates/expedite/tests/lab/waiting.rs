//! For each kind of wait, the module boosts the thread that blocks, not the thread that set the flag.

use core::time::Duration;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use pronto_expedite::{Counts, Device, Flag, THIS_THREAD, ThreadState};

use crate::machine::{Module, Numbered, until};

/// Arrivals for each kind of wait.
pub(crate) const ROUNDS: u64 = 5;

/// Arrivals of a test that tolerates races in a few.
const MANY: u32 = 20;

/// Budgets that a few boosts do not spend.
pub(crate) const GENEROUS: &[&str] = &["thread_percent=100", "user_percent=100", "cpu_percent=100"];

/// Budget of a thread, with these parameters, that has paid for its boosts. A full one is 16.7 ms.
const PAID: Duration = Duration::from_millis(16);

/// Two ends of a connection: data written to `writer` can be read from `reader`.
pub(crate) struct Ends {
    pub(crate) name: &'static str,
    pub(crate) reader: OwnedFd,
    writer: OwnedFd,
}

pub(crate) fn ends() -> Vec<Ends> {
    let pair = |name, reader: OwnedFd, writer: OwnedFd| Ends { name, reader, writer };
    let (stream, peer) = UnixStream::pair().unwrap();
    let (datagram, other) = UnixDatagram::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp.set_nodelay(true).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(udp.local_addr().unwrap()).unwrap();
    let (pipe, into) = nix::unistd::pipe().unwrap();
    vec![
        pair("unix stream", stream.into(), peer.into()),
        pair("unix datagram", datagram.into(), other.into()),
        pair("tcp", accepted.into(), tcp.into()),
        pair("udp", udp.into(), sender.into()),
        pair("pipe", pipe, into),
    ]
}

/// Reads one message or an eventfd's counter, eight bytes.
pub(crate) fn read(end: &OwnedFd) {
    let mut bytes = [0; 8];
    assert_eq!(nix::unistd::read(end, &mut bytes).unwrap(), 8);
}

pub(crate) fn write(end: &OwnedFd) {
    assert_eq!(nix::unistd::write(end, &1_u64.to_ne_bytes()).unwrap(), 8);
}

/// Lets a thread wait `rounds` times on a file that this thread has flagged. Returns the module's counts for the two threads.
pub(crate) fn counted(
    ends: &Ends,
    wait: impl Fn(&OwnedFd) + Send + 'static,
    rounds: u64,
) -> (Option<Counts>, Option<Counts>) {
    let device = Device::open().unwrap();
    device.flag(&ends.reader, Flag::default()).unwrap();
    let reader = ends.reader.try_clone().unwrap();
    let waiter = Numbered::spawn(move || {
        for _ in 0..rounds {
            wait(&reader);
        }
    });
    let settled = || device.query(waiter.tid).map_or(true, |state| is_settled(&state));
    for round in 1..=rounds {
        waiter.until_it_sleeps();
        until("every boost has ended", settled);
        write(&ends.writer);
        until("the arrival is counted", || {
            device.query(waiter.tid).is_ok_and(|state| state.counts.calls >= round)
                || device.query(THIS_THREAD).is_ok_and(|state| state.counts.calls >= round)
        });
    }
    waiter.until_it_sleeps();
    until("every boost has ended", settled);
    let counts_of = |thread| device.query(thread).ok().map(|state| state.counts);
    let both = (counts_of(waiter.tid), counts_of(THIS_THREAD));
    waiter.join();
    both
}

/// Returns whether every arrival is accounted for, and every boost has ended and is paid for. On a busy host the machine's clock goes on
/// while its CPUs stand still, so a boost can cost milliseconds, and the next one would be denied.
pub(crate) fn is_settled(state: &ThreadState) -> bool {
    let counts = &state.counts;
    let needless = counts.running + counts.boosted + counts.realtime + counts.idle;
    let refused = counts.behind + counts.locked + counts.denied();
    let is_complete = counts.boosts() == counts.drops && counts.calls == counts.boosts() + needless + refused;
    is_complete && state.left >= PAID
}

pub(crate) fn check(name: &str, wait: &str, counts: (Option<Counts>, Option<Counts>)) {
    let (waiter, flagger) = counts;
    let waiter =
        waiter.unwrap_or_else(|| panic!("{name}, {wait}: the module does not know the waiting thread"));
    println!("{name}, {wait}: {waiter:?}");
    assert!(
        flagger.is_none(),
        "{name}, {wait}: the module counted the thread that set the flag: {flagger:?}"
    );
    assert!(waiter.calls >= ROUNDS, "{name}, {wait}: {waiter:?}");
    assert!(waiter.boosts() >= ROUNDS - 1, "{name}, {wait}: {waiter:?}");
    assert_eq!(waiter.denied(), 0, "{name}, {wait}: {waiter:?}");
    assert_eq!(waiter.replaced, 0, "{name}, {wait}: {waiter:?}");
}

pub(crate) fn counter(module: &Module, name: &str) -> u64 {
    module.counters()[name]
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_in_read_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        check(ends.name, "read", counted(&ends, read, ROUNDS));
    }
    let eventfd = EventFd::new().unwrap();
    let reader = eventfd.as_fd().try_clone_to_owned().unwrap();
    let ends = Ends { name: "eventfd", reader, writer: eventfd.into() };
    check(ends.name, "read", counted(&ends, read, ROUNDS));
    assert!(counter(&module, "by_read") >= 6 * ROUNDS, "{:?}", module.counters());
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_in_poll_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        let wait = |end: &OwnedFd| {
            let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::NONE).unwrap(), 1);
            read(end);
        };
        check(ends.name, "poll", counted(&ends, wait, ROUNDS));
    }
    assert!(counter(&module, "by_poll") >= 5 * ROUNDS, "{:?}", module.counters());
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_in_epoll_wait_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        epoll.add(&ends.reader, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        let wait = move |end: &OwnedFd| {
            let mut events = [EpollEvent::empty()];
            assert_eq!(epoll.wait(&mut events, EpollTimeout::NONE).unwrap(), 1);
            read(end);
        };
        check(ends.name, "epoll_wait", counted(&ends, wait, ROUNDS));
    }
    assert!(counter(&module, "by_epoll") >= 5 * ROUNDS, "{:?}", module.counters());
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_waits_for_nested_epolls_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        let epolls = [(); 3].map(|()| Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap());
        epolls[0].add(&ends.reader, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        epolls[1].add(&epolls[0].0, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        epolls[2].add(&epolls[1].0, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        let wait = move |end: &OwnedFd| {
            let mut events = [EpollEvent::empty()];
            assert_eq!(epolls[2].wait(&mut events, EpollTimeout::NONE).unwrap(), 1);
            read(end);
        };
        check(ends.name, "nested epoll_wait", counted(&ends, wait, ROUNDS));
    }
    assert!(counter(&module, "by_epoll") >= 5 * ROUNDS, "{:?}", module.counters());
    let ends = &ends()[0];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(&ends.reader, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    let wait = move |end: &OwnedFd| {
        let mut fds = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::NONE).unwrap(), 1);
        read(end);
    };
    check(ends.name, "poll of an epoll", counted(ends, wait, ROUNDS));
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_an_arrival_does_not_wake_is_not_boosted() {
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let ends = &ends()[0];
    device.flag(&ends.reader, Flag::default()).unwrap();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let once = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
    epoll.add(&ends.reader, EpollEvent::new(once, 1)).unwrap();
    let (end, into_end) = nix::unistd::pipe().unwrap();
    epoll.add(&end, EpollEvent::new(EpollFlags::EPOLLIN, 2)).unwrap();
    let waiter = Numbered::spawn(move || {
        let mut events = [EpollEvent::empty()];
        // The first event disables the item, so that the next message wakes no thread.
        let mut next = || {
            assert_eq!(epoll.wait(&mut events, EpollTimeout::NONE).unwrap(), 1);
            events[0].data()
        };
        (next(), next())
    });
    waiter.until_it_sleeps();
    write(&ends.writer);
    until("the waiter was boosted", || counter(&module, "direct") == 1);
    waiter.until_it_sleeps();
    write(&ends.writer);
    assert_eq!((counter(&module, "by_epoll"), counter(&module, "calls")), (1, 1), "{:?}", module.counters());
    write(&into_end);
    assert_eq!(waiter.join(), (1, 2));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_waits_for_io_uring_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        let wait = |end: &OwnedFd| {
            let mut ring = io_uring::IoUring::new(2).unwrap();
            let fd = io_uring::types::Fd(end.as_raw_fd());
            let poll = io_uring::opcode::PollAdd::new(fd, libc::POLLIN.cast_unsigned().into()).build();
            // SAFETY: the request has no buffers, and the descriptor is open until the request completes.
            unsafe { ring.submission().push(&poll) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            read(end);
        };
        check(ends.name, "io_uring", counted(&ends, wait, ROUNDS));
    }
    assert!(counter(&module, "by_io_uring") >= 5 * ROUNDS, "{:?}", module.counters());
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_sleep_that_ends_when_the_peer_has_read_is_not_charged() {
    // A slice in which the peer reads the reply also on a busy host.
    let module = Module::load(&["slice_us=5000", GENEROUS[0], GENEROUS[1], GENEROUS[2]]);
    let device = Device::open().unwrap();
    let (reader, peer) = UnixStream::pair().unwrap();
    let (reader, peer) = (OwnedFd::from(reader), OwnedFd::from(peer));
    device.flag(&reader, Flag::default()).unwrap();
    let waiter = Numbered::spawn(move || {
        for _ in 0..MANY {
            read(&reader);
            write(&reader);
        }
        read(&reader);
    });
    let woken = || switches(waiter.tid);
    let (mut charged, mut woken_twice) = (0, 0);
    for _ in 0..MANY {
        waiter.until_it_sleeps();
        until("every boost has ended", || device.query(waiter.tid).map_or(true, |state| is_settled(&state)));
        let slept = || device.query(waiter.tid).map_or(Duration::ZERO, |state| state.counts.slept_time);
        let (before, sleeps) = (slept(), woken());
        write(&peer);
        // Sleeps again, after its reply.
        while woken() == sleeps {
            std::thread::yield_now();
        }
        read(&peer);
        until("the boost has ended", || device.query(waiter.tid).is_ok_and(|state| is_settled(&state)));
        charged += u32::from(slept() > before);
        woken_twice += u32::from(woken() >= sleeps + 2);
    }
    write(&peer);
    waiter.join();
    println!(
        "{woken_twice} of {MANY} replies woke the thread again, {charged} were charged: {:?}",
        module.counters()
    );
    assert!(woken_twice >= MANY / 2, "{woken_twice} of {MANY}");
    // In a few the thread was woken while it went to sleep.
    assert!(charged <= MANY / 10, "{charged} of {MANY}");
}

/// Returns how often a thread of this process went to sleep.
fn switches(tid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

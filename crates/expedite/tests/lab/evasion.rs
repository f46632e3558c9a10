//! Attempts of a user to exceed the caps by way of other threads: owners of locks, other user ids, groups with a limit.

use core::ffi::c_long;
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;
use pronto_expedite::{Device, Flag};
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::log::assert_no_kernel_warnings;
use crate::machine::{Module, now, pin, receive, until};
use crate::named::Aio;
use crate::program::run;
use crate::users::become_user;
use crate::waiting::{GENEROUS, write};

/// Duration of each measurement.
const TIME: Duration = Duration::from_secs(3);

/// Threads of another user that compute on the same CPU as the thread that tries to evade its budget.
const COMPETITORS: u32 = 3;

/// Maximum gain of the user's threads by boosts: the cap of a thread, plus 2 % of a CPU.
const GAIN: f64 = 0.12;

#[expect(clippy::disallowed_types, reason = "the kernel needs the address of the word")]
type Word = core::sync::atomic::AtomicU32;

/// A lock with priority inheritance (`man 2 futex`): zero, or the number of the owner, and a bit if threads wait.
#[derive(Debug, Default)]
struct PiLock(Word);

impl PiLock {
    fn call(&self, operation: i32) -> c_long {
        // SAFETY: the word outlives the call; the operations use no other argument.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, 0, 0) }
    }

    fn lock(&self) {
        let me = gettid().as_raw().cast_unsigned();
        if self.0.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_err() {
            assert_eq!(self.call(libc::FUTEX_LOCK_PI), 0);
        }
    }

    fn unlock(&self) {
        let me = gettid().as_raw().cast_unsigned();
        if self.0.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            assert_eq!(self.call(libc::FUTEX_UNLOCK_PI), 0);
        }
    }
}

/// Condition variable from which the kernel moves a waiting thread to a lock with priority inheritance.
#[derive(Debug, Default)]
struct Condition(Word);

impl Condition {
    /// Waits until another thread moves this one to the lock, and until it has the lock. Returns whether it has, or `false` after a
    /// second.
    fn wait(&self, lock: &PiLock) -> bool {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        let limit = libc::timespec { tv_sec: now.tv_sec() + 1, tv_nsec: now.tv_nsec() };
        let operation = libc::FUTEX_WAIT_REQUEUE_PI | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: both words and the time outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, 0, &raw const limit, lock.0.as_ptr())
        };
        result == 0
    }

    /// Moves the waiting thread to the lock, if there is one.
    fn requeue(&self, lock: &PiLock) {
        let operation = libc::FUTEX_CMP_REQUEUE_PI | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: both words outlive the call.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, 1, 1, lock.0.as_ptr(), 0) };
    }
}

/// Returns the time that a thread of this process has run: the first number of `schedstat`.
fn ran(tid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Objects that the threads of an attempt share.
struct Attempt {
    lock: PiLock,
    condition: Condition,
    socket: OwnedFd,
    ends: AtomicBool,
}

impl Attempt {
    fn has_ended(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Reads all messages.
    fn read(&self) {
        while let Ok(1..) = nix::unistd::read(&self.socket, &mut [0; 64]) {}
    }
}

/// Work of one of the threads until the attempt ends.
type Part = fn(&Attempt);

/// Computes all the time.
fn compute(attempt: &Attempt) {
    while !attempt.has_ended() {
        core::hint::spin_loop();
    }
}

/// Owns the lock, and computes, all the time.
fn keep_lock(attempt: &Attempt) {
    attempt.lock.lock();
    compute(attempt);
    attempt.lock.unlock();
}

/// Computes all the time, and owns the lock for most of it.
fn use_lock(attempt: &Attempt) {
    while !attempt.has_ended() {
        attempt.lock.lock();
        let start = now();
        while start.elapsed() < Duration::from_millis(2) {
            core::hint::spin_loop();
        }
        attempt.lock.unlock();
    }
}

/// Waits for the lock all the time.
fn want_lock(attempt: &Attempt) {
    while !attempt.has_ended() {
        attempt.lock.lock();
        attempt.lock.unlock();
    }
}

/// Waits for the lock after each message.
fn want_lock_after_messages(attempt: &Attempt) {
    while !attempt.has_ended() {
        wait_by_poll(attempt);
        attempt.read();
        attempt.lock.lock();
        attempt.lock.unlock();
    }
}

/// Waits to be moved to the lock.
fn wait_to_be_moved(attempt: &Attempt) {
    while !attempt.has_ended() {
        if attempt.condition.wait(&attempt.lock) {
            attempt.lock.unlock();
        }
    }
}

/// Makes the waiting thread unknown: the module does not recognise this wait.
fn wait_for_messages(attempt: &Attempt) {
    pin(1);
    let aio = Aio::new();
    while !attempt.has_ended() {
        aio.wait(&attempt.socket);
        attempt.read();
    }
}

/// As [`wait_for_messages`]; moves the waiting thread to the lock after each message.
fn move_after_messages(attempt: &Attempt) {
    pin(1);
    let aio = Aio::new();
    while !attempt.has_ended() {
        aio.wait(&attempt.socket);
        attempt.condition.requeue(&attempt.lock);
        attempt.read();
    }
}

fn wait_by_poll(attempt: &Attempt) {
    let mut fds = [PollFd::new(attempt.socket.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut fds, PollTimeout::NONE);
}

fn do_nothing(_: &Attempt) {}

/// Measures how much of a CPU the owner of a lock gains by boosts: the difference between its share, with [`COMPETITORS`] threads
/// that compute on the same CPU, and a fair share. The flag names the waiter.
fn gain(owner: Part, waiter: Part, helper: Part) -> f64 {
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    for end in [&one, &other] {
        end.set_nonblocking(true).unwrap();
    }
    let attempt = Attempt {
        lock: PiLock::default(),
        condition: Condition::default(),
        socket: one.into(),
        ends: AtomicBool::new(false),
    };
    pin(1);
    // Ends the threads also if this one panics.
    struct End<'a>(&'a Attempt, Option<UnixStream>);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.ends.store(true, Ordering::Relaxed);
            // Ends every wait for a message.
            self.1.take();
        }
    }
    std::thread::scope(|scope| {
        let end = End(&attempt, Some(other));
        let other = end.1.as_ref().unwrap();
        let (started, tids) = channel();
        let start = |part: Part| {
            let (attempt, started) = (&attempt, started.clone());
            scope.spawn(move || {
                pin(0);
                become_user(65_534);
                started.send(gettid().as_raw()).unwrap();
                part(attempt);
            });
            receive(&tids)
        };
        let owner = start(owner);
        until("the owner runs", || ran(owner) > Duration::from_millis(5));
        let waiter = start(waiter);
        start(helper);
        device.flag(&attempt.socket, Flag { thread: waiter, ..Flag::default() }).unwrap();
        let competitors: Vec<_> = (0..COMPETITORS).map(|_| start(compute)).collect();
        let of_competitors = || competitors.iter().map(|tid| ran(*tid)).sum::<Duration>();
        let begin = now();
        let before = (ran(owner), of_competitors());
        while begin.elapsed() < TIME {
            let _ = nix::unistd::write(other, &[0; 8]);
            poll(&mut [], PollTimeout::from(1_u8)).unwrap();
        }
        let owner = ran(owner).saturating_sub(before.0);
        let all = owner + of_competitors().saturating_sub(before.1);
        drop(end);
        owner.as_secs_f64() / all.as_secs_f64() - 1.0 / f64::from(COMPETITORS + 1)
    })
}

/// Checks that the owner of a lock gains no more than a thread may be boosted.
fn check_gain(owner: Part, waiter: Part, helper: Part) -> BTreeMap<&'static str, u64> {
    let module = Module::load(&[]);
    let gain = gain(owner, waiter, helper);
    let counters = module.counters();
    println!("gain {:.1} % of a CPU; {counters:?}", gain * 100.0);
    assert!(gain <= GAIN, "gain {:.1} % of a CPU: {counters:?}", gain * 100.0);
    // The module reports it if a change of class has enabled interrupts.
    assert_no_kernel_warnings();
    counters
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_owner_of_a_lock_is_not_boosted_instead_of_a_named_thread() {
    let counters = check_gain(keep_lock, want_lock, wait_for_messages);
    // Some arrivals come before the thread waits for the lock, or when the attempt ends.
    assert!(counters["locked"] > 100 && counters["locked"] * 10 >= counters["named"] * 9, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_boosted_thread_pays_while_it_waits_for_a_lock() {
    let counters = check_gain(use_lock, want_lock_after_messages, do_nothing);
    assert!(counters["direct"] > 0 && counters["slept_ns"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_is_moved_to_a_lock_pays_for_its_sleep() {
    let counters = check_gain(use_lock, wait_to_be_moved, move_after_messages);
    assert!(counters["worker"] > 0 && counters["slept_ns"] > 0, "{counters:?}");
}

/// A process that waits for the standard input in a user namespace of another process, under a user id of that namespace.
fn reader(namespace: &Child, uid: u32, input: OwnedFd) -> Child {
    let mut reader = Command::new("nsenter");
    reader.args(["-t", &namespace.id().to_string(), "-U", "-S", &uid.to_string(), "-G", "0", "cat"]);
    reader.stdin(input).stdout(Stdio::null()).spawn().unwrap()
}

/// Returns whether a thread of a process blocks in a read of its standard input.
fn is_reading(child: &Child) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", child.id())) else { return false };
    threads.flatten().any(|thread| {
        let call = std::fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.starts_with("0 0x0 ")
    })
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn user_ids_of_a_namespace_share_the_account_of_its_owner() {
    const USERS: u32 = 6;
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let mut namespace = Command::new("setpriv");
    namespace.args([
        "--reuid",
        "1000",
        "--regid",
        "1000",
        "--clear-groups",
        "unshare",
        "--user",
        "sleep",
        "1000",
    ]);
    let mut namespace = namespace.spawn().unwrap();
    let folder = format!("/proc/{}", namespace.id());
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    until("the namespace exists", || {
        std::fs::read_link(format!("{folder}/ns/user")).is_ok_and(|its| its != own)
    });
    std::fs::write(format!("{folder}/uid_map"), "0 100000 100\n").unwrap();
    std::fs::write(format!("{folder}/gid_map"), "0 100000 100\n").unwrap();
    for uid in 1..=USERS {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other): (OwnedFd, OwnedFd) = (one.into(), other.into());
        device.flag(&one, Flag::default()).unwrap();
        let mut reader = reader(&namespace, uid, one);
        until("the reader waits", || is_reading(&reader));
        let before = module.counters()["direct"];
        write(&other);
        until("the reader was boosted", || module.counters()["direct"] > before);
        drop(other);
        assert!(reader.wait().unwrap().success());
    }
    let counters = module.counters();
    // One for each CPU, and one for both together.
    assert!((1..=3).contains(&counters["accounts"]), "{counters:?}");
    namespace.kill().unwrap();
    namespace.wait().unwrap();
}

/// Variable that makes a test the greedy reader of another test: it waits for its standard input, and computes after each message.
const GREEDY: &str = "PRONTO_GREEDY_READER";

/// Waits for messages, and computes for less than a slice after each.
fn read_greedily() {
    while let Ok(1..) = nix::unistd::read(std::io::stdin(), &mut [0; 64]) {
        let start = now();
        while start.elapsed() < Duration::from_micros(120) {
            core::hint::spin_loop();
        }
    }
}

/// A control group, which is removed when this is dropped; its processes must have ended.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let all = Path::new("/sys/fs/cgroup");
        if !all.join("cgroup.controllers").exists() {
            run(Command::new("mount").args(["-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]));
        }
        std::fs::write(all.join("cgroup.subtree_control"), "+cpu").unwrap();
        let group = all.join(name);
        std::fs::create_dir_all(&group).unwrap();
        Self(group)
    }

    fn has(&self, file: &str) -> bool {
        self.0.join(file).exists()
    }

    fn set(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap();
    }

    /// Returns the CPU time that the group has used.
    fn used(&self) -> Duration {
        let text = std::fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
        Duration::from_micros(usage.parse().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Starts a greedy reader in a group, and sends it messages for [`TIME`] or longer, until `is_enough`. Returns the share of a CPU that
/// the group has used.
fn share_of_reader(group: &Group, test: &str, is_enough: impl Fn(f64) -> bool) -> f64 {
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let other = OwnedFd::from(other);
    device.flag(&one, Flag::default()).unwrap();
    let mut reader = Command::new(std::env::current_exe().unwrap());
    reader.args(["--ignored", "--exact", test]).env(GREEDY, "1");
    let mut reader = reader.stdin(OwnedFd::from(one)).stdout(Stdio::null()).spawn().unwrap();
    until("the reader waits", || is_reading(&reader));
    group.set("cgroup.procs", &reader.id().to_string());
    let (begin, before) = (now(), group.used());
    let share = || (group.used() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    while begin.elapsed() < TIME || (begin.elapsed() < 10 * TIME && !is_enough(share())) {
        // Only a thread that waits is boosted.
        if is_reading(&reader) {
            write(&other);
        }
        poll(&mut [], PollTimeout::from(1_u8)).unwrap();
    }
    let share = share();
    drop(other);
    if group.has("cpu.max") {
        group.set("cpu.max", "max");
    }
    assert!(reader.wait().unwrap().success());
    share
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_group_exceeds_its_limit_by_little() {
    if std::env::var_os(GREEDY).is_some() {
        return read_greedily();
    }
    let module = Module::load(&[]);
    let group = Group::new("pronto-limited");
    if !group.has("cpu.max") {
        return pronto_skip::because("the kernel has no limits of groups (CONFIG_CFS_BANDWIDTH)");
    }
    group.set("cpu.max", "1000 100000");
    let is_within = |share: f64| share <= 0.031;
    let is_enough = |share| is_within(share) && module.counters()["denied_group"] > 0;
    let share = share_of_reader(&group, "evasion::a_group_exceeds_its_limit_by_little", is_enough);
    let counters = module.counters();
    println!("limit 1 %, used {:.2} % of a CPU; {counters:?}", share * 100.0);
    assert!(is_within(share), "{share}: {counters:?}");
    assert!(counters["direct"] > 0 && counters["denied_group"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_group_that_runs_after_others_is_not_boosted() {
    if std::env::var_os(GREEDY).is_some() {
        return read_greedily();
    }
    let module = Module::load(GENEROUS);
    let group = Group::new("pronto-idle");
    group.set("cpu.idle", "1");
    share_of_reader(&group, "evasion::a_group_that_runs_after_others_is_not_boosted", |_| true);
    let counters = module.counters();
    // The reader gets its first message when it is in the group.
    assert!(counters["behind"] > 10 && counters["direct"] == 0, "{counters:?}");
}

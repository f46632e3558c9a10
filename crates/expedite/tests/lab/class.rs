//! The scheduling class: the module raises and restores it, and overwrites no class that another caller has set.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

use pronto_expedite::{Counts, Device, Flag};

use crate::machine::{Module, Numbered, receive, until};
use crate::users::become_user;
use crate::waiting::{GENEROUS, is_settled, write};

/// Number of tries for an observation that succeeds only while a boost lasts.
const TRIES: u64 = 100;

/// Returns module parameters with the longest possible boost, and budgets that are never spent.
fn long_boosts() -> Vec<&'static str> {
    [GENEROUS, &["slice_us=5000"]].concat()
}

/// Returns the class of a thread, including the flag that its children do not inherit it.
fn class(tid: i32) -> i32 {
    // SAFETY: the call takes a number only.
    unsafe { libc::sched_getscheduler(tid) }
}

/// Class of a boosted thread.
const BOOSTED: i32 = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;

fn set_class(tid: i32, class: i32, priority: i32) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure lives during the call.
    assert_eq!(unsafe { libc::sched_setscheduler(tid, class, &raw const parameters) }, 0);
}

fn nice(tid: i32) -> i32 {
    // SAFETY: the call takes numbers only.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned()) }
}

fn set_nice(tid: i32, nice: i32) {
    // SAFETY: the call takes numbers only.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) }, 0);
}

/// A thread that repeatedly waits on a flagged socket, runs `work` after each message, and sends the result.
struct Handler<T> {
    device: Device,
    thread: Numbered<()>,
    sender: OwnedFd,
    results: std::sync::mpsc::Receiver<T>,
}

impl<T: Send + 'static> Handler<T> {
    fn start(work: impl FnMut() -> T + Send + 'static) -> Self {
        Self::with(UnixStream::pair().unwrap(), work)
    }

    /// As `start`, with a socket that receives and one that sends.
    fn with<S: AsFd + Into<OwnedFd> + Send + 'static>(
        (receiver, sender): (S, S),
        mut work: impl FnMut() -> T + Send + 'static,
    ) -> Self {
        let device = Device::open().unwrap();
        device.flag(&receiver, Flag::default()).unwrap();
        let (into_results, results): (Sender<T>, _) = channel();
        let thread = Numbered::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok(1..) = nix::unistd::read(&receiver, &mut bytes) {
                into_results.send(work()).unwrap();
            }
        });
        Self { device, thread, sender: sender.into(), results }
    }

    /// Sends a message to the thread when it waits and its last boost has ended. Returns the result of its work.
    fn message(&self) -> T {
        self.until_settled();
        self.thread.until_it_sleeps();
        write(&self.sender);
        receive(&self.results)
    }

    fn until_settled(&self) -> Option<Counts> {
        until("every boost has ended", || {
            self.device.query(self.thread.tid).map_or(true, |state| is_settled(&state))
        });
        self.device.query(self.thread.tid).ok().map(|state| state.counts)
    }

    /// Sends messages until the result is `wanted`.
    fn message_until(&self, what: &str, wanted: impl Fn(&T) -> bool) {
        let seen = (0..TRIES).any(|_| wanted(&self.message()));
        assert!(seen, "{TRIES} tries without {what}: {:?}", self.until_settled());
    }

    fn end(self) {
        drop(self.sender);
        self.thread.join();
    }
}

/// Shows: operations.module
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_boosted_thread_is_real_time_and_gets_its_class_back() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| class(0));
    set_class(handler.thread.tid, libc::SCHED_BATCH, 0);
    set_nice(handler.thread.tid, -7);
    handler.message_until("the boost", |class| *class == BOOSTED);
    let counts = handler.until_settled().unwrap();
    assert!(counts.direct >= 1 && counts.drops == counts.direct && counts.replaced == 0, "{counts:?}");
    assert_eq!((class(handler.thread.tid), nice(handler.thread.tid)), (libc::SCHED_BATCH, -7));
    handler.end();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_class_of_a_real_time_thread_is_unchanged() {
    let _module = Module::load(GENEROUS);
    let handler = Handler::start(|| ());
    set_class(handler.thread.tid, libc::SCHED_FIFO, 10);
    for _ in 0..3 {
        handler.message();
    }
    let counts = handler.until_settled().unwrap();
    assert_eq!((counts.realtime, counts.direct + counts.worker), (3, 0), "{counts:?}");
    assert_eq!(class(handler.thread.tid), libc::SCHED_FIFO);
    handler.end();
}

/// Sets a class while a thread is boosted, and checks that it stays.
fn check_class_set_during_a_boost(new_class: i32, priority: i32) {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(move || {
        if class(0) == BOOSTED {
            set_class(0, new_class, priority);
        }
    });
    for _ in 0..TRIES {
        handler.message();
        if handler.until_settled().unwrap().replaced > 0 {
            break;
        }
        set_class(handler.thread.tid, libc::SCHED_OTHER, 0);
    }
    let counts = handler.until_settled().unwrap();
    assert!(counts.replaced > 0, "no class was set during a boost: {counts:?}");
    assert_eq!(class(handler.thread.tid), new_class);
    handler.end();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_class_set_during_a_boost_stays() {
    check_class_set_during_a_boost(libc::SCHED_BATCH, 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_real_time_class_of_prontos_own_tier_set_during_a_boost_stays() {
    check_class_set_during_a_boost(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_must_run_after_others_is_not_boosted() {
    let _module = Module::load(GENEROUS);
    // The first message makes the thread that of another user, which has no privileges. The others find it asleep.
    let handler = Handler::start(|| become_user(65_534));
    handler.message();
    // A nice value that is set within the end of a boost may be lost (kernel/expedite/README.md, Limits).
    handler.until_settled();
    set_nice(handler.thread.tid, 1);
    for _ in 0..3 {
        handler.message();
    }
    set_nice(handler.thread.tid, 0);
    set_class(handler.thread.tid, libc::SCHED_IDLE, 0);
    for _ in 0..3 {
        handler.message();
    }
    let counts = handler.until_settled().unwrap();
    assert_eq!((counts.behind, counts.boosts()), (6, 1), "{counts:?}");
    handler.end();
    // A privileged thread may set its nice value to 0, and is boosted.
    let handler = Handler::start(|| ());
    set_nice(handler.thread.tid, 10);
    for _ in 0..3 {
        handler.message();
    }
    let counts = handler.until_settled().unwrap();
    assert_eq!((counts.behind, counts.boosts()), (0, 3), "{counts:?}");
    handler.end();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_workers_are_just_above_boosted_threads() {
    let _module = Module::load(&[]);
    let is_worker = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("expedite/"))
    };
    let priority = |pid: i32| {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure lives during the call.
        assert_eq!(unsafe { libc::sched_getparam(pid, &raw mut parameters) }, 0);
        (class(pid), parameters.sched_priority)
    };
    let mut workers = Vec::new();
    // A list of processes is not taken at one point in time, so one may be missing.
    until("all workers are listed", || {
        let all = std::fs::read_dir("/proc").unwrap();
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        workers = numbers.filter(is_worker).map(priority).collect();
        workers.len() >= 3
    });
    // One for each of two CPUs, and one for any.
    assert_eq!(workers, [(libc::SCHED_FIFO, 2); 3]);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_nice_value_set_during_a_boost_stays() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| {
        let is_boosted = class(0) == BOOSTED;
        if is_boosted {
            set_nice(0, 11);
        }
        is_boosted && class(0) == BOOSTED
    });
    handler.message_until("a nice value set during a boost", |done| *done);
    handler.until_settled();
    assert_eq!((class(handler.thread.tid), nice(handler.thread.tid)), (libc::SCHED_OTHER, 11));
    handler.end();
}

/// Returns the priority of the calling thread, negative for a real-time one, whatever its policy is called.
fn priority() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The 18th field; the second one is in brackets, and may have spaces.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(15).unwrap().parse().unwrap()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_children_of_a_boosted_thread_have_its_own_scheduling() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| {
        let before = class(0);
        let child = std::thread::spawn(|| (class(0), nice(0), priority())).join().unwrap();
        (before, child)
    });
    set_class(handler.thread.tid, libc::SCHED_BATCH, 0);
    set_nice(handler.thread.tid, -7);
    handler.message_until("a child started during a boost", |(before, child)| {
        assert_eq!(*child, (libc::SCHED_BATCH, -7, 20 - 7));
        *before == BOOSTED
    });
    handler.end();
}

/// Workers raise a thread to which data comes in an interrupt, while it may already run, and start a child.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_children_that_are_started_when_a_boost_begins_are_not_boosted() {
    const BOOSTS: u64 = 1_000;
    let _module = Module::load(GENEROUS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sender.set_nodelay(true).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let handler = Handler::with((receiver, sender), || std::thread::spawn(priority).join().unwrap());
    let mut priorities = std::collections::BTreeMap::<i32, u64>::new();
    // On a kernel with checks, all of them take longer than a wait may.
    for boosts in (0..=BOOSTS).step_by(50) {
        until("more boosts by workers", || {
            for _ in 0..20 {
                *priorities.entry(handler.message()).or_default() += 1;
            }
            handler.until_settled().is_some_and(|counts| counts.worker >= boosts)
        });
    }
    println!("children by their priority: {priorities:?}, {:?}", handler.until_settled());
    assert_eq!(priorities.keys().copied().collect::<Vec<_>>(), [20]);
    handler.end();
}

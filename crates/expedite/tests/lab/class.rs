//! The scheduling class: raised and given back, and nobody else's decision is overwritten.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

use pronto_expedite::{Counts, Device, Flag};

use crate::machine::{Module, Numbered, receive, until};
use crate::waiting::{GENEROUS, is_settled, write};

/// How often something is tried that depends on a boost not being over yet.
const TRIES: u64 = 100;

/// The longest boost that can be had, with budgets that are never spent.
fn long_boosts() -> Vec<&'static str> {
    [GENEROUS, &["slice_us=5000"]].concat()
}

/// The class of a thread, with the mark that its children do not inherit it.
fn class(tid: i32) -> i32 {
    // SAFETY: it takes a number.
    unsafe { libc::sched_getscheduler(tid) }
}

/// A boosted thread has this class.
const BOOSTED: i32 = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;

fn set_class(tid: i32, class: i32, priority: i32) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure lives during the call.
    assert_eq!(unsafe { libc::sched_setscheduler(tid, class, &raw const parameters) }, 0);
}

fn nice(tid: i32) -> i32 {
    // SAFETY: it takes numbers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned()) }
}

fn set_nice(tid: i32, nice: i32) {
    // SAFETY: it takes numbers.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) }, 0);
}

/// A thread that waits on a flagged socket again and again, does something after each message, and tells what came of it.
struct Handler<T> {
    device: Device,
    thread: Numbered<()>,
    sender: OwnedFd,
    results: std::sync::mpsc::Receiver<T>,
}

impl<T: Send + 'static> Handler<T> {
    fn start(mut work: impl FnMut() -> T + Send + 'static) -> Self {
        let device = Device::open().unwrap();
        let (receiver, sender) = UnixStream::pair().unwrap();
        device.flag(&receiver, Flag::default()).unwrap();
        let (tell, results): (Sender<T>, _) = channel();
        let thread = Numbered::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok(1..) = nix::unistd::read(&receiver, &mut bytes) {
                tell.send(work()).unwrap();
            }
        });
        Self { device, thread, sender: sender.into(), results }
    }

    /// Sends a message to the thread, once it waits and its last boost has ended.
    fn message(&self) -> T {
        self.until_settled();
        self.thread.until_it_sleeps();
        write(&self.sender);
        receive(&self.results)
    }

    fn until_settled(&self) -> Option<Counts> {
        until("every boost has ended", || {
            self.device.query(self.thread.tid).map_or(true, |counts| is_settled(&counts))
        });
        self.device.query(self.thread.tid).ok()
    }

    /// Sends messages until the answer is `wanted`.
    fn message_until(&self, what: &str, wanted: impl Fn(&T) -> bool) {
        let seen = (0..TRIES).any(|_| wanted(&self.message()));
        assert!(seen, "{what} was not seen in {TRIES} tries: {:?}", self.until_settled());
    }

    fn end(self) {
        drop(self.sender);
        self.thread.join();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_boosted_thread_is_real_time_and_then_what_it_was() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| class(0));
    set_class(handler.thread.tid, libc::SCHED_BATCH, 0);
    set_nice(handler.thread.tid, 7);
    handler.message_until("the boost", |class| *class == BOOSTED);
    let counts = handler.until_settled().unwrap();
    assert!(counts.direct >= 1 && counts.drops == counts.direct && counts.replaced == 0, "{counts:?}");
    assert_eq!((class(handler.thread.tid), nice(handler.thread.tid)), (libc::SCHED_BATCH, 7));
    handler.end();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_is_real_time_by_itself_is_left_alone() {
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

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_class_that_is_set_meanwhile_stays() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| {
        if class(0) == BOOSTED {
            set_class(0, libc::SCHED_BATCH, 0);
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
    assert!(counts.replaced > 0, "no boost was still going on: {counts:?}");
    assert_eq!(class(handler.thread.tid), libc::SCHED_BATCH);
    handler.end();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_nice_value_that_is_set_meanwhile_stays() {
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

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_children_of_a_boosted_thread_are_not_boosted() {
    let _module = Module::load(&long_boosts());
    let handler = Handler::start(|| {
        let before = class(0);
        let child = std::thread::spawn(|| class(0)).join().unwrap();
        (before, child)
    });
    handler.message_until("a child born during a boost", |(before, child)| {
        assert_eq!(*child, libc::SCHED_OTHER);
        *before == BOOSTED
    });
    handler.end();
}

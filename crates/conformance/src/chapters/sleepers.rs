//! Two threads that may sleep for the same queue pair, the serving thread and a caller: which of them is woken, and
//! that it finds the message that woke it.

use core::ops::RangeInclusive;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use pronto_core::fabric::{Armed, QueuePair};

use super::arming::{Other, sleep};
use super::tests;
use crate::Harness;
use crate::channel::borrowed;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "sleepers",
        tests: tests![
            a_notified_caller_finds_the_message needs [Channel],
            only_a_sleeping_caller_is_woken needs [NearChannel],
            without_a_caller_the_channel_wakes needs [NearChannel],
        ],
    }
}

/// Event data of the epoll for callers: a class.
const CLASSES: RangeInclusive<u64> = 0..=1;
/// Event data of the serving thread's epoll.
const CHANNEL: u64 = 7;
const STOP: u64 = 8;
/// A sleeper gives up after one millisecond per this number of rounds of its harness' patience.
const ROUNDS_PER_MILLISECOND: u32 = 25;

/// The caller is woken by the channel, reports it, and polls. It may not have polled since it armed: then the next poll
/// could be one that the provider skips.
fn a_notified_caller_finds_the_message<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..200 {
        rig.qp(End::B).arm(Armed::All).expect("a live queue pair can be armed");
        if i % 2 == 0 {
            assert!(!rig.at(End::B).poll(), "nothing was sent");
        }
        for _ in 0..=i % 3 {
            rig.post(End::A, Form::ALL[i % 4], 40).expect("few messages fit");
        }
        rig.ring(End::A);
        sleep(&mut rig, End::B, Other::Sleeps);
        rig.qp(End::B).notify_woken();
        assert!(rig.at(End::B).poll(), "notified, but nothing was found");
        rig.wait_idle();
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
    }
    rig.finish();
}

/// Both threads sleep: the caller in the epoll for callers, the serving thread on the channel.
fn only_a_sleeping_caller_is_woken<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..20 {
        arm_and_poll(&mut rig);
        let (near, serving, stop) = (near(&mut rig), Serving::new(&mut rig), &stop());
        serving.0.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).expect("it is not in the epoll yet");
        thread::scope(|scope| {
            let caller = Sleeper::start(scope, &near, harness.patience());
            let server = Sleeper::start(scope, &serving.0, harness.patience());
            rig.post(End::A, Form::ALL[i % 4], 40).expect("one message fits");
            rig.ring(End::A);
            let told = caller.ended(|| rig.settle());
            // Takes everything that came before the serving thread may wake up, which then finds nothing.
            rig.qp(End::B).notify_woken();
            rig.wait_idle();
            rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
            stop.write(1).expect("an eventfd takes a one");
            assert!(!told.is_empty(), "the caller was not woken");
            assert!(told.iter().all(|class| CLASSES.contains(class)), "{told:?} are not classes");
            assert_eq!(server.ended(|| ()), [STOP], "the serving thread was woken, too");
        });
    }
    rig.finish();
}

/// The epoll for callers exists, but no thread sleeps in it.
fn without_a_caller_the_channel_wakes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..20 {
        arm_and_poll(&mut rig);
        let (_near, serving) = (near(&mut rig), Serving::new(&mut rig));
        thread::scope(|scope| {
            let server = Sleeper::start(scope, &serving.0, harness.patience());
            rig.post(End::A, Form::ALL[i % 4], 40).expect("one message fits");
            rig.ring(End::A);
            assert_eq!(server.ended(|| rig.settle()), [CHANNEL], "the serving thread was not woken");
        });
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
        rig.wait_idle();
    }
    rig.finish();
}

fn arm_and_poll<H: Harness>(rig: &mut Rig<'_, H>) {
    rig.qp(End::B).arm(Armed::All).expect("a live queue pair can be armed");
    assert!(!rig.at(End::B).poll(), "nothing was sent");
}

fn near<H: Harness>(rig: &mut Rig<'_, H>) -> Epoll {
    let channel = rig.qp(End::B).channel().expect("the channel still exists");
    let near = channel.caller_epoll.expect("the epoll for callers still exists");
    Epoll(borrowed(near).try_clone_to_owned().expect("a descriptor is available"))
}

fn stop() -> EventFd {
    EventFd::new().expect("a descriptor is available")
}

/// Epoll in which the serving thread sleeps.
struct Serving(Epoll);

impl Serving {
    fn new<H: Harness>(rig: &mut Rig<'_, H>) -> Self {
        let channel = rig.qp(End::B).channel().expect("the channel still exists").fd;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a descriptor is available");
        let event = EpollEvent::new(EpollFlags::EPOLLIN, CHANNEL);
        epoll.add(borrowed(channel), event).expect("a channel can be watched");
        Self(epoll)
    }
}

/// A thread that sleeps once.
struct Sleeper<'scope> {
    thread: ScopedJoinHandle<'scope, Vec<u64>>,
}

impl<'scope> Sleeper<'scope> {
    /// Starts the thread. Returns once it sleeps.
    fn start<'env>(scope: &'scope Scope<'scope, 'env>, on: &'env Epoll, patience: u32) -> Self {
        let limit = u16::try_from(patience / ROUNDS_PER_MILLISECOND).unwrap_or(u16::MAX);
        let (say, heard) = channel();
        let thread = scope.spawn(move || {
            let task = fs::read_link("/proc/thread-self").expect("a thread is a task");
            say.send(task).expect("the other end waits for it");
            let mut events = [EpollEvent::empty(); 4];
            let ready = on.wait(&mut events, EpollTimeout::from(limit)).expect("no signal comes");
            events[..ready].iter().map(EpollEvent::data).collect()
        });
        wait_until_asleep(&heard);
        Self { thread }
    }

    /// Returns the event data that has woken the thread, or nothing.
    fn ended(self, mut meanwhile: impl FnMut()) -> Vec<u64> {
        while !self.thread.is_finished() {
            meanwhile();
            thread::yield_now();
        }
        self.thread.join().expect("a sleeper does not panic")
    }
}

fn wait_until_asleep(task: &Receiver<PathBuf>) {
    let task = task.recv().expect("the thread reports its task first");
    let stat = Path::new("/proc").join(task).join("stat");
    loop {
        // The thread's name, which precedes the state, may contain anything except `)`.
        let text = fs::read_to_string(&stat).unwrap_or_default();
        let state = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        if state.is_none_or(|state| state.starts_with('S')) {
            return;
        }
        thread::yield_now();
    }
}

//! Two who may sleep for the same queue pair, the serving thread and a caller: who of them is woken, and that it finds what it was
//! woken for.

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
            whoever_was_told_finds_what_came needs [Channel],
            a_caller_that_sleeps_is_woken_and_nobody_else needs [NearChannel],
            without_a_caller_the_channel_wakes needs [NearChannel],
        ],
    }
}

/// What the epoll of callers may say: a class.
const CLASSES: RangeInclusive<u64> = 0..=1;
/// What the serving thread's says.
const CHANNEL: u64 = 7;
const STOP: u64 = 8;
/// A sleeper that nobody wakes gives up after a millisecond for so many rounds of its harness' patience.
const ROUNDS_PER_MILLISECOND: u32 = 25;

/// The caller was woken by the channel, says so, and looks. It need not have looked since it armed: then the next look might be one that a
/// provider leaves out.
fn whoever_was_told_finds_what_came<H: Harness>(harness: &H) {
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
        assert!(rig.at(End::B).poll(), "told, and found nothing");
        rig.wait_idle();
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
    }
    rig.finish();
}

/// Both sleep, the caller in the epoll for callers, the serving thread on the channel.
fn a_caller_that_sleeps_is_woken_and_nobody_else<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..20 {
        arm_and_look(&mut rig);
        let (near, serving, stop) = (near(&mut rig), Serving::new(&mut rig), &stop());
        serving.0.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).expect("it is new there");
        thread::scope(|scope| {
            let caller = Sleeper::start(scope, &near, harness.patience());
            let server = Sleeper::start(scope, &serving.0, harness.patience());
            rig.post(End::A, Form::ALL[i % 4], 40).expect("one message fits");
            rig.ring(End::A);
            let told = caller.ended(|| rig.settle());
            // All that came is taken before the other one is woken: it does not find it then.
            rig.qp(End::B).notify_woken();
            rig.wait_idle();
            rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
            stop.write(1).expect("an eventfd takes a one");
            assert!(!told.is_empty(), "asleep for ever");
            assert!(told.iter().all(|class| CLASSES.contains(class)), "{told:?} are no classes");
            assert_eq!(server.ended(|| ()), [STOP], "the serving thread was woken as well");
        });
    }
    rig.finish();
}

/// The epoll for callers is there, and nobody sleeps in it.
fn without_a_caller_the_channel_wakes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..20 {
        arm_and_look(&mut rig);
        let (_near, serving) = (near(&mut rig), Serving::new(&mut rig));
        thread::scope(|scope| {
            let server = Sleeper::start(scope, &serving.0, harness.patience());
            rig.post(End::A, Form::ALL[i % 4], 40).expect("one message fits");
            rig.ring(End::A);
            assert_eq!(server.ended(|| rig.settle()), [CHANNEL], "asleep for ever");
        });
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
        rig.wait_idle();
    }
    rig.finish();
}

fn arm_and_look<H: Harness>(rig: &mut Rig<'_, H>) {
    rig.qp(End::B).arm(Armed::All).expect("a live queue pair can be armed");
    assert!(!rig.at(End::B).poll(), "nothing was sent");
}

fn near<H: Harness>(rig: &mut Rig<'_, H>) -> Epoll {
    let channel = rig.qp(End::B).channel().expect("what was offered stays");
    let near = channel.caller_epoll.expect("what was offered stays");
    Epoll(borrowed(near).try_clone_to_owned().expect("there is room for a descriptor"))
}

fn stop() -> EventFd {
    EventFd::new().expect("there is room for a descriptor")
}

/// What a serving thread sleeps on.
struct Serving(Epoll);

impl Serving {
    fn new<H: Harness>(rig: &mut Rig<'_, H>) -> Self {
        let channel = rig.qp(End::B).channel().expect("what was offered stays").fd;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("there is room for a descriptor");
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
    /// It sleeps when this returns.
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

    /// What has woken it; nothing if nothing did.
    fn ended(self, mut meanwhile: impl FnMut()) -> Vec<u64> {
        while !self.thread.is_finished() {
            meanwhile();
            thread::yield_now();
        }
        self.thread.join().expect("a sleeper does not panic")
    }
}

fn wait_until_asleep(task: &Receiver<PathBuf>) {
    let task = task.recv().expect("it says so first");
    let stat = Path::new("/proc").join(task).join("stat");
    loop {
        // The name, which stands before the state, may have anything in it but this.
        let text = fs::read_to_string(&stat).unwrap_or_default();
        let state = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        if state.is_none_or(|state| state.starts_with('S')) {
            return;
        }
        thread::yield_now();
    }
}

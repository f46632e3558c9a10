//! An executor of one thread, which polls a task only when it was woken, and counts polls and wake-ups.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Wake;

use pronto_sync::atomic::{AtomicU32, Ordering};

use pronto::Responder;

use crate::rig::{PATIENCE, Pair, Sum, Watch};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The tasks that were woken, in the order of their wake-ups.
#[derive(Default)]
struct Woken {
    tasks: Mutex<VecDeque<usize>>,
    came: Condvar,
}

struct TaskWaker {
    number: usize,
    woken: Arc<Woken>,
    wakes: AtomicU32,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        // SYNC: a statistics counter; orders nothing.
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.woken.tasks.lock().unwrap().push_back(self.number);
        self.woken.came.notify_one();
    }
}

/// The executor.
#[derive(Default)]
pub(crate) struct Executor<'a> {
    tasks: Vec<(Option<Task<'a>>, Arc<TaskWaker>)>,
    polls: Vec<u32>,
    /// Tasks that are no longer polled.
    hung: BTreeSet<usize>,
    woken: Arc<Woken>,
}

impl<'a> Executor<'a> {
    /// Adds a task, and polls it once. Returns its number.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + 'a) -> usize {
        let number = self.tasks.len();
        let waker = TaskWaker { number, woken: Arc::clone(&self.woken), wakes: AtomicU32::new(0) };
        self.tasks.push((Some(Box::pin(task)), Arc::new(waker)));
        self.polls.push(0);
        self.poll(number);
        number
    }

    /// Stops polling a task, which stays in memory.
    pub(crate) fn hang(&mut self, number: usize) {
        self.hung.insert(number);
    }

    /// Polls a task again, also if it was not woken.
    pub(crate) fn resume(&mut self, number: usize) {
        self.hung.remove(&number);
        self.poll(number);
    }

    /// Drops a task.
    pub(crate) fn cancel(&mut self, number: usize) {
        self.tasks[number].0 = None;
    }

    pub(crate) fn has_ended(&self, number: usize) -> bool {
        self.tasks[number].0.is_none()
    }

    pub(crate) fn polls(&self, number: usize) -> u32 {
        self.polls[number]
    }

    pub(crate) fn wakes(&self, number: usize) -> u32 {
        // SYNC: a statistics counter; orders nothing.
        self.tasks[number].1.wakes.load(Ordering::Relaxed)
    }

    fn poll(&mut self, number: usize) {
        let (task, waker) = &mut self.tasks[number];
        if self.hung.contains(&number) {
            return;
        }
        let Some(future) = task else { return };
        self.polls[number] += 1;
        let waker = Waker::from(Arc::clone(waker));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            *task = None;
        }
    }

    /// Polls the tasks that were woken, until no other is woken for now.
    pub(crate) fn run_woken(&mut self) {
        loop {
            let next = self.woken.tasks.lock().unwrap().pop_front();
            match next {
                Some(number) => self.poll(number),
                None => return,
            }
        }
    }

    /// Polls the tasks that are woken, until `is_so` returns true. Sleeps in between, until a task is woken.
    pub(crate) fn run_until(&mut self, condition: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let watch = Watch::start();
        loop {
            self.run_woken();
            if is_so(self) {
                return;
            }
            assert!(watch.passed() < PATIENCE, "timed out: {condition}");
            let tasks = self.woken.tasks.lock().unwrap();
            if tasks.is_empty() {
                // The condition may also change without a wake-up.
                drop(self.woken.came.wait_timeout(tasks, Duration::from_millis(5)).unwrap());
            }
        }
    }

    /// Polls the tasks that are woken, until the server has received a request, and returns it.
    pub(crate) fn serve(&mut self, pair: &Pair) -> (u64, Responder<Sum>) {
        let mut received = None;
        self.run_until("a request arrives", |_| {
            received = pair.try_received();
            received.is_some()
        });
        received.unwrap()
    }

    /// Polls the tasks until all that are polled have ended.
    pub(crate) fn run_all(&mut self) {
        self.run_until("all tasks end", |executor| {
            let mut polled = (0..executor.tasks.len()).filter(|number| !executor.hung.contains(number));
            polled.all(|number| executor.has_ended(number))
        });
    }
}

/// Runs a future on this thread, which sleeps until it is woken. Returns its output and the number of its polls.
pub(crate) fn block_on<F: Future>(future: F) -> (F::Output, u32) {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let (mut polls, watch) = (0, Watch::start());
    loop {
        polls += 1;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, polls),
            Poll::Pending => {
                assert!(watch.passed() < PATIENCE, "timed out: the future is not woken");
                std::thread::park_timeout(PATIENCE);
            }
        }
    }
}

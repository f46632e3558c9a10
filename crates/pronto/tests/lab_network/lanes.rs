//! Calls and notifications of one thread in one class. Each call must be answered, and the server must execute all in their order.

use core::time::Duration;
use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use pronto::{Builder, CallError, Executed, Message, Payload, Peer, Pending, Request};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ledger::{AFTER_REFUSAL, Log, append, fill, id};
use crate::rig::{TIMEOUT, pause};

/// Messages that are sent before the first of them is waited for.
const BATCH: u64 = 6;
/// Deadline of the calls. It expires only if a call is lost.
const FAR: Duration = Duration::from_secs(40);
/// Longest body of a message of each class, in bytes.
const LONGEST: [u64; 2] = [400, 4_000];

#[derive(Payload, Debug)]
struct Numbered {
    number: u64,
    body: Vec<u8>,
}

/// The number of the message that is answered, and the sum of the bytes of its body.
#[derive(Message, Debug, PartialEq, Eq)]
#[message(name = "network.done")]
struct Done {
    number: u64,
    sum: u64,
}

#[derive(Message, Debug)]
#[message(name = "network.step", reply = Done)]
struct Step {
    it: Numbered,
}

#[derive(Message, Debug)]
#[message(name = "network.note")]
struct Note {
    it: Numbered,
}

#[derive(Message, Debug)]
#[message(name = "network.bulk-step", reply = Done, class = bulk)]
struct BulkStep {
    it: Numbered,
}

#[derive(Message, Debug)]
#[message(name = "network.bulk-note", class = bulk)]
struct BulkNote {
    it: Numbered,
}

/// Appends a message of a lane to the log, and returns the answer to it.
fn executed(log: &File, lane: usize, it: &Numbered) -> Done {
    append(log, id(lane, usize::try_from(it.number).unwrap()));
    Done { number: it.number, sum: it.body.iter().copied().map(u64::from).sum() }
}

/// Adds the handlers of both lanes to a node. Inline handlers run in the order of arrival.
pub(crate) fn handled(node: Builder, log: &str) -> Builder {
    let [step, note, bulk_step, bulk_note] = [(); 4].map(|()| Log::open(log));
    node.handle_inline(move |_, Step { it }| executed(&step, 0, &it))
        .handle_inline(move |_, BulkStep { it }| executed(&bulk_step, 1, &it))
        .on_inline(move |_, Note { it }| {
            executed(&note, 0, &it);
        })
        .on_inline(move |_, BulkNote { it }| {
            executed(&bulk_note, 1, &it);
        })
}

/// The end of a message, as its sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Answered,
    Notified,
    /// Was not sent, for lack of a link or of room.
    Refused,
    /// The session ended before the answer.
    Down(Executed),
}

/// Two threads, one for each class.
pub(crate) struct Lanes {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    ends: [Receiver<Vec<Sent>>; 2],
}

impl Lanes {
    pub(crate) fn start(peer: &Peer) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let lane = |lane: usize| Lane {
            lane,
            peer: peer.clone(),
            stop: Arc::clone(&stop),
            answered: Arc::clone(&answered),
            sent: Vec::new(),
        };
        let (control, bulk) = (lane(0), lane(1));
        let ends = [
            started(move || control.run(|it| Step { it }, |it| Note { it })),
            started(move || bulk.run(|it| BulkStep { it }, |it| BulkNote { it })),
        ];
        Self { stop, answered, ends }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Stops the threads, and returns what each has sent.
    ///
    /// # Panics
    /// If a call was lost, or its answer was wrong.
    pub(crate) fn stop(&self) -> Books {
        self.stop.store(true, Ordering::Relaxed);
        Books(self.ends.each_ref().map(|ends| ends.recv_timeout(TIMEOUT).expect("a lane has failed")))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts a thread; its result arrives here, or nothing if it panics.
fn started<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (send, end) = channel();
    // Not scoped: a hanging thread must not prevent the test from failing.
    std::thread::spawn(move || {
        let _driver_failed = send.send(run());
    });
    end
}

struct Lane {
    lane: usize,
    peer: Peer,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    /// By the number of the message.
    sent: Vec<Sent>,
}

impl Lane {
    fn run<S: Request<Reply = Done>, N: Message>(
        mut self,
        step: impl Fn(Numbered) -> S,
        note: impl Fn(Numbered) -> N,
    ) -> Vec<Sent> {
        // SYNC: a stop flag; orders nothing.
        while !self.stop.load(Ordering::Relaxed) {
            let mut open = Vec::new();
            for _ in 0..BATCH {
                let number = self.sent.len() as u64;
                let len = number * 37 % LONGEST[self.lane];
                let body = vec![fill(number); usize::try_from(len).unwrap()];
                let sum = len * u64::from(fill(number));
                let it = Numbered { number, body };
                // Two of three messages are calls.
                let sent = if number % 3 == 1 {
                    self.peer.notify(&note(it)).map(|()| Sent::Notified)
                } else {
                    self.peer.start_within(&step(it), FAR).map(|pending| {
                        open.push((Done { number, sum }, pending));
                        Sent::Answered
                    })
                };
                self.sent.push(sent.unwrap_or_else(|refused| {
                    assert_eq!(refused.executed(), Executed::No, "{refused:?}");
                    pause(AFTER_REFUSAL);
                    Sent::Refused
                }));
            }
            open.into_iter().for_each(|(done, pending)| self.end(&done, pending));
        }
        self.sent
    }

    fn end<S: Request<Reply = Done>>(&mut self, done: &Done, pending: Pending<S>) {
        match pending.wait() {
            Ok(reply) => {
                assert_eq!(reply, *done, "the answer to another call");
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(CallError::PeerDown { executed, .. }) => {
                self.sent[usize::try_from(done.number).unwrap()] = Sent::Down(executed);
            }
            Err(error) => panic!("the call {} of lane {} is lost: {error:?}", done.number, self.lane),
        }
    }
}

/// The messages of each lane and their ends.
pub(crate) struct Books([Vec<Sent>; 2]);

impl Books {
    /// Compares the messages with the log of a server that has ended. Returns the numbers of answered calls, of notifications, and of
    /// those that did not arrive.
    pub(crate) fn assert_equals_log(&self, log: &Log) -> [u64; 3] {
        let ids = log.ids();
        let mut counts = [0; 3];
        for (lane, sent) in self.0.iter().enumerate() {
            let numbers: Vec<u64> =
                (ids.iter().filter(|id| *id >> 40 == lane as u64)).map(|id| id & ((1 << 40) - 1)).collect();
            let unordered = numbers.windows(2).find(|pair| pair[0] >= pair[1]);
            assert_eq!(unordered, None, "lane {lane} was executed out of order, or twice");
            let numbers: HashSet<u64> = numbers.into_iter().collect();
            for (number, sent) in sent.iter().enumerate() {
                let was_executed = numbers.contains(&(number as u64));
                let allowed = match sent {
                    Sent::Answered | Sent::Down(Executed::Yes) => was_executed,
                    Sent::Refused | Sent::Down(Executed::No) => !was_executed,
                    Sent::Notified | Sent::Down(Executed::Maybe) => true,
                };
                assert!(allowed, "lane {lane}, message {number}: {sent:?}, executed: {was_executed}");
                counts[0] += u64::from(*sent == Sent::Answered);
                counts[1] += u64::from(*sent == Sent::Notified);
                counts[2] += u64::from(*sent == Sent::Notified && !was_executed);
            }
            let known = numbers.iter().all(|number| *number < sent.len() as u64);
            assert!(known, "lane {lane}: a message was executed that was never sent");
        }
        counts
    }

    /// Returns the number of calls that the end of the session ended.
    pub(crate) fn downs(&self) -> usize {
        self.0.iter().flatten().filter(|sent| matches!(sent, Sent::Down(_))).count()
    }
}

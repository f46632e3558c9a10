//! Calls at fixed times, independent of earlier calls. The latency of a call counts from the time when it was due, not from the time
//! when it could be sent.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;

use anyhow::Context as _;
use pronto::{Peer, Pending, Request};

use super::drive::PATIENCE;
use crate::clock;
use crate::sample::Recorder;

/// Makes a call due every `interval` for `time`, and waits for the last reply. Adds the time of each call since it was due, and returns
/// their number.
pub(crate) fn open_loop<M: Request>(
    peer: &Peer,
    request: &M,
    interval: Duration,
    time: Duration,
    into: &mut Recorder,
) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: VecDeque<(Duration, Pending<M>)> = VecDeque::new();
    let (mut due, mut sent) = (Duration::ZERO, 0);
    loop {
        let now = started.elapsed();
        anyhow::ensure!(now < time + PATIENCE, "the replies of an open loop did not arrive in time");
        if due <= now && due < time {
            match peer.start(black_box(request)) {
                Ok(call) => {
                    pending.push_back((due, call));
                    due += interval;
                    sent += 1;
                }
                // No room: the call stays due, and its time runs.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error).context("a call of an open loop"),
            }
        }
        let Some((since, oldest)) = pending.front_mut() else {
            if due >= time {
                return Ok(sent);
            }
            continue;
        };
        if let Some(reply) = oldest.poll() {
            drop(black_box(reply.context("a call of an open loop")?));
            into.record_single(started.elapsed().saturating_sub(*since));
            pending.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use pronto::{Message, Node};

    use super::*;

    #[derive(Message, Debug)]
    #[message(name = "open-loop.ask", reply = ())]
    struct Ask {
        stall: bool,
    }

    /// One call stalls until 20 ms after the first of the others was sent. The calls that are due meanwhile are late; a closed loop would
    /// not have made them.
    #[test]
    fn a_stall_delays_all_calls_that_are_due_in_it() {
        let address = format!("shm:@pronto-bench-open-loop-{}", std::process::id());
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let _server = Node::builder(1)
            .listen(&address)
            .handle_inline(move |_, ask: Ask| {
                if ask.stall {
                    released.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                }
            })
            .start()
            .unwrap();
        let client = Node::builder(2).peer(1, &address).start().unwrap();
        let peer = client.wait_for_peer(1, PATIENCE).unwrap();
        let stalled = peer.start(&Ask { stall: true }).unwrap();
        let mut seen = Recorder::new();
        let (interval, time) = (Duration::from_millis(1), Duration::from_millis(10));
        let sent = std::thread::scope(|scope| {
            scope.spawn(|| {
                let since = clock::now();
                while client.status().peers[0].open_calls < 2 && since.elapsed() < PATIENCE {
                    clock::pause(Duration::from_millis(1));
                }
                clock::pause(Duration::from_millis(20));
                release.send(()).unwrap();
            });
            open_loop(&peer, &Ask { stall: false }, interval, time, &mut seen).unwrap()
        });
        stalled.wait().unwrap();
        let sample = seen.sample();
        assert_eq!((sent, sample.count), (10, 10), "as many as were due");
        assert!(
            sample.p50_ns > 5_000_000,
            "due during the stall, and late by what was left of it: {sample:?}"
        );
    }
}

//! Messages to a handler on CPU 0, and the times until they reach it.
#![expect(unsafe_code, reason = "a call that nix lacks; listed in docs/unsafe.md")]

use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

use nix::poll::ppoll;
use pronto_scx::Loaded;

use crate::machine::{Numbered, flag, now, pin, receive};

/// CPU of the handler.
pub(crate) const HANDLER: usize = 0;

/// Messages per setting and round, and number of rounds, in which the settings alternate.
pub(crate) const PINGS: usize = 40;
pub(crate) const ROUNDS: usize = 5;

/// Pauses before a message. Messages come in pairs: the first of each finds another process in any phase of its slice, since the pauses
/// before it differ and the kernel checks slices at its tick, every 4 ms. The second finds one that has just begun to run.
const PAUSE: Duration = Duration::from_millis(8);
const STEP: Duration = Duration::from_micros(100);
const WITHIN_PAIR: Duration = Duration::from_micros(300);

/// Scheduling of the handler under the BPF scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    Unflagged,
    Flagged,
    AlwaysFifo,
}

pub(crate) const SETTINGS: [Setting; 3] = [Setting::Unflagged, Setting::Flagged, Setting::AlwaysFifo];

/// Makes the calling thread real-time permanently. Threads that it starts are ordinary ones.
pub(crate) fn set_fifo() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure outlives the call, and 0 is the calling thread.
    let done = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    assert_eq!(done, 0);
}

/// Receiver and sender.
pub(crate) type Ends = (OwnedFd, OwnedFd);

pub(crate) fn unix() -> Ends {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

pub(crate) fn tcp() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sender.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0.into(), sender.into())
}

/// Sends the messages of one round to a handler that sleeps before each send. Returns the times from send to handler.
pub(crate) fn round(ends: Ends, setting: Setting, loaded: Option<&Loaded>) -> Vec<Duration> {
    let (receiver, sender) = ends;
    let (arrived, arrivals) = channel();
    let handler = Numbered::spawn(move || {
        pin(HANDLER);
        if setting == Setting::AlwaysFifo {
            set_fifo();
        }
        let mut bytes = [0; 8];
        for _ in 0..PINGS {
            assert_eq!(nix::unistd::read(&receiver, &mut bytes).unwrap(), 8);
            arrived.send(now()).unwrap();
        }
    });
    if let (Setting::Flagged, Some(loaded)) = (setting, loaded) {
        flag(loaded, handler.tid);
    }
    let send = |index: usize| {
        let before_pair = PAUSE + STEP * u32::try_from(index).unwrap();
        let pause = if index.is_multiple_of(2) { before_pair } else { WITHIN_PAIR };
        ppoll(&mut [], Some(pause.into()), None).unwrap();
        handler.until_it_sleeps();
        let sent = now();
        assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
        receive(&arrivals).duration_since(sent)
    };
    let delays = (0..PINGS).map(send).collect();
    handler.join();
    delays
}

/// Returns the time that `hundredths` of the times do not exceed.
fn percentile(mut times: Vec<Duration>, hundredths: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * hundredths / 100).min(times.len() - 1)]
}

/// Percentiles of the delays in the best round.
#[allow(dead_code, reason = "each test target uses a part")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) p50: Duration,
    pub(crate) p90: Duration,
}

/// Prints a row of the table, and returns the percentiles of the best round.
pub(crate) fn figures(name: &str, rounds: &[Vec<Duration>]) -> Figures {
    let all: Vec<_> = rounds.iter().flatten().copied().collect();
    let at = [50, 90, 99].map(|hundredths| percentile(all.clone(), hundredths).as_micros());
    let best = |hundredths| rounds.iter().map(|round| percentile(round.clone(), hundredths)).min().unwrap();
    let figures = Figures { p50: best(50), p90: best(90) };
    println!("{name:12} p50, p90, p99 {at:5?} us  best round {figures:?}");
    figures
}

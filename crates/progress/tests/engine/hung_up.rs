//! Descriptors whose other end was closed report readiness for ever, for every kind of descriptor and of registration.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_progress::{Cost, Engine, Priority, Sleep, Source, Spec, Triggers};
use pronto_sync::atomic::{AtomicUsize, Ordering};

use crate::rig::{Running, Word, eventually};

const LONG: Nanos = Nanos::from_secs(3_600);

/// A source that reads a descriptor, and counts the bytes and its polls.
struct Reads {
    from: std::fs::File,
    bytes: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
}

impl Source for Reads {
    fn poll(&mut self) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        // The end of the stream and an error both count as no event.
        let read = self.from.read(&mut [0; 64]).unwrap_or(0);
        self.bytes.fetch_add(read, Ordering::Release);
        read
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        [Some(Channel { fd: self.from.as_raw_fd(), interest: Interest::READABLE }), None]
    }
}

/// Returns both ends of every kind of descriptor that can hang up, by name. The first end is non-blocking.
fn ends() -> Vec<(&'static str, OwnedFd, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    ours.set_nonblocking(true).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to_us = TcpStream::connect(listener.local_addr().expect("it listens")).expect("it is there");
    let (from_them, _) = listener.accept().expect("it was dialled");
    from_them.set_nonblocking(true).expect("a socket");
    let (read, write) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).expect("a pipe");
    vec![("unix", ours.into(), theirs.into()), ("tcp", from_them.into(), to_us.into()), ("pipe", read, write)]
}

/// Shows: sources.muted
#[test]
fn a_hung_up_descriptor_neither_starves_others_nor_keeps_the_engine_awake() {
    for registered in ["behind the epoll", "first", "asked"] {
        for (name, ours, theirs) in ends() {
            let engine = Running::start(Engine::Idle, Nanos::ZERO, LONG);
            let word = Word::default();
            let healthy =
                engine.manager.register(Spec::memory("word", Sleep::Notified), word.clone()).expect("room");
            let (bytes, polls): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
            let source = Reads {
                from: ours.try_clone().expect("one more").into(),
                bytes: Arc::clone(&bytes),
                polls: Arc::clone(&polls),
            };
            let spec = match registered {
                "behind the epoll" => Spec::readable(name, ours),
                "first" => Spec::readable(name, ours).first(),
                _ => Spec {
                    name,
                    cost: Cost::SystemCall,
                    priority: Priority::Normal,
                    triggers: Triggers::ALL,
                    sleep: Sleep::Asked,
                },
            };
            let _registered = engine.manager.register(spec, source).expect("room");
            std::io::Write::write_all(&mut std::fs::File::from(theirs), b"x").expect("room");
            // That dropped the other end.
            eventually("the byte sent before is read", || bytes.load(Ordering::Acquire) == 1);
            eventually("it is left out", || engine.manager.counters().muted > 5);
            for round in 1..=100 {
                word.sent.store(round, Ordering::Release);
                healthy.notifier().notify();
                eventually("the other source is polled", || word.seen.load(Ordering::Acquire) == round);
            }
            let (asked, muted) = (polls.load(Ordering::Relaxed), engine.manager.counters().muted);
            assert!(asked >= 64 && muted > 5, "{registered} {name}: {asked} polls, {muted} times left out");
        }
    }
}

//! Runs a foreign library with its own progress function as a source: the library needs no thread, and the program does not call it.
//!
//! The library has the interface of a UCX worker: a progress function (`ucp_worker_progress`), a function to call before a sleep
//! (`ucp_worker_arm`), and a descriptor to sleep on (`ucp_worker_get_efd`). In this example it is a small message queue on a pair of
//! datagram sockets, so that the example has no dependency. The adapter is the same for any other library.
//!
//! ```sh
//! cargo run -p pronto-progress --example foreign
//! ```

use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;
use std::time::Instant;

use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_core::wait::Decision;
use pronto_core::{Clock, Nanos};
use pronto_progress::{Cost, Engine, EngineDriver, Manager, Priority, Sleep, Source, Spec, Triggers};
use pronto_sync::Arc;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Callback with which the library delivers a message.
type Arrived = Box<dyn FnMut(&[u8]) + Send>;

/// The foreign library.
struct Library {
    socket: UnixDatagram,
    arrived: Arrived,
}

impl Library {
    /// Delivers the available messages. Returns their number.
    fn progress(&mut self) -> usize {
        let mut message = [0; 256];
        let mut taken = 0;
        while let Ok(len) = self.socket.recv(&mut message) {
            (self.arrived)(&message[..len]);
            taken += 1;
        }
        taken
    }

    /// Requests an event on the descriptor. A socket needs no request. A UCX worker is armed here; if it returns `UCS_ERR_BUSY` it has
    /// an event, which the recheck after arming finds.
    fn arm(&mut self) {}

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The adapter.
struct Foreign(Library);

impl Source for Foreign {
    fn poll(&mut self) -> usize {
        self.0.progress()
    }

    fn arm(&mut self) {
        self.0.arm();
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        [Some(Channel { fd: self.0.descriptor(), interest: Interest::READABLE }), None]
    }
}

/// A driver that has no work other than polling.
struct Alone(Arc<AtomicBool>);

impl EngineDriver for Alone {
    fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn decide(&self) -> Decision {
        Decision::without_history(Nanos::from_micros(10))
    }

    fn tick(&mut self, _: Nanos) {}

    fn next_tick(&self) -> Nanos {
        Nanos::NEVER
    }
}

struct Real(Instant);

impl Clock for Real {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    #[expect(clippy::disallowed_methods, reason = "a program reads the clock")]
    let manager = Manager::new(Engine::Idle, Real(Instant::now()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let engine = {
        let (manager, driver) = (manager.clone(), Alone(Arc::clone(&stop)));
        std::thread::spawn(move || manager.run(driver))
    };

    let (ours, theirs) = UnixDatagram::pair()?;
    theirs.set_nonblocking(true)?;
    let (sender, receiver) = mpsc::channel();
    let arrived = move |message: &[u8]| drop(sender.send(String::from_utf8_lossy(message).into_owned()));
    let library = Library { socket: theirs, arrived: Box::new(arrived) };
    let spec = Spec {
        name: "foreign",
        cost: Cost::SystemCall,
        priority: Priority::Normal,
        triggers: Triggers::ALL,
        sleep: Sleep::Asked,
    };
    let registration = manager.register(spec, Foreign(library))?;

    for number in 1..=3 {
        ours.send(format!("message {number}").as_bytes())?;
        // The program does not call the library; the engine does.
        let message = receiver.recv_timeout(Duration::from_secs(5)).map_err(io::Error::other)?;
        println!("received {message} without a call to the library");
    }
    println!("{:?}", manager.counters());
    drop(registration);
    stop.store(true, Ordering::Relaxed);
    manager.alert();
    engine.join().map_err(|_| io::Error::other("the engine thread panicked"))?;
    Ok(())
}

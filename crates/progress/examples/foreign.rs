//! A library with a progress function of its own makes progress as a source: no thread of its own, no call by the program.
//!
//! What the library has is what UCX's worker has: something to call (`ucp_worker_progress`), something to call before a sleep
//! (`ucp_worker_arm`), and a descriptor to sleep on (`ucp_worker_get_efd`). Here it is a small message queue on a pair of
//! datagram sockets, so that the example needs nothing; the adapter is the same for any other.
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
use pronto_progress::{Cost, Engine, Keeper, Manager, Priority, Sleep, Source, Spec, Triggers};
use pronto_sync::Arc;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// What a library does with a message.
type Arrived = Box<dyn FnMut(&[u8]) + Send>;

/// The foreign library.
struct Library {
    socket: UnixDatagram,
    arrived: Arrived,
}

impl Library {
    /// Takes what is there. Returns how many messages.
    fn progress(&mut self) -> usize {
        let mut message = [0; 256];
        let mut taken = 0;
        while let Ok(len) = self.socket.recv(&mut message) {
            (self.arrived)(&message[..len]);
            taken += 1;
        }
        taken
    }

    /// Asks for an event on the descriptor. A socket always has one; a UCX worker is armed here, and one that says "busy" has
    /// something, which the recheck after arming finds.
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

/// What the engine's thread does beside: nothing.
struct Alone(Arc<AtomicBool>);

impl Keeper for Alone {
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
        let (manager, keeper) = (manager.clone(), Alone(Arc::clone(&stop)));
        std::thread::spawn(move || manager.run(keeper))
    };

    let (ours, theirs) = UnixDatagram::pair()?;
    theirs.set_nonblocking(true)?;
    let (says, said) = mpsc::channel();
    let arrived = move |message: &[u8]| drop(says.send(String::from_utf8_lossy(message).into_owned()));
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
        // Nobody calls the library here; the engine does.
        let message = said.recv_timeout(Duration::from_secs(5)).map_err(io::Error::other)?;
        println!("{message}, while the program waited for something else");
    }
    println!("{:?}", manager.counters());
    drop(registration);
    stop.store(true, Ordering::Relaxed);
    manager.alert();
    engine.join().map_err(|_| io::Error::other("the engine's thread panicked"))?;
    Ok(())
}

//! Places of accepted handshakes: a bounded number of threads, which strangers cannot block for peers.
//!
//! # Invariants
//! 1. Every thread of an accepted connection owns one [`Place`], from before it is started until it ends, even by a panic.
//! 2. At most [`MAX_SILENT`] places belong to connections without an accepted greeting. If they are taken, the oldest of them is ended
//!    for a new one. A peer greets within a round trip, so it is among the oldest only for a moment.
//! 3. At most [`MAX_GREETED`] places belong to other connections. They are never ended here. They are not counted with the silent
//!    ones, among which are also the second connections of their peers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::NoLink;
use crate::links::attempts::Canceller;

/// Maximum number of connections without an accepted greeting. Chosen by us; no source.
const MAX_SILENT: usize = 32;
/// Maximum number of handshakes whose greeting was accepted. Chosen by us; no source.
const MAX_GREETED: usize = 32;

/// All places of a node.
#[derive(Debug, Default)]
pub(super) struct Places {
    state: Mutex<State>,
    /// Notified when a place becomes free.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Connections without an accepted greeting, oldest first.
    silent: VecDeque<Silent>,
    greeted: usize,
    last: u64,
}

#[derive(Debug)]
struct Silent {
    number: u64,
    /// `None` once the connection was ended.
    canceller: Option<Canceller>,
}

/// The place of one connection, which is freed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The connection's number among the silent ones.
    Silent(u64),
    Greeted,
}

impl Places {
    /// Takes a place for a connection that `canceller` ends. If all are taken, ends the oldest silent connection and waits until its
    /// thread has left, which does not take long.
    pub(super) fn enter(self: &Arc<Self>, canceller: Canceller) -> Place {
        let mut state = self.lock();
        while state.silent.len() >= MAX_SILENT {
            if state.silent.iter().all(|silent| silent.canceller.is_some()) {
                state
                    .silent
                    .front_mut()
                    .and_then(|oldest| oldest.canceller.take())
                    .inspect(Canceller::cancel);
            }
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.last += 1;
        let number = state.last;
        state.silent.push_back(Silent { number, canceller: Some(canceller) });
        drop(state);
        Place { places: Arc::clone(self), stage: Stage::Silent(number) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change under this lock can be interrupted by a panic, so a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Marks the connection's greeting as accepted.
    ///
    /// # Errors
    /// [`NoLink::Crowded`] if the connection was ended meanwhile, or too many others have greeted.
    pub(super) fn greeted(&mut self) -> Result<(), NoLink> {
        if self.was_ended() {
            return Err(NoLink::Crowded);
        }
        let Stage::Silent(number) = self.stage else { return Ok(()) };
        let mut state = self.places.lock();
        if state.greeted >= MAX_GREETED {
            return Err(NoLink::Crowded);
        }
        state.silent.retain(|silent| silent.number != number);
        state.greeted += 1;
        drop(state);
        self.stage = Stage::Greeted;
        self.places.left.notify_all();
        Ok(())
    }

    /// Returns whether the connection was ended for a newer one.
    pub(super) fn was_ended(&self) -> bool {
        let Stage::Silent(number) = self.stage else { return false };
        let state = self.places.lock();
        state.silent.iter().any(|silent| silent.number == number && silent.canceller.is_none())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        match self.stage {
            Stage::Silent(number) => state.silent.retain(|silent| silent.number != number),
            Stage::Greeted => state.greeted -= 1,
        }
        drop(state);
        self.places.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::net::TcpListener;

    use pronto_fabric_tcp as tcp;

    use super::*;

    fn canceller() -> Canceller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, patience) = (listener.local_addr().unwrap(), Duration::from_secs(10));
        let handshake = tcp::Handshake::dial(address, patience, tcp::Options::default()).unwrap();
        Canceller::Tcp(handshake.canceller().unwrap())
    }

    fn taken(places: &Places) -> (usize, usize) {
        let state = places.lock();
        (state.silent.len(), state.greeted)
    }

    #[test]
    fn a_thread_that_panics_leaves_its_place() {
        let places = Arc::<Places>::default();
        for greets in [false, true] {
            let mut place = places.enter(canceller());
            let thread = std::thread::spawn(move || {
                if greets {
                    place.greeted().unwrap();
                }
                panic!("a fault in a handshake");
            });
            assert!(thread.join().is_err());
            assert_eq!(taken(&places), (0, 0));
        }
    }

    #[test]
    fn the_oldest_silent_connection_makes_way_and_greeted_ones_stay() {
        let places = Arc::<Places>::default();
        let mut greeted = places.enter(canceller());
        greeted.greeted().unwrap();
        let mut silent: VecDeque<_> = (0..MAX_SILENT).map(|_| places.enter(canceller())).collect();
        let newest = std::thread::spawn({
            let places = Arc::clone(&places);
            move || places.enter(canceller())
        });
        while !silent[0].was_ended() {
            std::thread::yield_now();
        }
        assert!(silent.iter().skip(1).all(|place| !place.was_ended()));
        assert!(matches!(silent[0].greeted(), Err(NoLink::Crowded)));
        drop(silent.pop_front());
        let newest = newest.join().unwrap();
        assert_eq!(taken(&places), (MAX_SILENT, 1));
        drop((newest, silent, greeted));
        assert_eq!(taken(&places), (0, 0));
    }

    /// Shows: operations.crowded
    #[test]
    fn only_a_bounded_number_greets() {
        let places = Arc::<Places>::default();
        let greets = || {
            let mut place = places.enter(canceller());
            place.greeted().map(|()| place)
        };
        let greeted: Vec<_> = (0..MAX_GREETED).map(|_| greets().unwrap()).collect();
        assert!(matches!(greets(), Err(NoLink::Crowded)));
        assert_eq!(taken(&places), (0, greeted.len()));
    }
}

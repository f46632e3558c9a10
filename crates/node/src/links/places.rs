//! Places of accepted handshakes: a bounded number of threads, which strangers cannot block for peers.
//!
//! # Invariants
//! 1. Every thread of an accepted connection owns one [`Place`], from before it is started until it ends, even by a panic.
//! 2. At most [`MAX_SILENT`] places belong to connections without an accepted greeting. If they are taken, one of them is ended for a new
//!    one: the oldest of the crowd that has the most, first among those from where no configured peer connects. A crowd is an address, the
//!    whole of this host, or an IPv6 network of 64 bits. A stranger with many connections ends its own ones, and a peer in the same
//!    crowd greets within a round trip, so that it is among the oldest only for a moment.
//! 3. At most [`MAX_GREETED`] places belong to other connections, and at most [`MAX_STRANGERS`] of these to nodes that are not
//!    configured. They are never ended here. They are not counted with the silent ones, among which are also the second connections
//!    of their peers.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::NoLink;
use super::sources::Origin;
use crate::links::attempts::Canceller;

/// Maximum number of connections without an accepted greeting. Chosen by us; no source.
const MAX_SILENT: usize = 32;
/// Maximum number of handshakes whose greeting was accepted. Chosen by us; no source.
const MAX_GREETED: usize = 32;
/// Maximum number of these of nodes that are not configured: the others are kept for peers. Chosen by us; no source.
const MAX_STRANGERS: usize = 16;

/// Maximum time for which an accepted greeting waits for a place: much longer than a handshake takes, and less than the dialler waits.
const PATIENCE: Duration = Duration::from_secs(1);

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
    /// Number of connections whose greeting was accepted, of configured peers and of other nodes.
    greeted: [usize; 2],
    last: u64,
}

#[derive(Debug)]
struct Silent {
    number: u64,
    origin: Origin,
    /// Whether a configured peer may connect from there.
    expected: bool,
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
    Greeted(Node),
}

/// The kind of the node that greets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// It is in the configuration and connects from where it may, or runs as the same user on this host.
    Configured,
    /// It is not in the configuration.
    Stranger,
}

impl Silent {
    fn rank(&self) -> (bool, Origin) {
        (self.expected, self.origin.crowd())
    }
}

impl Places {
    /// Takes a place for a connection that `canceller` ends. If all are taken, ends a silent connection and waits until its thread has left,
    /// which does not take long.
    pub(super) fn enter(self: &Arc<Self>, (origin, expected): (Origin, bool), canceller: Canceller) -> Place {
        let mut state = self.lock();
        while state.silent.len() >= MAX_SILENT {
            if state.silent.iter().all(|silent| silent.canceller.is_some()) {
                state.end_one();
                // It may wait for a place among the greeted ones.
                self.left.notify_all();
            }
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.last += 1;
        let number = state.last;
        state.silent.push_back(Silent { number, origin, expected, canceller: Some(canceller) });
        drop(state);
        Place { places: Arc::clone(self), stage: Stage::Silent(number) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change under this lock can be interrupted by a panic, so a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether one more connection of such a node may greet.
    fn has_room(&self, node: Node) -> bool {
        let is_full = node == Node::Stranger && self.greeted[node as usize] >= MAX_STRANGERS;
        !is_full && self.greeted.iter().sum::<usize>() < MAX_GREETED
    }

    /// Returns whether a silent connection was ended for a newer one.
    fn was_ended(&self, number: u64) -> bool {
        self.silent.iter().any(|silent| silent.number == number && silent.canceller.is_none())
    }

    /// Ends the oldest silent connection of the crowd that has the most. Those from where no configured peer is come first.
    fn end_one(&mut self) {
        let mut counts = HashMap::<_, usize>::new();
        for silent in &self.silent {
            *counts.entry(silent.rank()).or_default() += 1;
        }
        let worst = counts.into_iter().max_by_key(|((expected, _), count)| (!expected, *count));
        let Some((worst, _)) = worst else { return };
        let oldest = self.silent.iter_mut().find(|silent| silent.rank() == worst);
        if let Some(canceller) = oldest.and_then(|oldest| oldest.canceller.take()) {
            canceller.cancel();
        }
    }
}

impl Place {
    /// Marks the connection's greeting as accepted, as soon as there is a place for it.
    ///
    /// # Errors
    /// [`NoLink::Crowded`] if the connection was ended meanwhile, or there was no place for [`PATIENCE`].
    pub(super) fn greeted(&mut self, node: Node) -> Result<(), NoLink> {
        let Stage::Silent(number) = self.stage else { return Ok(()) };
        let waits = |state: &mut State| !state.was_ended(number) && !state.has_room(node);
        let waited = self.places.left.wait_timeout_while(self.places.lock(), PATIENCE, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.was_ended(number) || !state.has_room(node) {
            return Err(NoLink::Crowded);
        }
        state.silent.retain(|silent| silent.number != number);
        state.greeted[node as usize] += 1;
        drop(state);
        self.stage = Stage::Greeted(node);
        self.places.left.notify_all();
        Ok(())
    }

    /// Returns whether the connection was ended for a newer one.
    pub(super) fn was_ended(&self) -> bool {
        let Stage::Silent(number) = self.stage else { return false };
        self.places.lock().was_ended(number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        match self.stage {
            Stage::Silent(number) => state.silent.retain(|silent| silent.number != number),
            Stage::Greeted(node) => state.greeted[node as usize] -= 1,
        }
        drop(state);
        self.places.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};
    use std::net::TcpListener;

    use pronto_fabric_tcp as tcp;

    use super::*;

    const HERE: (Origin, bool) = (Origin::tcp(IpAddr::V4(Ipv4Addr::LOCALHOST)), true);

    fn canceller() -> Canceller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, patience) = (listener.local_addr().unwrap(), Duration::from_secs(10));
        let handshake = tcp::Handshake::dial(address, patience, tcp::Options::default()).unwrap();
        Canceller::Tcp(handshake.canceller().unwrap())
    }

    fn taken(places: &Places) -> (usize, usize) {
        let state = places.lock();
        (state.silent.len(), state.greeted.iter().sum())
    }

    #[test]
    fn a_thread_that_panics_leaves_its_place() {
        let places = Arc::<Places>::default();
        for greets in [false, true] {
            let mut place = places.enter(HERE, canceller());
            let thread = std::thread::spawn(move || {
                if greets {
                    place.greeted(Node::Stranger).unwrap();
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
        let mut greeted = places.enter(HERE, canceller());
        greeted.greeted(Node::Stranger).unwrap();
        let mut silent: VecDeque<_> = (0..MAX_SILENT).map(|_| places.enter(HERE, canceller())).collect();
        let newest = std::thread::spawn({
            let places = Arc::clone(&places);
            move || places.enter(HERE, canceller())
        });
        while !silent[0].was_ended() {
            std::thread::yield_now();
        }
        assert!(silent.iter().skip(1).all(|place| !place.was_ended()));
        assert!(matches!(silent[0].greeted(Node::Configured), Err(NoLink::Crowded)));
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
        let greets = |node| {
            let mut place = places.enter(HERE, canceller());
            place.greeted(node).map(|()| place)
        };
        let mut greeted: Vec<_> = (0..MAX_STRANGERS).map(|_| greets(Node::Stranger).unwrap()).collect();
        assert!(matches!(greets(Node::Stranger), Err(NoLink::Crowded)));
        greeted.extend((MAX_STRANGERS..MAX_GREETED).map(|_| greets(Node::Configured).unwrap()));
        assert!(matches!(greets(Node::Configured), Err(NoLink::Crowded)));
        assert_eq!(taken(&places), (0, greeted.len()));
        // A place that becomes free goes to a connection that waits for it.
        let waiting = std::thread::spawn({
            let mut place = places.enter(HERE, canceller());
            move || place.greeted(Node::Configured).map(|()| place)
        });
        drop(greeted.pop());
        greeted.push(waiting.join().unwrap().unwrap());
        greeted.clear();
        assert_eq!(taken(&places), (0, 0));
    }

    /// Returns which of the silent connections was ended for a new one.
    fn ended(places: &Arc<Places>, silent: &mut Vec<Place>) -> usize {
        let newest = std::thread::spawn({
            let places = Arc::clone(places);
            move || places.enter(HERE, canceller())
        });
        let at = loop {
            match silent.iter().position(Place::was_ended) {
                Some(at) => break at,
                None => std::thread::yield_now(),
            }
        };
        drop(silent.remove(at));
        silent.push(newest.join().unwrap());
        assert!(silent.iter().all(|place| !place.was_ended()));
        at
    }

    fn filled(places: &Arc<Places>, from: impl Fn(u8) -> (Origin, bool)) -> Vec<Place> {
        (0..u8::try_from(MAX_SILENT).unwrap()).map(|number| places.enter(from(number), canceller())).collect()
    }

    #[test]
    fn a_crowd_ends_its_own_connections() {
        let places = Arc::<Places>::default();
        // Four connections from one host, then many from one network.
        let mut silent = filled(&places, |number| match number {
            0..4 => (Origin::tcp([10, 0, 0, 1].into()), false),
            _ => (Origin::tcp(IpAddr::from([0x20, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, number])), false),
        });
        assert_eq!([(); 3].map(|()| ended(&places, &mut silent)), [4; 3]);
    }

    #[test]
    fn connections_from_where_peers_are_stay_the_longest() {
        let places = Arc::<Places>::default();
        // Most come from where a peer is. The others are each from a host of their own.
        let mut silent = filled(&places, |number| match number {
            0..24 => HERE,
            _ => (Origin::tcp([10, 0, 0, number].into()), false),
        });
        let found = [(); 8].map(|()| ended(&places, &mut silent));
        assert!(found.iter().all(|at| *at >= 24), "{found:?}");
        assert_eq!(ended(&places, &mut silent), 0, "only connections from there are left");
    }
}

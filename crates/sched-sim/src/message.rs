//! Messages, and the fragments that they travel in.

use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

use crate::id::Endpoint;

/// A message, as programs and policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Socket of the sender.
    pub from: Endpoint,
    /// Socket of the receiver.
    pub to: Endpoint,
    /// Length of the message.
    pub bytes: u32,
    /// Word for the program's own use.
    pub tag: u64,
    /// Time at which the first byte was handed over.
    pub sent_at: Nanos,
    /// The sender's pressure, if the policy carries it in messages (written by [`crate::policy::Policy::sending`]).
    pub pressure: Level,
}

/// A part of a message on its way, or in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) message: Message,
    pub(crate) bytes: u32,
    pub(crate) last: bool,
    /// Order of arrival over all ports of the receiver.
    pub(crate) arrival: u64,
}

/// Objects in transit, in slots that are reused.
#[derive(Clone, Debug)]
pub(crate) struct InFlight<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> InFlight<T> {
    pub(crate) fn put(&mut self, thing: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(thing);
            return place;
        }
        self.places.push(Some(thing));
        u32::try_from(self.places.len() - 1).expect("fewer than 2^32 fragments are in transit at a time")
    }

    pub(crate) fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize].take().expect("each event frees its slot once")
    }
}

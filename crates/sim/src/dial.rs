//! Connections requested by nodes: a hello, a response, and several queue pairs, or none.
//!
//! A response may be lost. The accepting side then has its ends already, and learns later that the other ends are not
//! used.

use pronto_core::fabric::ConnectionLimits;
use thiserror::Error;

use crate::queue_pair::SimQueuePair;
use crate::state::{Event, State};
use crate::world::{LinkId, SimNode, SimWorld};

/// Identifier of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(u64);

/// A request to connect to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Identifier for [`SimWorld::accept`] or [`SimWorld::refuse`].
    pub id: DialId,
    /// Node that wants to connect.
    pub from: SimNode,
    /// Payload of its hello.
    pub hello: Vec<u8>,
}

/// Result of an attempt by this node.
#[derive(Debug)]
pub struct Dialled {
    /// The node that was dialled.
    pub to: SimNode,
    /// The other node's response and the ends of the new connections, or an error.
    pub outcome: Result<(Vec<u8>, Vec<SimQueuePair>), DialError>,
}

/// Reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DialError {
    /// The node is dead or cut off, or does not respond.
    #[error("the node does not respond")]
    Unreachable,
    /// The node refuses; this is its response.
    #[error("refused")]
    Refused(Vec<u8>),
}

/// An attempt in progress.
#[derive(Debug)]
pub(crate) struct Attempt {
    from: SimNode,
    /// Incarnation of the dialling node.
    incarnation: u32,
    to: SimNode,
    hello: Vec<u8>,
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Answer {
    Accepted(Vec<u8>, Vec<LinkId>),
    Refused(Vec<u8>),
}

/// A completed attempt that its node has not polled yet.
#[derive(Debug)]
pub(crate) struct Ended {
    to: SimNode,
    outcome: Result<(Vec<u8>, Vec<LinkId>), DialError>,
}

impl SimWorld {
    /// Requests connections from one node to another. [`Self::poll_dialled`] returns the result.
    pub fn dial(&self, from: SimNode, to: SimNode, hello: Vec<u8>) {
        let mut state = self.lock();
        state.dials += 1;
        let id = DialId(state.dials);
        let incarnation = state.node(from).incarnation;
        state.attempts.insert(id, Attempt { from, incarnation, to, hello, answer: None });
        let flight = state.options.delay;
        let arrival = state.now + state.random.within(flight);
        let timeout = state.now + state.options.dial_timeout;
        state.schedule(arrival, Event::Hello(id));
        state.schedule(timeout, Event::DialTimeout(id));
    }

    /// Returns the next request to connect to this node.
    pub fn poll_incoming(&self, node: SimNode) -> Option<Incoming> {
        let mut state = self.lock();
        while let Some(id) = state.node(node).incoming.pop_front() {
            if let Some(Attempt { from, hello, .. }) = state.attempts.get(&id) {
                return Some(Incoming { id, from: *from, hello: hello.clone() });
            }
        }
        None
    }

    /// Accepts a request, with one connection for each of `limits` (as this side sees them). This side's ends can be
    /// used immediately. Returns `None` if the other side has given up meanwhile.
    pub fn accept(
        &self,
        id: DialId,
        answer: Vec<u8>,
        limits: &[ConnectionLimits],
    ) -> Option<Vec<SimQueuePair>> {
        let mut state = self.lock();
        let Attempt { from, to, .. } = *state.attempts.get(&id)?;
        let links: Vec<_> =
            limits.iter().map(|limits| state.connect([from, to], [limits.mirrored(), *limits])).collect();
        state.answer_hello(id, Answer::Accepted(answer, links.clone()));
        drop(state);
        Some(links.into_iter().map(|link| SimQueuePair::new(self.clone(), link, 1)).collect())
    }

    /// Refuses a request.
    pub fn refuse(&self, id: DialId, answer: Vec<u8>) {
        self.lock().answer_hello(id, Answer::Refused(answer));
    }

    /// Returns the next completed attempt of this node.
    pub fn poll_dialled(&self, node: SimNode) -> Option<Dialled> {
        let Ended { to, outcome } = self.lock().node(node).dialled.pop_front()?;
        let outcome = outcome.map(|(answer, links)| {
            let ends = links.into_iter().map(|link| SimQueuePair::new(self.clone(), link, 0));
            (answer, ends.collect())
        });
        Some(Dialled { to, outcome })
    }
}

impl State {
    pub(crate) fn hello(&mut self, id: DialId) {
        let Some(&Attempt { from, to, .. }) = self.attempts.get(&id) else { return };
        if !self.is_open(from, to) || !self.is_open(to, from) {
            // As in any transport with a handshake, both directions must be open for the hello to arrive.
            return;
        }
        self.note("hello", [from.0 as u64, to.0 as u64, id.0]);
        if self.node(to).alive {
            self.node(to).incoming.push_back(id);
            self.wake(to);
        } else {
            // The machine lives, but no process listens there.
            self.answer_hello(id, Answer::Refused(Vec::new()));
        }
    }

    fn answer_hello(&mut self, id: DialId, answer: Answer) {
        let at = self.now + self.random.within(self.options.delay);
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.answer = Some(answer);
            self.schedule(at, Event::HelloAnswered(id));
        }
    }

    pub(crate) fn hello_answered(&mut self, id: DialId) {
        let Some(&Attempt { from, to, .. }) = self.attempts.get(&id) else { return };
        if self.is_open(to, from) {
            self.end_attempt(id);
        }
    }

    pub(crate) fn dial_timeout(&mut self, id: DialId) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            let answer = attempt.answer.replace(Answer::Refused(Vec::new()));
            if let Some(Answer::Accepted(_, links)) = answer {
                for link in links {
                    self.close(link, 0);
                }
            }
            self.end_attempt(id);
        }
    }

    fn end_attempt(&mut self, id: DialId) {
        let Some(Attempt { from, incarnation, to, answer, .. }) = self.attempts.remove(&id) else { return };
        let dialler = self.node(from);
        if !dialler.alive || dialler.incarnation != incarnation {
            return;
        }
        let outcome = match answer {
            Some(Answer::Accepted(answer, links)) => Ok((answer, links)),
            Some(Answer::Refused(answer)) if !answer.is_empty() => Err(DialError::Refused(answer)),
            _ => Err(DialError::Unreachable),
        };
        dialler.dialled.push_back(Ended { to, outcome });
        self.note("dialled", [from.0 as u64, to.0 as u64, id.0]);
        self.wake(from);
    }
}

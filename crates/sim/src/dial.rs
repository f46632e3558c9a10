//! Connections that nodes ask for: a hello, an answer, and several queue pairs at once, or none.
//!
//! An answer may be lost. Then the accepting side has its ends already, and learns later that nobody took the others.

use pronto_core::fabric::ConnectionLimits;
use thiserror::Error;

use crate::queue_pair::SimQueuePair;
use crate::state::{Event, State};
use crate::world::{LinkId, SimNode, SimWorld};

/// Names an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(u64);

/// Somebody wants to connect to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// For [`SimWorld::accept`] or [`SimWorld::refuse`].
    pub id: DialId,
    /// Who.
    pub from: SimNode,
    /// What it says.
    pub hello: Vec<u8>,
}

/// What became of an attempt of this node.
#[derive(Debug)]
pub struct Dialled {
    /// The node that was dialled.
    pub to: SimNode,
    /// What it said, and the ends of the new connections.
    pub outcome: Result<(Vec<u8>, Vec<SimQueuePair>), DialError>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DialError {
    /// The node is dead, or cut off, or does not answer.
    #[error("nobody answers")]
    Unreachable,
    /// The node does not want to; what it said.
    #[error("refused")]
    Refused(Vec<u8>),
}

/// An attempt under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    from: SimNode,
    /// The life of the node that tries.
    life: u32,
    to: SimNode,
    hello: Vec<u8>,
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Answer {
    Accepted(Vec<u8>, Vec<LinkId>),
    Refused(Vec<u8>),
}

/// An attempt that has ended, until its node looks.
#[derive(Debug)]
pub(crate) struct Ended {
    to: SimNode,
    outcome: Result<(Vec<u8>, Vec<LinkId>), DialError>,
}

impl SimWorld {
    /// Asks for connections from one node to another. What becomes of it, [`Self::poll_dialled`] tells.
    pub fn dial(&self, from: SimNode, to: SimNode, hello: Vec<u8>) {
        let mut state = self.lock();
        state.dials += 1;
        let id = DialId(state.dials);
        let life = state.node(from).life;
        state.attempts.insert(id, Attempt { from, life, to, hello, answer: None });
        let flight = state.options.delay;
        let arrival = state.now + state.random.within(flight);
        let timeout = state.now + state.options.dial_timeout;
        state.schedule(arrival, Event::Hello(id));
        state.schedule(timeout, Event::DialTimeout(id));
    }

    /// The next one that wants to connect to this node.
    pub fn poll_incoming(&self, node: SimNode) -> Option<Incoming> {
        let mut state = self.lock();
        while let Some(id) = state.node(node).incoming.pop_front() {
            if let Some(Attempt { from, hello, .. }) = state.attempts.get(&id) {
                return Some(Incoming { id, from: *from, hello: hello.clone() });
            }
        }
        None
    }

    /// Connects, once for each of `limits` (as this side sees them). This side's ends can be used at once. None if the
    /// other side has given up meanwhile.
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

    /// Does not connect.
    pub fn refuse(&self, id: DialId, answer: Vec<u8>) {
        self.lock().answer_hello(id, Answer::Refused(answer));
    }

    /// The next attempt of this node that has ended.
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
            // As with any transport that shakes hands: it takes both ways to be heard at all.
            return;
        }
        self.note("hello", [from.0 as u64, to.0 as u64, id.0]);
        if self.node(to).alive {
            self.node(to).incoming.push_back(id);
            self.wake(to);
        } else {
            // The machine lives, and nobody listens there.
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
        let Some(Attempt { from, life, to, answer, .. }) = self.attempts.remove(&id) else { return };
        let dialler = self.node(from);
        if !dialler.alive || dialler.life != life {
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

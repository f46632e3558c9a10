//! Links of scenario nodes: dialled, greeted, installed, as in a composition root.

use pronto_core::Nanos;
use pronto_core::session::{Agreement, Authenticated, Limits, Links, MAX_CALLS, Redial, agree, greet};
use pronto_wire::{Class, Greeting, GreetingRefusal, NodeId, SessionId};

use super::node::{Peer, ScenarioNode};
use crate::dial::{Dialled, Incoming};
use crate::queue_pair::SimQueuePair;

/// State of dialling one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialling {
    pub(super) redial: Redial,
    under_way: bool,
    /// Session that the hello in progress would resume.
    held: Option<SessionId>,
    /// Limits that this hello grants.
    grants: Option<Limits>,
}

impl Dialling {
    pub(super) const fn new() -> Self {
        Self { redial: Redial::new(Nanos::ZERO), under_way: false, held: None, grants: None }
    }
}

impl ScenarioNode {
    /// Processes hellos and responses, and dials unlinked peers.
    pub(super) fn keep_links(&mut self, now: Nanos) {
        while let Some(incoming) = self.world.poll_incoming(self.place) {
            self.answer_hello(incoming, now);
        }
        while let Some(dialled) = self.world.poll_dialled(self.place) {
            self.dialled(dialled, now);
        }
        for id in self.peer_ids() {
            let peer = &self.peers[&id];
            let is_linked = peer.session.is_linked(&self.executor);
            let is_wanted = peer.session.wants_link();
            if !is_linked && is_wanted {
                peer.session.end_pause(&self.executor);
            }
            let held = peer.session.info(&self.executor).map(|info| info.session);
            let grants = self.grants();
            let dialling = &mut self.peers.get_mut(&id).expect("one of the peers").dialling;
            if is_linked {
                dialling.redial.linked(now);
                continue;
            }
            if !is_wanted {
                dialling.redial = Redial::new(now);
                continue;
            }
            dialling.redial.unlinked(now);
            if now >= dialling.redial.due() && !dialling.under_way {
                (dialling.under_way, dialling.held, dialling.grants) = (true, held, Some(grants));
                dialling.redial.attempted(now);
                let hello = greet(&self.identity, &grants, id, held).encode();
                self.world.dial(self.place, self.place_of(id), hello);
            }
        }
    }

    /// Returns the time of the next dial.
    pub(super) fn next_dial(&self) -> Nanos {
        let is_waiting = |peer: &&Peer| !peer.session.is_linked(&self.executor) && peer.session.wants_link();
        let waiting = self.peers.values().filter(is_waiting);
        waiting
            .map(|peer| if peer.dialling.under_way { Nanos::NEVER } else { peer.dialling.redial.due() })
            .min()
            .unwrap_or(Nanos::NEVER)
    }

    fn answer_hello(&mut self, incoming: Incoming, now: Nanos) {
        let (agreement, answer) = match self.receive_greeting(&incoming.hello) {
            Ok(agreed) => agreed,
            Err(refusal) => return self.world.refuse(incoming.id, refusal.encode(self.identity.node)),
        };
        let limits = Class::ALL.map(|class| agreement.connection(class));
        if let Some(pairs) = self.world.accept(incoming.id, answer, &limits) {
            self.install(pairs, agreement, now);
        }
    }

    /// Processes a greeting at the accepting side. Returns the agreement and the response.
    fn receive_greeting(&mut self, bytes: &[u8]) -> Result<(Agreement, Vec<u8>), GreetingRefusal> {
        let theirs = Greeting::decode(bytes).map_err(|_| GreetingRefusal::Malformed)?;
        if theirs.windows.iter().any(|window| window.replies > MAX_CALLS) {
            return Err(GreetingRefusal::Malformed);
        }
        let target = theirs.node;
        let peer = self.peers.get(&target).ok_or(GreetingRefusal::NotPermitted)?;
        if peer.dialling.under_way && self.identity.node > target {
            return Err(GreetingRefusal::Duplicate);
        }
        let held = peer.session.info(&self.executor);
        let same_life = held.is_some_and(|held| held.epoch == theirs.epoch);
        let resumes =
            same_life && theirs.session.is_some() && theirs.session == held.map(|held| held.session);
        if peer.session.is_linked(&self.executor) && !resumes {
            return Err(if same_life { GreetingRefusal::Duplicate } else { GreetingRefusal::IdTaken });
        }
        let id = theirs.session.filter(|_| resumes);
        let id = id.unwrap_or_else(|| SessionId(self.random.next().max(1)));
        let held = held.map(|held| held.session);
        let grants = self.grants();
        let mut agreement = agree(&self.identity, &grants, Authenticated::claimed(theirs), id, held)?;
        agreement.resumable = self.resumable;
        Ok((agreement, greet(&self.identity, &grants, target, Some(id)).encode()))
    }

    fn dialled(&mut self, dialled: Dialled, now: Nanos) {
        let id = self.id_of(dialled.to);
        self.peers.get_mut(&id).expect("only peers are dialled").dialling.under_way = false;
        let Ok((answer, pairs)) = dialled.outcome else { return };
        match self.receive_answer(&answer, id) {
            Ok(agreement) => self.install(pairs, agreement, now),
            Err(send_error) => panic!("node {id} accepted with a greeting that does not match: {send_error}"),
        }
    }

    /// Processes the response at the dialling side.
    fn receive_answer(&self, bytes: &[u8], id: NodeId) -> Result<Agreement, GreetingRefusal> {
        let theirs = Greeting::decode(bytes).map_err(|_| GreetingRefusal::Malformed)?;
        let session = theirs.session.ok_or(GreetingRefusal::Malformed)?;
        let Dialling { held, grants, .. } = self.peers[&id].dialling;
        let grants = grants.expect("a hello was sent");
        let mut agreement = agree(&self.identity, &grants, Authenticated::claimed(theirs), session, held)?;
        agreement.resumable = self.resumable;
        Ok(agreement)
    }

    /// Returns this node's grants on its next link: sometimes one request at a time.
    fn grants(&mut self) -> Limits {
        let tight = self.random.one_in(self.traffic().tight_one_in);
        if tight { Limits { requests: [1; 2], ..self.limits } } else { self.limits }
    }

    fn install(&mut self, pairs: Vec<SimQueuePair>, agreement: Agreement, now: Nanos) {
        let pairs = <[SimQueuePair; 2]>::try_from(pairs).expect("one connection per class");
        let id = agreement.peer;
        let executor = self.executor.clone();
        self.with_sink(id, now, |session, sink| {
            session.install(Links { pairs, agreement }, sink, &executor);
        });
    }
}

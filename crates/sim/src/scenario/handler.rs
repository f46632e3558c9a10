//! Callee side of a scenario node: immediate handlers, and lanes that work for a time.

use core::cell::RefCell;
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_core::dispatch::Lanes;
use pronto_core::fabric::{Arrived, QueuePair};
use pronto_core::session::{Callee, DetachedToken, Event, Inbound, OutgoingPayload, Response, Session, Sink};
use pronto_wire::{Class, FailureCode, NodeId};

use super::ledger::Ledger;
use super::message::{Kind, STAMP, Stamp};
use super::traffic::Traffic;
use super::transfers::take_in;
use crate::executor::SimExecutor;
use crate::queue_pair::SimQueuePair;
use crate::random::Random;

pub(crate) type Lease = <SimQueuePair as QueuePair>::Lease;
pub(crate) type SimSession = Session<SimQueuePair>;

/// A call in a lane, with its payload.
#[derive(Debug)]
pub(super) struct Job {
    token: DetachedToken<Origin>,
    stamp: Stamp,
    payload: Arrived<Lease>,
    executed: bool,
}

/// Destination of the response and the credit of a call in a lane.
#[derive(Clone, Debug)]
struct Origin {
    session: Rc<SimSession>,
    executor: SimExecutor,
}

impl Callee for Origin {
    type Qp = SimQueuePair;
    type Executor = SimExecutor;

    fn session(&self) -> &SimSession {
        &self.session
    }

    fn executor(&self) -> &SimExecutor {
        &self.executor
    }
}

/// Lanes: per caller and class.
type LaneKey = (NodeId, Class);

/// Work in progress on a node.
#[derive(Debug, Default)]
pub(super) struct Workshop {
    lanes: Lanes<LaneKey, Job>,
    /// Running jobs, with the times at which they end.
    running: Vec<(Nanos, LaneKey, Job)>,
    /// Finished jobs whose responses are held until `hoarded_until`.
    hoard: Vec<Job>,
    hoarded_until: Nanos,
}

/// Sink of one session's engine.
pub(super) struct NodeSink<'a> {
    pub(super) me: (NodeId, u32),
    pub(super) peer: NodeId,
    pub(super) session: &'a Rc<SimSession>,
    pub(super) ledger: &'a Rc<RefCell<Ledger>>,
    pub(super) workshop: &'a mut Workshop,
    pub(super) random: &'a mut Random,
    pub(super) traffic: Traffic,
    pub(super) now: Nanos,
    pub(super) executor: &'a SimExecutor,
}

impl Sink<Lease> for NodeSink<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Lease>>) {
        let kind = Kind::of(inbound.type_id);
        if matches!(kind, Kind::Offer | Kind::Eager | Kind::Regrant) {
            return take_in(kind, inbound, self.session, self.executor);
        }
        let Inbound { token, payload, .. } = inbound;
        let stamp = Stamp::read(&payload);
        assert!(!stamp.answer, "a reply arrived as a request: {stamp:?}");
        // Responses given while the engine is held: they are submitted.
        self.workshop.respond();
        let mut ledger = self.ledger.borrow_mut();
        ledger.arrived(stamp.name, self.me.0, self.me.1, token.class());
        match kind {
            Kind::Offer | Kind::Eager | Kind::Regrant => unreachable!("handled above"),
            Kind::Prompt => {
                ledger.executed(stamp.name);
                let answer = answer_to(self.session, &stamp, token.class());
                token.respond(answer);
            }
            Kind::Notice => {
                ledger.executed(stamp.name);
                token.finish();
            }
            Kind::Laned => {
                drop(ledger);
                let lane = (self.peer, token.class());
                let origin = Origin { session: Rc::clone(self.session), executor: self.executor.clone() };
                let job = Job { token: token.detach(origin), stamp, payload, executed: false };
                if let Some(job) = self.workshop.lanes.push(lane, job) {
                    let until = self.now + self.traffic.work_on(self.random);
                    self.workshop.start(lane, job, until, self.me, self.ledger);
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.ledger.borrow_mut().event(self.me.0, self.me.1, self.peer, &event);
    }
}

/// Returns the reply that the stamp requests; shorter if there is no room for a long one.
pub(crate) fn answer_to(session: &SimSession, asked: &Stamp, class: Class) -> Response {
    let stamp = Stamp { answer: true, ..*asked };
    let len = asked.answer_len as usize;
    if len > pronto_wire::INLINE_PAYLOAD
        && let Ok(mut loan) = session.loan(class, len, u32::from(asked.name.node))
    {
        stamp.fill(loan.as_mut_slice());
        return Response::Reply { class, payload: OutgoingPayload::Frame(loan.finish()) };
    }
    let mut bytes = [0; STAMP];
    stamp.fill(&mut bytes);
    let payload = OutgoingPayload::inline(&bytes).expect("a stamp fits an inline message");
    Response::Reply { class, payload }
}

impl Workshop {
    fn start(
        &mut self,
        lane: LaneKey,
        mut job: Job,
        until: Nanos,
        me: (NodeId, u32),
        ledger: &Rc<RefCell<Ledger>>,
    ) {
        if !job.token.is_cancelled() {
            job.executed = true;
            ledger.borrow_mut().executed_in_lane(job.stamp.name, me.0, me.1, job.token.class());
        }
        self.running.push((until, lane, job));
    }

    /// Finishes due jobs: responds, returns the credits, and starts the next jobs of the lanes.
    pub(super) fn work(
        &mut self,
        now: Nanos,
        me: (NodeId, u32),
        ledger: &Rc<RefCell<Ledger>>,
        traffic: &Traffic,
        random: &mut Random,
    ) {
        while let Some(at) = self.running.iter().position(|(until, _, _)| *until <= now) {
            let (_, lane, job) = self.running.remove(at);
            if let Some(next) = self.lanes.finish(&lane) {
                self.start(lane, next, now + traffic.work_on(random), me, ledger);
            }
            if let Some(longest) = traffic.hoard {
                if self.hoard.is_empty() {
                    self.hoarded_until = now + longest;
                }
                self.hoard.push(job);
            } else {
                job.finish();
            }
        }
        if self.hoarded_until <= now || traffic.gap.is_none() {
            self.respond();
        }
    }

    /// Sends the held responses.
    pub(super) fn respond(&mut self) {
        self.hoard.drain(..).for_each(Job::finish);
    }

    /// Returns the time at which the next job ends, or held responses are due.
    pub(super) fn next(&self) -> Nanos {
        let running = self.running.iter().map(|(until, _, _)| *until);
        let hoarded = (!self.hoard.is_empty()).then_some(self.hoarded_until);
        running.chain(hoarded).min().unwrap_or(Nanos::NEVER)
    }
}

impl Job {
    fn finish(self) {
        let Self { token, stamp, payload, executed } = self;
        assert!(token.call().is_some(), "only calls run in lanes");
        // The request's buffer is returned before its credit.
        drop(payload);
        if executed {
            let answer = answer_to(&token.callee().session, &stamp, token.class());
            token.respond(answer);
        } else {
            token.fail(FailureCode::Cancelled);
        }
    }
}

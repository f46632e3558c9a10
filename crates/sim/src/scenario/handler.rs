//! The callee's half of a scenario node: prompt handlers, and lanes that work for a while.

use core::cell::RefCell;
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_core::dispatch::Lanes;
use pronto_core::fabric::{Arrived, QueuePair};
use pronto_core::session::{Answer, Event, Inbound, OutgoingPayload, Session, Sink};
use pronto_wire::{Class, FailureCode, NodeId};

use super::ledger::Ledger;
use super::message::{Kind, STAMP, Stamp};
use super::transfers::take_in;
use crate::executor::SimExecutor;
use crate::queue_pair::SimQueuePair;
use crate::random::{Random, Span};

pub(super) type Lease = <SimQueuePair as QueuePair>::Lease;
pub(super) type SimSession = Session<SimQueuePair>;

/// A call in a lane, with the payload that it came with.
#[derive(Debug)]
pub(super) struct Job {
    session: Rc<SimSession>,
    stamp: Stamp,
    inbound: Inbound<Arrived<Lease>>,
    executed: bool,
}

/// Lanes: per caller and class.
type LaneKey = (NodeId, Class);

/// What a node works on.
#[derive(Debug, Default)]
pub(super) struct Workshop {
    lanes: Lanes<LaneKey, Job>,
    /// What is worked on, and until when.
    running: Vec<(Nanos, LaneKey, Job)>,
}

/// Where the engine of one session hands what arrives.
pub(super) struct NodeSink<'a> {
    pub(super) me: (NodeId, u32),
    pub(super) peer: NodeId,
    pub(super) session: &'a Rc<SimSession>,
    pub(super) ledger: &'a Rc<RefCell<Ledger>>,
    pub(super) workshop: &'a mut Workshop,
    pub(super) random: &'a mut Random,
    pub(super) work: Span,
    pub(super) now: Nanos,
    pub(super) executor: &'a SimExecutor,
}

impl Sink<Lease> for NodeSink<'_> {
    fn request(&mut self, inbound: Inbound<Arrived<Lease>>) -> Answer {
        let kind = Kind::of(inbound.type_id);
        if matches!(kind, Kind::Offer | Kind::Carried | Kind::Regrant) {
            take_in(kind, inbound, self.session, self.executor);
            return Answer::Later;
        }
        let stamp = Stamp::read(&inbound.payload);
        assert!(!stamp.answer, "an answer came as a request: {stamp:?}");
        let mut ledger = self.ledger.borrow_mut();
        ledger.arrived(stamp.name, self.me.0, self.me.1, inbound.class);
        match kind {
            Kind::Offer | Kind::Carried | Kind::Regrant => unreachable!("taken in above"),
            Kind::Prompt => {
                ledger.executed(stamp.name);
                answer_to(self.session, &stamp, inbound.class)
            }
            Kind::Notice => {
                ledger.executed(stamp.name);
                Answer::Done
            }
            Kind::Laned => {
                drop(ledger);
                let lane = (self.peer, inbound.class);
                let job = Job { session: Rc::clone(self.session), stamp, inbound, executed: false };
                if let Some(job) = self.workshop.lanes.push(lane, job) {
                    let until = self.now + self.random.within(self.work);
                    self.workshop.start(lane, job, until, self.me, self.ledger);
                }
                Answer::Later
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.ledger.borrow_mut().event(self.me.0, self.me.1, self.peer, &event);
    }
}

/// The answer that the stamp asks for; shorter if there is no room for a long one.
fn answer_to(session: &SimSession, asked: &Stamp, class: Class) -> Answer {
    let stamp = Stamp { answer: true, ..*asked };
    let len = asked.answer_len as usize;
    if len > pronto_wire::INLINE_PAYLOAD
        && let Ok(mut loan) = session.loan(class, len, u32::from(asked.name.node))
    {
        stamp.fill(loan.as_mut_slice());
        return Answer::Reply { class, payload: OutgoingPayload::Frame(loan.finish()) };
    }
    let mut bytes = [0; STAMP];
    stamp.fill(&mut bytes);
    let payload = OutgoingPayload::inline(&bytes).expect("a stamp fits a line");
    Answer::Reply { class, payload }
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
        let cancelled = job.inbound.call.is_some_and(|call| job.session.is_cancelled(call));
        if !cancelled {
            job.executed = true;
            ledger.borrow_mut().executed_in_lane(job.stamp.name, me.0, me.1, job.inbound.class);
        }
        self.running.push((until, lane, job));
    }

    /// Ends what is due: answers, gives the credit back, and starts what waited in the lane.
    pub(super) fn work(
        &mut self,
        now: Nanos,
        me: (NodeId, u32),
        ledger: &Rc<RefCell<Ledger>>,
        executor: &SimExecutor,
        mut next_end: impl FnMut() -> Nanos,
    ) {
        while let Some(at) = self.running.iter().position(|(until, _, _)| *until <= now) {
            let (_, lane, job) = self.running.remove(at);
            if let Some(next) = self.lanes.finish(&lane) {
                self.start(lane, next, now + next_end(), me, ledger);
            }
            job.finish(executor);
        }
    }

    /// When the next one is done.
    pub(super) fn next(&self) -> Nanos {
        self.running.iter().map(|(until, _, _)| *until).min().unwrap_or(Nanos::NEVER)
    }
}

impl Job {
    fn finish(self, executor: &SimExecutor) {
        let Self { session, stamp, inbound, executed } = self;
        let call = inbound.call.expect("only calls are worked on in lanes");
        let (link, class) = (inbound.link, inbound.class);
        // The request's buffer goes back before its credit does.
        drop(inbound);
        session.done_with(class, link, executor);
        let answer = if executed {
            answer_to(&session, &stamp, class)
        } else {
            Answer::failure(FailureCode::Cancelled)
        };
        session.answer(call, link, class, answer, executor);
    }
}

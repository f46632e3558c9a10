//! Where engines hand what arrives: the serving thread runs inline handlers, a waiting caller queues everything.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use pronto_core::fabric::Arrived;
use pronto_core::note::What;
use pronto_core::session::{Answer, Event, Inbound, Sink};
use pronto_core::{Clock, Executor as _, Nanos};
use pronto_rpc::handler::{Incoming, RouteMode};
use pronto_rpc::host::MayWait;
use pronto_rpc::rendezvous::take_in;
use pronto_rpc::{Route, with_bytes};
use pronto_sync::atomic::Ordering;
use pronto_wire::FailureCode;

use crate::flight;
use crate::host::{NodeHost, NodeSession, as_handler};
use crate::pool::LaneKey;
use crate::queue_pair::AnyLease;

/// A message that waits for its handler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) session: Arc<NodeSession>,
    pub(crate) inbound: Inbound<Arrived<AnyLease>>,
    pub(crate) deadline: Nanos,
}

/// The serving thread's, for one turn: inline handlers run right here, and a worker is woken at its end, when the engine is free, for all
/// that the turn gave to the pool. In reach of those who measure this step of a call alone.
#[derive(Debug)]
pub struct ServingSink<'a> {
    host: &'a Arc<NodeHost>,
    session: &'a Arc<NodeSession>,
    /// Whether the pool was given something.
    submitted: bool,
}

impl<'a> ServingSink<'a> {
    /// For what comes through the session of one of the node's peers.
    pub const fn new(host: &'a Arc<NodeHost>, session: &'a Arc<NodeSession>) -> Self {
        Self { host, session, submitted: false }
    }
}

impl Drop for ServingSink<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.submitted {
            self.host.pool.wake();
        }
    }
}

/// A waiting caller's: it starts no handler.
#[derive(Debug)]
pub(crate) struct WaitingSink<'a> {
    pub(crate) host: &'a Arc<NodeHost>,
    pub(crate) session: &'a Arc<NodeSession>,
}

impl Sink<AnyLease> for ServingSink<'_> {
    fn request(&mut self, inbound: Inbound<Arrived<AnyLease>>) -> Answer {
        match route(self.host, &inbound) {
            Err(code) => Answer::failure(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
                Answer::Later
            }
            // What a waiting caller queued arrived before this, and must not be overtaken.
            Ok(route) if route.mode == RouteMode::Inline && self.host.serving.has_jobs() => {
                queue_inline(self.host, self.session, inbound)
            }
            Ok(route) if route.mode == RouteMode::Inline => {
                let mut answer = Answer::Later;
                let handle = |incoming: &Incoming<'_, _>, answer: &mut _| {
                    *answer = route.run(incoming, &inbound.payload);
                };
                run_inline(route, self.host, self.session, &inbound, &mut answer, handle);
                answer
            }
            Ok(route) => {
                self.submitted = true;
                to_pool(route, self.host, self.session, inbound)
            }
        }
    }

    fn request_here(&mut self, inbound: &Inbound<&[u8]>, answer: &mut Answer) -> bool {
        match route(self.host, inbound) {
            Err(code) => *answer = Answer::failure(code),
            Ok(route) if route.mode == RouteMode::Inline && !self.host.serving.has_jobs() => {
                let handle = |incoming: &Incoming<'_, _>, answer: &mut _| {
                    route.run_on(incoming, inbound.payload, answer);
                };
                run_inline(route, self.host, self.session, inbound, answer, handle);
            }
            Ok(_) => return false,
        }
        true
    }

    fn event(&mut self, event: Event) {
        self.host.on_event(event);
    }
}

impl Sink<AnyLease> for WaitingSink<'_> {
    fn request(&mut self, inbound: Inbound<Arrived<AnyLease>>) -> Answer {
        match route(self.host, &inbound) {
            Err(code) => Answer::failure(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
                Answer::Later
            }
            Ok(route) if route.mode == RouteMode::Inline => queue_inline(self.host, self.session, inbound),
            Ok(route) => {
                let answer = to_pool(route, self.host, self.session, inbound);
                // It has no turns of its own: it is one caller's for a whole wait.
                self.host.pool.wake();
                answer
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.host.on_event(event);
    }
}

impl Job {
    /// Runs the job's handler and answers, as the serving thread does for what waiting callers queued.
    pub(crate) fn run_inline(self, host: &Arc<NodeHost>) {
        let Self { session, inbound, .. } = self;
        let mut answer = Answer::Later;
        match route(host, &inbound) {
            Ok(route) => {
                let handle = |incoming: &Incoming<'_, _>, answer: &mut _| {
                    *answer = route.run(incoming, &inbound.payload);
                };
                run_inline(route, host, &session, &inbound, &mut answer, handle);
            }
            Err(code) => answer = Answer::failure(code),
        }
        finish(&session, &inbound, answer, host);
    }

    /// Runs the job's handler and answers, as a worker does: skipped in its turn if nobody waits for it any more.
    pub(crate) fn run_pooled(self, host: &Arc<NodeHost>) {
        let Self { session, inbound, deadline } = self;
        let cancelled = inbound.call.is_some_and(|call| session.is_cancelled(call));
        let mut answer = Answer::Later;
        if cancelled {
            answer = Answer::failure(FailureCode::Cancelled);
        } else if deadline != Nanos::NEVER && host.now() >= deadline {
            answer = Answer::failure(FailureCode::Expired);
        } else {
            match route(host, &inbound) {
                Ok(route) => {
                    let incoming = Incoming::new(&inbound, &session, host, deadline);
                    let handle = |incoming: &Incoming<'_, _>, answer: &mut _| {
                        *answer = route.run(incoming, &inbound.payload);
                    };
                    run(route, &incoming, &inbound, MayWait::InPool, &mut answer, handle);
                }
                Err(code) => answer = Answer::failure(code),
            }
        }
        finish(&session, &inbound, answer, host);
    }
}

fn route<'a, P>(host: &'a NodeHost, inbound: &Inbound<P>) -> Result<&'a Route<NodeHost>, FailureCode> {
    if host.draining.load(Ordering::Relaxed) {
        return Err(FailureCode::Draining);
    }
    host.routes()
        .get(usize::from(inbound.type_id.0))
        .filter(|route| route.key.service == inbound.service)
        .ok_or(FailureCode::NoHandler)
}

fn deadline_of(inbound: &Inbound<Arrived<AnyLease>>, host: &NodeHost) -> Nanos {
    if inbound.timeout == Nanos::NEVER { Nanos::NEVER } else { host.now() + inbound.timeout }
}

/// Leaves a message to the pool, which is to be woken for it.
fn to_pool(
    route: &Route<NodeHost>,
    host: &Arc<NodeHost>,
    session: &Arc<NodeSession>,
    inbound: Inbound<Arrived<AnyLease>>,
) -> Answer {
    let lane = match route.mode {
        RouteMode::Inline | RouteMode::Rendezvous(_) | RouteMode::Unordered => None,
        RouteMode::Ordered => Some(LaneKey::of_type(inbound.type_id)),
        RouteMode::ByKey => match with_bytes(&inbound.payload, |bytes| route.lane_of(bytes)) {
            Ok(key) => Some(LaneKey::of_key(inbound.type_id, key)),
            Err(_) => return Answer::failure(FailureCode::Malformed),
        },
    };
    let deadline = deadline_of(&inbound, host);
    host.pool.submit(lane, Job { session: Arc::clone(session), inbound, deadline });
    Answer::Later
}

/// Leaves a message to the serving thread, behind those that were left before.
fn queue_inline(host: &NodeHost, session: &Arc<NodeSession>, inbound: Inbound<Arrived<AnyLease>>) -> Answer {
    host.serving.queue(Job { session: Arc::clone(session), inbound, deadline: Nanos::NEVER });
    Answer::Later
}

fn run_inline<P>(
    route: &Route<NodeHost>,
    host: &Arc<NodeHost>,
    session: &Arc<NodeSession>,
    inbound: &Inbound<P>,
    answer: &mut Answer,
    handle: impl FnOnce(&Incoming<'_, NodeHost>, &mut Answer),
) {
    // No clock is read for a handler that has nothing to ask it.
    let incoming = Incoming::new(inbound, session, host, Nanos::NEVER);
    run(route, &incoming, inbound, MayWait::Never, answer, handle);
}

/// Runs a handler; one that panics fails its call, not the node.
fn run<P>(
    route: &Route<NodeHost>,
    incoming: &Incoming<'_, NodeHost>,
    inbound: &Inbound<P>,
    may: MayWait,
    answer: &mut Answer,
    handle: impl FnOnce(&Incoming<'_, NodeHost>, &mut Answer),
) {
    let note = |what| incoming.host.note(flight::of_message(what, incoming.session.peer(), inbound));
    note(What::Handles);
    let handler = || handle(incoming, answer);
    let ended = as_handler(may, || catch_unwind(AssertUnwindSafe(handler)));
    if may != MayWait::Never {
        note(What::Handled);
    }
    if ended.is_err() {
        note(What::Panicked);
        tracing::error!(handler = route.name, "handler panicked");
        *answer = Answer::failure(FailureCode::HandlerPanicked);
    }
}

/// Answers a job that was taken out of a queue, and gives its credit back.
fn finish(session: &Arc<NodeSession>, inbound: &Inbound<Arrived<AnyLease>>, answer: Answer, host: &NodeHost) {
    if matches!(answer, Answer::Later) {
        return;
    }
    session.done_with(inbound.class, inbound.link, host);
    if let Some(call) = inbound.call {
        let answer =
            if matches!(answer, Answer::Done) { Answer::failure(FailureCode::NoReply) } else { answer };
        session.answer(call, inbound.link, inbound.class, answer, host);
    }
}

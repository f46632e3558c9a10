//! Where engines hand what arrives: the serving thread runs inline handlers, a waiting caller queues everything.

use std::sync::Arc;

use pronto_core::fabric::Arrived;
use pronto_core::note::What;
use pronto_core::session::{DetachedToken, Event, Inbound, RequestToken, Sink};
use pronto_core::{Clock, Executor as _, Nanos};
use pronto_rpc::Route;
use pronto_rpc::handler::{Incoming, Origin, RouteMode};
use pronto_rpc::host::MayWait;
use pronto_rpc::rendezvous::take_in;
use pronto_sync::atomic::Ordering;
use pronto_wire::{FailureCode, ServiceId, TypeId};

use crate::flight;
use crate::guard;
use crate::host::{NodeHost, NodeSession, as_handler};
use crate::pool::LaneKey;
use crate::queue_pair::AnyLease;

/// A message that waits for its handler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) token: DetachedToken<Origin<NodeHost>>,
    pub(crate) type_id: TypeId,
    pub(crate) service: ServiceId,
    pub(crate) deadline: Nanos,
    pub(crate) payload: Arrived<AnyLease>,
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
    fn request(&mut self, inbound: Inbound<'_, Arrived<AnyLease>>) {
        match route(self.host, inbound.type_id, inbound.service) {
            Err(code) => inbound.token.fail(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
            }
            // What a waiting caller queued arrived before this, and must not be overtaken.
            Ok(route) if route.mode == RouteMode::Inline && self.host.serving.has_jobs() => {
                queue_inline(self.host, self.session, inbound);
            }
            Ok(route) if route.mode == RouteMode::Inline => {
                let Inbound { token, type_id, payload, .. } = inbound;
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, &payload, token);
                };
                run_inline((route, type_id), self.host, self.session, token, handle);
            }
            Ok(route) => {
                self.submitted = true;
                to_pool(route, self.host, self.session, inbound);
            }
        }
    }

    fn request_here(&mut self, inbound: Inbound<'_, &[u8]>) -> bool {
        match route(self.host, inbound.type_id, inbound.service) {
            Err(code) => inbound.token.fail(code),
            Ok(route) if route.mode == RouteMode::Inline && !self.host.serving.has_jobs() => {
                let Inbound { token, type_id, payload, .. } = inbound;
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run_on(incoming, payload, token);
                };
                run_inline((route, type_id), self.host, self.session, token, handle);
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
    fn request(&mut self, inbound: Inbound<'_, Arrived<AnyLease>>) {
        match route(self.host, inbound.type_id, inbound.service) {
            Err(code) => inbound.token.fail(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
            }
            Ok(route) if route.mode == RouteMode::Inline => queue_inline(self.host, self.session, inbound),
            Ok(route) => {
                to_pool(route, self.host, self.session, inbound);
                // It has no turns of its own: it is one caller's for a whole wait.
                self.host.pool.wake();
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.host.on_event(event);
    }
}

impl Job {
    fn new(
        host: &Arc<NodeHost>,
        session: &Arc<NodeSession>,
        inbound: Inbound<'_, Arrived<AnyLease>>,
        deadline: Nanos,
    ) -> Self {
        let Inbound { token, type_id, service, payload, .. } = inbound;
        let origin = Origin { session: Arc::clone(session), host: Arc::clone(host) };
        Self { token: token.detach(origin), type_id, service, deadline, payload }
    }

    /// Runs the job's handler and answers, as the serving thread does for what waiting callers queued.
    pub(crate) fn run_inline(self, host: &Arc<NodeHost>) {
        let Self { token, type_id, service, payload, .. } = self;
        match route(host, type_id, service) {
            Ok(route) => token.handle(move |Origin { session, .. }, token| {
                // The payload ends with this closure: its receive buffer goes back before the credit does.
                let payload = payload;
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, &payload, token);
                };
                run_inline((route, type_id), host, session, token, handle);
            }),
            Err(code) => {
                drop(payload);
                token.fail(code);
            }
        }
    }

    /// Runs the job's handler and answers, as a worker does: skipped in its turn if nobody waits for it any more.
    pub(crate) fn run_pooled(self, host: &Arc<NodeHost>) {
        let Self { token, type_id, service, payload, deadline } = self;
        let route = if token.is_cancelled() {
            Err(FailureCode::Cancelled)
        } else if deadline != Nanos::NEVER && host.now() >= deadline {
            Err(FailureCode::Expired)
        } else {
            route(host, type_id, service)
        };
        match route {
            Ok(route) => token.handle(move |Origin { session, .. }, token| {
                // As above.
                let payload = payload;
                let incoming = Incoming::new(token.call(), session, host, deadline);
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, &payload, token);
                };
                run((route, type_id), &incoming, MayWait::InPool, token, handle);
            }),
            Err(code) => {
                drop(payload);
                token.fail(code);
            }
        }
    }
}

fn route(host: &NodeHost, type_id: TypeId, service: ServiceId) -> Result<&Route<NodeHost>, FailureCode> {
    if host.draining.load(Ordering::Relaxed) {
        return Err(FailureCode::Draining);
    }
    host.routes()
        .get(usize::from(type_id.0))
        .filter(|route| route.key.service == service)
        .ok_or(FailureCode::NoHandler)
}

/// Leaves a message to the pool, which is to be woken for it.
fn to_pool(
    route: &Route<NodeHost>,
    host: &Arc<NodeHost>,
    session: &Arc<NodeSession>,
    inbound: Inbound<'_, Arrived<AnyLease>>,
) {
    let lane = match route.mode {
        RouteMode::Inline | RouteMode::Rendezvous(_) | RouteMode::Unordered => None,
        RouteMode::Ordered => Some(LaneKey::of_type(inbound.type_id)),
        RouteMode::ByKey => match guard::key_of(route, host, session, &inbound) {
            Ok(key) => Some(LaneKey::of_key(inbound.type_id, key)),
            Err(code) => return inbound.token.fail(code),
        },
    };
    let deadline = if inbound.timeout == Nanos::NEVER { Nanos::NEVER } else { host.now() + inbound.timeout };
    host.pool.submit(lane, Job::new(host, session, inbound, deadline));
}

/// Leaves a message to the serving thread, behind those that were left before.
fn queue_inline(host: &Arc<NodeHost>, session: &Arc<NodeSession>, inbound: Inbound<'_, Arrived<AnyLease>>) {
    host.serving.queue(Job::new(host, session, inbound, Nanos::NEVER));
}

fn run_inline(
    route: (&Route<NodeHost>, TypeId),
    host: &Arc<NodeHost>,
    session: &Arc<NodeSession>,
    token: RequestToken<'_>,
    handle: impl FnOnce(&Incoming<'_, NodeHost>, RequestToken<'_>),
) {
    // No clock is read for a handler that has nothing to ask it.
    let incoming = Incoming::new(token.call(), session, host, Nanos::NEVER);
    run(route, &incoming, MayWait::Never, token, handle);
}

/// Runs a handler; one that panics fails its call, not the node. If the handler parted with the token before, its call is
/// answered by that.
fn run(
    (route, type_id): (&Route<NodeHost>, TypeId),
    incoming: &Incoming<'_, NodeHost>,
    may: MayWait,
    token: RequestToken<'_>,
    handle: impl FnOnce(&Incoming<'_, NodeHost>, RequestToken<'_>),
) {
    let note =
        |what| incoming.host.note(flight::of_message(what, incoming.session.peer(), incoming.call, type_id));
    note(What::Handles);
    let (ended, unused) = token.lend(|token| {
        let handler = || handle(incoming, token);
        as_handler(may, || guard::caught(handler))
    });
    if may != MayWait::Never {
        note(What::Handled);
    }
    if ended.is_none() {
        note(What::Panicked);
        tracing::error!(handler = route.name, "handler panicked");
        if let Some(token) = unused {
            token.fail(FailureCode::HandlerPanicked);
        }
    }
}

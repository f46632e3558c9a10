//! Sinks for the messages that engines receive: that of the serving thread runs inline handlers, that of a waiting caller queues all
//! messages.

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
use pronto_wire::{CallId, FailureCode, ServiceId, TypeId};

use crate::host::{NodeHost, NodeSession, as_handler};
use crate::queue_pair::AnyLease;
use crate::recorder::audit::Refused;
use crate::recorder::flight;
use crate::serving::futures::Futures;
use crate::serving::guard;
use crate::serving::pool::{LaneKey, Work};

/// A message that waits for its handler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) token: DetachedToken<Origin<NodeHost>>,
    pub(crate) type_id: TypeId,
    pub(crate) service: ServiceId,
    pub(crate) deadline: Nanos,
    pub(crate) payload: Arrived<AnyLease>,
}

/// The sink of the serving thread, for one turn. It runs inline handlers immediately. When it is dropped, after the engine lock was
/// released, it wakes a worker for the messages that the turn gave to the pool. Public for benchmarks of this step of a call.
#[derive(Debug)]
pub struct ServingSink<'a> {
    host: &'a Arc<NodeHost>,
    session: &'a Arc<NodeSession>,
    /// The turn gave a message to the pool.
    submitted: bool,
}

impl<'a> ServingSink<'a> {
    /// Creates a sink for messages that arrive through this session.
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

/// The sink of a waiting caller, which starts no handlers.
#[derive(Debug)]
pub(crate) struct WaitingSink<'a> {
    pub(crate) host: &'a Arc<NodeHost>,
    pub(crate) session: &'a Arc<NodeSession>,
}

impl Sink<AnyLease> for ServingSink<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<AnyLease>>) {
        match admit(self.host, self.session, inbound.type_id, inbound.service) {
            Err(code) => inbound.token.fail(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
            }
            // Messages that a waiting caller queued arrived before this one, which must not overtake them.
            Ok(route) if route.mode == RouteMode::Inline && self.host.serving.has_jobs() => {
                queue_inline(self.host, self.session, inbound);
            }
            Ok(route) if route.mode == RouteMode::Inline => {
                let Inbound { token, type_id, payload, .. } = inbound;
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, payload, token);
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
        match admit(self.host, self.session, inbound.type_id, inbound.service) {
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

    fn cancelled(&mut self, call: CallId) {
        self.host.futures.cancel(self.session.peer(), call, self.host);
    }
}

impl Sink<AnyLease> for WaitingSink<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<AnyLease>>) {
        match admit(self.host, self.session, inbound.type_id, inbound.service) {
            Err(code) => inbound.token.fail(code),
            Ok(Route { mode: RouteMode::Rendezvous(form), .. }) => {
                take_in(*form, inbound, self.session, &**self.host);
            }
            Ok(route) if route.mode == RouteMode::Inline => queue_inline(self.host, self.session, inbound),
            Ok(route) => {
                to_pool(route, self.host, self.session, inbound);
                // Immediately, because this sink exists for the whole wait of a caller, not for one turn.
                self.host.pool.wake();
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.host.on_event(event);
    }

    fn cancelled(&mut self, call: CallId) {
        self.host.futures.cancel(self.session.peer(), call, self.host);
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

    /// Runs the job's inline handler, on the serving thread, for a message that a waiting caller queued.
    pub(crate) fn run_inline(self, host: &Arc<NodeHost>) {
        let Self { token, type_id, service, payload, .. } = self;
        match route(host, type_id, service) {
            Ok(route) => token.handle(move |Origin { session, .. }, token| {
                // The handler drops the payload, so that its receive buffer is returned before the credit.
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, payload, token);
                };
                run_inline((route, type_id), host, session, token, handle);
            }),
            Err(code) => {
                drop(payload);
                token.fail(code);
            }
        }
    }

    /// Returns the route of the job's message, unless its call was cancelled or has reached its deadline.
    pub(crate) fn route<'h>(&self, host: &'h NodeHost) -> Result<&'h Route<NodeHost>, FailureCode> {
        if self.token.is_cancelled() {
            Err(FailureCode::Cancelled)
        } else if self.deadline != Nanos::NEVER && host.now() >= self.deadline {
            Err(FailureCode::Expired)
        } else {
            route(host, self.type_id, self.service)
        }
    }

    /// Runs the job's handler, on a worker. A call that was cancelled or has reached its deadline fails instead.
    pub(crate) fn run_pooled(self, host: &Arc<NodeHost>) {
        let route = self.route(host);
        let Self { token, type_id, payload, deadline, .. } = self;
        match route {
            Ok(route) => token.handle(move |Origin { session, .. }, token| {
                // The handler drops the payload before the credit is returned, as in `run_inline`.
                let incoming = Incoming::new(token.call(), session, host, deadline);
                let handle = |incoming: &Incoming<'_, _>, token: RequestToken<'_>| {
                    route.run(incoming, payload, token);
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

/// Returns the route of a message that has arrived, if the peer may use it.
#[inline(always)]
fn admit<'h>(
    host: &'h NodeHost,
    session: &NodeSession,
    type_id: TypeId,
    service: ServiceId,
) -> Result<&'h Route<NodeHost>, FailureCode> {
    let route = route(host, type_id, service)?;
    if !session.permissions().permits(type_id) {
        return Err(refuse(host, session, route));
    }
    Ok(route)
}

/// Counts and logs a message of a type that the peer may not use.
#[cold]
fn refuse(host: &NodeHost, session: &NodeSession, route: &Route<NodeHost>) -> FailureCode {
    session.stats().not_permitted.add(1);
    if host.audit.note(Refused { node: session.peer(), message: route.name }) {
        host.wake_links_thread();
    }
    FailureCode::NotPermitted
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

/// Gives a message to the pool. The caller must wake the pool afterwards.
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
    let call = inbound.token.call();
    let job = Job::new(host, session, inbound, deadline);
    if route.is_async() {
        host.pool.submit_async(lane, job, Futures::list(host, session.peer(), call));
    } else {
        host.pool.submit(lane, Work::Handle(job));
    }
}

/// Queues a message for the serving thread, behind those that were queued before.
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
    // The deadline is left out, because it would cost a clock reading and inline handlers cannot ask for it.
    let incoming = Incoming::new(token.call(), session, host, Nanos::NEVER);
    run(route, &incoming, MayWait::Never, token, handle);
}

/// Runs a handler. If it panics, its call fails, unless the handler had already consumed the token.
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

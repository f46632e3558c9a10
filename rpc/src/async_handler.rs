//! Async handlers: functions that return a future of the response. The node polls the future, and has the duties of the request meanwhile.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::pin::Pin;
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Response, Session};
use pronto_wire::{FailureCode, NodeId};

use crate::arrived::{Fresh, read_arrived};
use crate::handler::{Incoming, IntoResponse, REPLY_RETRY_LIMIT, Route, Run};
use crate::host::Host;
use crate::message::{Message, Request};
use crate::peer::{LeaseOf, Peer};

/// The future of an async handler, which encodes the response as well. The response to a notification is not sent.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The context of an async handler, which may be kept beyond its future.
pub struct AsyncContext<H: Host> {
    session: Arc<Session<H::Qp>>,
    host: Arc<H>,
    deadline: Nanos,
}

impl<H: Host> AsyncContext<H> {
    fn new(incoming: &Incoming<'_, H>) -> Self {
        let (session, host) = (Arc::clone(incoming.session), Arc::clone(incoming.host));
        Self { session, host, deadline: incoming.deadline }
    }

    /// Returns the node that sent the message.
    pub fn source(&self) -> NodeId {
        self.session.peer()
    }

    /// Returns the node that the handler runs on.
    pub const fn host(&self) -> &Arc<H> {
        &self.host
    }

    /// Returns the sender as a peer that can be called, with [`Peer::call_async`].
    pub fn peer(&self) -> Peer<H> {
        Peer::new(Arc::clone(&self.session), Arc::clone(&self.host))
    }

    /// Returns how much longer the caller waits, or `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.deadline.since(self.host.now());
        (self.deadline != Nanos::NEVER).then(|| Duration::from_nanos(left.0))
    }
}

impl<H: Host> Route<H> {
    /// Returns the route of an async handler. A worker calls it, in the order that its type declares. The node, or an executor of the
    /// program, polls the future that it returns.
    pub fn pooled_async<M, F>(handler: impl Fn(AsyncContext<H>, M) -> F + Send + Sync + 'static) -> Self
    where
        M: Request,
        F: Future + Send + 'static,
        F::Output: IntoResponse<M::Reply> + Send,
    {
        Self::of_future::<M, _>(move |context, message| {
            let (session, host) = (Arc::clone(&context.session), Arc::clone(&context.host));
            let handling = handler(context, message);
            async move {
                let outcome = handling.await;
                let until = host.now() + REPLY_RETRY_LIMIT;
                loop {
                    if let Some(response) = outcome.try_response(&session) {
                        return response;
                    }
                    if host.now() >= until {
                        return outcome.into_response(&session, &|_| {});
                    }
                    host.pause_async().await;
                }
            }
        })
    }

    /// Returns the route of an async notification handler, like [`Route::pooled_async`].
    pub fn pooled_async_notification<M, F>(
        handler: impl Fn(AsyncContext<H>, M) -> F + Send + Sync + 'static,
    ) -> Self
    where
        M: Message,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::of_future::<M, _>(move |context, message| {
            let handling = handler(context, message);
            async move {
                handling.await;
                Response::failure(FailureCode::NoReply)
            }
        })
    }

    fn of_future<M, F>(begin: impl Fn(AsyncContext<H>, M) -> F + Send + Sync + 'static) -> Self
    where
        M: Message,
        F: Future<Output = Response> + Send + 'static,
    {
        let begin = move |incoming: &Incoming<'_, H>, payload: Arrived<LeaseOf<H>>| {
            let message = match read_arrived(payload, &mut Fresh::default()) {
                Ok(Ok(message)) => message,
                Ok(Err(_malformed)) => return Err(FailureCode::Malformed),
                // The caller has ended the link, which ended the call, too.
                Err(_withdrawn) => return Err(FailureCode::Cancelled),
            };
            Ok(Box::pin(begin(AsyncContext::new(incoming), message)) as ResponseFuture)
        };
        Self::of::<M>(M::ORDER.into(), Run::Async(Box::new(begin)))
    }

    /// Returns whether the handler is async, so that it is run by [`Route::begin`].
    pub const fn is_async(&self) -> bool {
        matches!(self.run, Run::Async(_))
    }

    /// Calls an async handler. Returns its future.
    ///
    /// # Errors
    /// The reason why there is no future: the payload is malformed or was withdrawn, or the handler is not async.
    pub fn begin(
        &self,
        incoming: &Incoming<'_, H>,
        payload: Arrived<LeaseOf<H>>,
    ) -> Result<ResponseFuture, FailureCode> {
        match &self.run {
            Run::Async(begin) => begin(incoming, payload),
            Run::Decoded(_) | Run::InPlace(_) => Err(FailureCode::NoHandler),
        }
    }
}

impl<H: Host> Clone for AsyncContext<H> {
    fn clone(&self) -> Self {
        let (session, host) = (Arc::clone(&self.session), Arc::clone(&self.host));
        Self { session, host, deadline: self.deadline }
    }
}

impl<H: Host> fmt::Debug for AsyncContext<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncContext")
    }
}

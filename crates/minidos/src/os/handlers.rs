//! The handlers of all message types.
//!
//! Requests have deferred handlers: they run inline, never wait, and may respond deferred. Notifications that only update a table
//! also run inline. The handler that returns pages to their homes at the end of a process runs on the worker pool.

use std::sync::Arc;

use pronto::{Builder, Message, Request, Responder};

use super::{Event, Os, OsError, Step};
use crate::messages::{
    ExitOrigin, ExitRemote, Flush, FlushAck, FutexOperation, FutexRequest, Invalidate, Migrate, MigrateBack,
    NodeInfo, PageRequest, Release, Signal, Stamped, VmaInfoRequest, VmaOpRequest,
};
use crate::network::ReplyTo;
use crate::page::Address;

/// Registers the handlers of `os` with `builder`.
pub(crate) fn register(builder: Builder, os: &Arc<Os>) -> Builder {
    let builder = deferred(builder, os, |os, request: PageRequest, to| os.handle_page_request(&request, to));
    let builder =
        deferred(builder, os, |os, request: Invalidate, to| os.handle_invalidate_request(&request, to));
    let builder = deferred(builder, os, |os, release: Release, to: ReplyTo<FlushAck>| {
        os.page_returned(release.address.page(), release.version, None, to)
    });
    let builder = deferred(builder, os, |os, flush: Flush, to: ReplyTo<FlushAck>| {
        let page = flush.address.page();
        let contents = flush.page().ok_or_else(|| os.corrupt(page, to.from()))?;
        os.page_returned(page, flush.version, Some(contents), to)
    });
    let builder =
        deferred(builder, os, |os, request: FutexRequest, to| os.handle_futex_request(&request, to));
    let builder = deferred(builder, os, |os, request: VmaInfoRequest, to| {
        to.send(os.look_up_for(request.address));
        Ok(())
    });
    let builder = deferred(builder, os, |os, request: VmaOpRequest, to| {
        to.send(os.map_for(&request));
        Ok(())
    });
    let builder = deferred(builder, os, |os, migrate: Migrate, to| {
        let pairing = os.start_migrated(&migrate)?;
        to.send(pairing);
        Ok(())
    });
    let builder = inline(builder, os, |os, back: MigrateBack| {
        os.task_returned(back.task, Step::Move(back.registers));
    });
    let builder =
        inline(builder, os, |os, exit: ExitRemote| os.task_returned(exit.task, Step::End(exit.code)));
    let builder = inline(builder, os, |os, signal: Signal| os.signalled(signal.task, signal.number));
    let builder = inline(builder, os, |os, _: NodeInfo| os.emit(Event::PeerAnnounced));
    let os = Arc::clone(os);
    builder.on(move |context, exit: ExitOrigin| {
        if os.network.received(context.source(), &exit) {
            os.report_failure(os.process_ended());
        }
    })
}

/// Registers a handler that responds through a responder, possibly later.
fn deferred<M>(
    builder: Builder,
    os: &Arc<Os>,
    handler: impl Fn(&Arc<Os>, M, ReplyTo<M::Reply>) -> Result<(), OsError> + Send + Sync + 'static,
) -> Builder
where
    M: Request<Reply: Stamped> + Stamped,
{
    let os = Arc::clone(os);
    builder.handle_deferred(move |context, request: M, responder: Responder<M::Reply>| {
        if os.network.received(context.source(), &request) {
            let to = os.network.reply_to(responder);
            os.report_failure(handler(&os, request, to));
        }
    })
}

/// Registers an inline handler of a notification.
fn inline<M: Message + Stamped>(
    builder: Builder,
    os: &Arc<Os>,
    handler: impl Fn(&Arc<Os>, M) + Send + Sync + 'static,
) -> Builder {
    let os = Arc::clone(os);
    builder.on_inline(move |context, message: M| {
        if os.network.received(context.source(), &message) {
            handler(&os, message);
        }
    })
}

impl Os {
    fn handle_futex_request(
        self: &Arc<Self>,
        request: &FutexRequest,
        to: ReplyTo<crate::messages::FutexResponse>,
    ) -> Result<(), OsError> {
        let address = Address(request.address);
        self.check_home(address.page())?;
        let to = super::homes::FutexClient::There(to);
        self.with_home(|home| match request.operation {
            FutexOperation::Wait => home.handle_wait(address, request.value, to),
            FutexOperation::Wake => {
                home.handle_wake(address, request.value, to);
                Ok(())
            }
        })
    }
}

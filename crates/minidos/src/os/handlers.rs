//! Which message goes where.
//!
//! Whatever a home or a cache may have to think about longer is answered later and never waits; it is taken in right
//! where it arrives. What starts threads or sends pages home runs on the pool.

use std::sync::Arc;

use pronto::{Builder, Message, Request, Responder};

use super::{Event, Os, OsError, Step};
use crate::messages::{
    ExitOrigin, ExitRemote, Flush, FlushAck, FutexOperation, FutexRequest, Invalidate, Migrate, MigrateBack,
    NodeInfo, PageRequest, Release, Signal, Stamped, VmaInfoRequest, VmaOpRequest,
};
use crate::network::ReplyTo;
use crate::page::Address;

/// Has `builder` take in everything that `os` understands.
pub(crate) fn register(builder: Builder, os: &Arc<Os>) -> Builder {
    let builder = later(builder, os, |os, request: PageRequest, to| os.page_requested(&request, to));
    let builder = later(builder, os, |os, request: Invalidate, to| os.invalidation_requested(&request, to));
    let builder = later(builder, os, |os, release: Release, to: ReplyTo<FlushAck>| {
        os.given_back(release.address.page(), release.version, None, to)
    });
    let builder = later(builder, os, |os, flush: Flush, to: ReplyTo<FlushAck>| {
        let page = flush.address.page();
        let contents = flush.page().ok_or_else(|| os.corrupt(page, to.from()))?;
        os.given_back(page, flush.version, Some(contents), to)
    });
    let builder = later(builder, os, |os, request: FutexRequest, to| os.futex_requested(&request, to));
    let builder = later(builder, os, |os, request: VmaInfoRequest, to| {
        to.send(os.range_asked(request.address));
        Ok(())
    });
    let builder = later(builder, os, |os, request: VmaOpRequest, to| {
        to.send(os.map_asked(&request));
        Ok(())
    });
    let builder = later(builder, os, |os, migrate: Migrate, to| {
        let pairing = os.take_over(&migrate)?;
        to.send(pairing);
        Ok(())
    });
    let builder = noted(builder, os, |os, back: MigrateBack| {
        os.came_back(back.task, Step::Move(back.registers));
    });
    let builder = noted(builder, os, |os, exit: ExitRemote| os.came_back(exit.task, Step::End(exit.code)));
    let builder = noted(builder, os, |os, signal: Signal| os.signalled(signal.task, signal.number));
    let builder = noted(builder, os, |os, _: NodeInfo| os.tell(Event::Met));
    let os = Arc::clone(os);
    builder.on(move |context, exit: ExitOrigin| {
        if os.network.received(context.source(), &exit) {
            os.concluded(os.taken_apart());
        }
    })
}

/// A request that is answered through its right to.
fn later<M>(
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
            os.concluded(handler(&os, request, to));
        }
    })
}

/// A notification that needs no thread of its own.
fn noted<M: Message + Stamped>(
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
    fn futex_requested(
        self: &Arc<Self>,
        request: &FutexRequest,
        to: ReplyTo<crate::messages::FutexResponse>,
    ) -> Result<(), OsError> {
        let address = Address(request.address);
        self.check_home(address.page())?;
        let to = super::homes::FutexClient::There(to);
        self.at_home(|home| match request.operation {
            FutexOperation::Wait => home.handle_wait(address, request.value, to),
            FutexOperation::Wake => {
                home.handle_wake(address, request.value, to);
                Ok(())
            }
        })
    }
}

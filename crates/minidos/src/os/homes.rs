//! Executes the actions of this node's home, and sends the cache's responses to homes.
//!
//! No thread waits for the reply to a demand. The reply comes back as an event of the home.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use pronto::NodeId;

use super::pages::Granted;
use super::{Os, OsError, lock};
use crate::account::Cause;
use crate::cache::Response;
use crate::directory::{Returned, Violation};
use crate::home::{Home, HomeAction};
use crate::messages::{
    FlushAck, FutexOutcome, FutexResponse, Invalidate, Invalidated, PageGrant, PageReply, PageRequest,
    PageResponse, PageResponseShort, Stamp, TaskId,
};
use crate::network::ReplyTo;
use crate::page::{Access, Page, PageNumber, Version};
use crate::ranges::Ranges;

/// Requester of a page.
#[derive(Debug)]
pub(super) enum PageClient {
    /// A task of this node.
    Here(SyncSender<Granted>),
    /// A task of another node.
    There(ReplyTo<PageReply>),
}

/// Requester of a futex operation.
#[derive(Debug)]
pub(super) enum FutexClient {
    /// A task of this node.
    Here(SyncSender<FutexOutcome>),
    /// A task of another node.
    There(ReplyTo<FutexResponse>),
}

/// Home that made a demand on this node's cache, and the kind of the demand.
#[derive(Debug)]
pub(super) enum HomeRef {
    /// This node's home demands that a copy is dropped.
    DropHere,
    /// This node's home demands contents.
    ReturnHere,
    /// Another node's home demands that a copy is dropped.
    DropThere(ReplyTo<Invalidated>),
    /// Another node's home demands contents.
    ReturnThere(ReplyTo<PageReply>, Version),
}

impl Os {
    /// Passes an event to this node's home and executes the resulting actions.
    pub(super) fn with_home(
        self: &Arc<Self>,
        event: impl FnOnce(&mut Home<PageClient, FutexClient>) -> Result<(), Violation>,
    ) -> Result<(), OsError> {
        let mut home = lock(&self.home);
        let result = event(&mut home);
        let actions: Vec<_> = core::iter::from_fn(|| home.poll_action()).collect();
        drop(home);
        for action in actions {
            self.execute(action)?;
        }
        Ok(result?)
    }

    fn execute(self: &Arc<Self>, action: HomeAction<PageClient, FutexClient>) -> Result<(), OsError> {
        match action {
            HomeAction::Invalidate { to, page, version } => self.demand_drop(to, page, version),
            HomeAction::Recall { to, page, version, access } => self.demand_return(to, page, version, access),
            HomeAction::Grant { to: PageClient::Here(to), version, contents, .. } => {
                // Fails if the task has stopped waiting; it has reported that.
                let _ = to.send(Granted { version, contents });
                Ok(())
            }
            HomeAction::Grant { to: PageClient::There(to), page, version, contents } => {
                let granted = if contents.is_some() { Cause::GrantedContents } else { Cause::GrantedRight };
                self.causes.count(granted);
                to.send(page_reply(page, version, contents));
                Ok(())
            }
            HomeAction::Futex { to: FutexClient::Here(to), outcome, .. } => {
                // Fails if the task has stopped waiting; it has reported that.
                let _ = to.send(outcome);
                Ok(())
            }
            HomeAction::Futex { to: FutexClient::There(to), outcome, woken } => {
                self.causes.count(Cause::FutexResponded);
                to.send(FutexResponse { stamp: Stamp::default(), outcome, woken });
                Ok(())
            }
        }
    }

    fn demand_drop(self: &Arc<Self>, to: NodeId, page: PageNumber, version: Version) -> Result<(), OsError> {
        if to == self.network.me() {
            let response = lock(&self.cache).handle_invalidate(page, version, HomeRef::DropHere);
            return response.map_or(Ok(()), |response| self.respond(response));
        }
        self.causes.count(Cause::ReaderRevoked);
        let demand = Invalidate { stamp: Stamp::default(), address: page.address().0, version };
        let os = Arc::clone(self);
        self.network.start(to, demand, move |response| {
            os.report_failure(
                response
                    .map_err(OsError::from)
                    .and_then(|_| os.with_home(|home| home.handle_invalidated(page, to))),
            );
        });
        Ok(())
    }

    fn demand_return(
        self: &Arc<Self>,
        to: NodeId,
        page: PageNumber,
        version: Version,
        access: Access,
    ) -> Result<(), OsError> {
        if to == self.network.me() {
            let response = lock(&self.cache).handle_recall(page, version, access, HomeRef::ReturnHere);
            return response.map_or(Ok(()), |response| self.respond(response));
        }
        self.causes.count(Cause::WriterRecalled);
        let task = TaskId::default();
        let demand =
            PageRequest { stamp: Stamp::default(), task, address: page.address().0, access, version };
        let os = Arc::clone(self);
        self.network.start(to, demand, move |response| {
            os.report_failure(response.map_err(OsError::from).and_then(|reply| os.returned(page, to, reply)));
        });
        Ok(())
    }

    fn returned(self: &Arc<Self>, page: PageNumber, from: NodeId, reply: PageReply) -> Result<(), OsError> {
        let returned = match reply {
            PageReply::Short(_) => Returned::Gone,
            PageReply::Page(response) => {
                Returned::Contents(response.page().ok_or_else(|| self.corrupt(page, from))?)
            }
        };
        self.with_home(|home| home.handle_recalled(page, from, returned))
    }

    /// Sends the cache's response to a home.
    pub(super) fn respond(self: &Arc<Self>, response: Response<HomeRef>) -> Result<(), OsError> {
        let Response { to, page, contents } = response;
        let me = self.network.me();
        match to {
            HomeRef::DropHere => self.with_home(|home| home.handle_invalidated(page, me)),
            HomeRef::ReturnHere => {
                let returned = contents.map_or(Returned::Gone, Returned::Contents);
                self.with_home(|home| home.handle_recalled(page, me, returned))
            }
            HomeRef::DropThere(to) => {
                self.causes.count(Cause::CopyDropped);
                to.send(Invalidated { stamp: Stamp::default(), address: page.address() });
                Ok(())
            }
            HomeRef::ReturnThere(to, version) => {
                let cause = if contents.is_some() { Cause::ReturnedContents } else { Cause::ReturnedEarlier };
                self.causes.count(cause);
                to.send(page_reply(page, version, contents));
                Ok(())
            }
        }
    }

    /// Handles a page request of another node: if this node is the page's home, a request for access, otherwise a recall.
    pub(super) fn handle_page_request(
        self: &Arc<Self>,
        request: &PageRequest,
        to: ReplyTo<PageReply>,
    ) -> Result<(), OsError> {
        let address = crate::page::Address(request.address);
        let (page, access, version) = (address.page(), request.access, request.version);
        let from = to.from();
        if page.home(self.network.nodes()) == self.network.me() {
            self.check_home(page)?;
            self.with_home(|home| home.handle_request(page, from, access, version, PageClient::There(to)))
        } else {
            let wanted = HomeRef::ReturnThere(to, version);
            let response = lock(&self.cache).handle_recall(page, version, access, wanted);
            response.map_or(Ok(()), |response| self.respond(response))
        }
    }

    /// Handles the demand of another node's home to drop a copy.
    pub(super) fn handle_invalidate_request(
        self: &Arc<Self>,
        request: &Invalidate,
        to: ReplyTo<Invalidated>,
    ) -> Result<(), OsError> {
        let page = crate::page::Address(request.address).page();
        let response = lock(&self.cache).handle_invalidate(page, request.version, HomeRef::DropThere(to));
        response.map_or(Ok(()), |response| self.respond(response))
    }

    /// Handles a page that another node returns to this home.
    pub(super) fn page_returned(
        self: &Arc<Self>,
        page: PageNumber,
        version: Version,
        contents: Option<Box<Page>>,
        to: ReplyTo<FlushAck>,
    ) -> Result<(), OsError> {
        let from = to.from();
        self.with_home(|home| home.handle_returned(page, from, version, contents))?;
        self.causes.count(Cause::ReturnNoted);
        to.send(FlushAck { stamp: Stamp::default(), address: page.address() });
        Ok(())
    }

    /// Checks that this node is the page's home, and creates the entry of a page that was not used before.
    pub(super) fn check_home(&self, page: PageNumber) -> Result<(), OsError> {
        if page.home(self.network.nodes()) != self.network.me() || !Ranges::is_possible(page.address()) {
            return Err(Violation::NotHome { page }.into());
        }
        lock(&self.home).insert_if_absent(page);
        Ok(())
    }

    /// Reports the error of an operation for which no thread waits.
    pub(super) fn report_failure(&self, result: Result<(), OsError>) {
        if let Err(error) = result {
            self.fail(error);
        }
    }
}

fn page_reply(page: PageNumber, version: Version, contents: Option<Box<Page>>) -> PageReply {
    let grant = PageGrant { address: page.address(), version };
    match contents {
        Some(contents) => PageReply::Page(PageResponse::new(contents, grant)),
        None => {
            PageReply::Short(PageResponseShort { stamp: Stamp::default(), address: grant.address, version })
        }
    }
}

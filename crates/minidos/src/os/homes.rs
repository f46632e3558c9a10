//! Carrying out what this node's home decides, and what its cache answers to homes.
//!
//! A demand to another node is a call that nobody waits for: its answer comes back as an event of the home.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use pronto::NodeId;

use super::pages::Granted;
use super::{Os, OsError, lock};
use crate::account::Cause;
use crate::cache::Answer;
use crate::directory::{Returned, Violation};
use crate::home::{Deed, Home};
use crate::messages::{
    FlushAck, FutexOutcome, FutexResponse, Invalidate, Invalidated, PageGrant, PageReply, PageRequest,
    PageResponse, PageResponseShort, Stamp, TaskId,
};
use crate::network::ReplyTo;
use crate::page::{Access, Page, PageNumber, Version};
use crate::ranges::Ranges;

/// Who asked this home for a page.
#[derive(Debug)]
pub(super) enum PageClient {
    /// A task of this node.
    Here(SyncSender<Granted>),
    /// A task of another.
    There(ReplyTo<PageReply>),
}

/// Who asked this home for a futex operation.
#[derive(Debug)]
pub(super) enum FutexClient {
    /// A task of this node.
    Here(SyncSender<FutexOutcome>),
    /// A task of another.
    There(ReplyTo<FutexResponse>),
}

/// Which home wants what of this node's cache.
#[derive(Debug)]
pub(super) enum HomeRef {
    /// This node's own wants a copy dropped.
    DropHere,
    /// This node's own wants contents.
    ReturnHere,
    /// Another's wants a copy dropped.
    DropThere(ReplyTo<Invalidated>),
    /// Another's wants contents.
    ReturnThere(ReplyTo<PageReply>, Version),
}

impl Os {
    /// Tells this node's home something, and carries out what follows.
    pub(super) fn at_home(
        self: &Arc<Self>,
        event: impl FnOnce(&mut Home<PageClient, FutexClient>) -> Result<(), Violation>,
    ) -> Result<(), OsError> {
        let mut home = lock(&self.home);
        let result = event(&mut home);
        let deeds: Vec<_> = core::iter::from_fn(|| home.poll_deed()).collect();
        drop(home);
        for deed in deeds {
            self.carry_out(deed)?;
        }
        Ok(result?)
    }

    fn carry_out(self: &Arc<Self>, deed: Deed<PageClient, FutexClient>) -> Result<(), OsError> {
        match deed {
            Deed::Invalidate { to, page, version } => self.demand_drop(to, page, version),
            Deed::Recall { to, page, version, access } => self.demand_return(to, page, version, access),
            Deed::Grant { to: PageClient::Here(to), version, contents, .. } => {
                // A task that has given up waiting has reported that.
                let _ = to.send(Granted { version, contents });
                Ok(())
            }
            Deed::Grant { to: PageClient::There(to), page, version, contents } => {
                let granted = if contents.is_some() { Cause::GrantedContents } else { Cause::GrantedRight };
                self.causes.count(granted);
                to.send(page_reply(page, version, contents));
                Ok(())
            }
            Deed::Futex { to: FutexClient::Here(to), outcome, .. } => {
                // As above.
                let _ = to.send(outcome);
                Ok(())
            }
            Deed::Futex { to: FutexClient::There(to), outcome, woken } => {
                self.causes.count(Cause::FutexAnswered);
                to.send(FutexResponse { stamp: Stamp::default(), outcome, woken });
                Ok(())
            }
        }
    }

    fn demand_drop(self: &Arc<Self>, to: NodeId, page: PageNumber, version: Version) -> Result<(), OsError> {
        if to == self.network.me() {
            let answer = lock(&self.cache).handle_invalidate(page, version, HomeRef::DropHere);
            return answer.map_or(Ok(()), |answer| self.answer(answer));
        }
        self.causes.count(Cause::ReaderInTheWay);
        let demand = Invalidate { stamp: Stamp::default(), address: page.address().0, version };
        let os = Arc::clone(self);
        self.network.start(to, demand, move |answer| {
            os.concluded(
                answer
                    .map_err(OsError::from)
                    .and_then(|_| os.at_home(|home| home.handle_invalidated(page, to))),
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
            let answer = lock(&self.cache).handle_recall(page, version, access, HomeRef::ReturnHere);
            return answer.map_or(Ok(()), |answer| self.answer(answer));
        }
        self.causes.count(Cause::WriterInTheWay);
        let task = TaskId::default();
        let demand =
            PageRequest { stamp: Stamp::default(), task, address: page.address().0, access, version };
        let os = Arc::clone(self);
        self.network.start(to, demand, move |answer| {
            os.concluded(answer.map_err(OsError::from).and_then(|reply| os.returned(page, to, reply)));
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
        self.at_home(|home| home.handle_recalled(page, from, returned))
    }

    /// Sends what the cache answers to a home.
    pub(super) fn answer(self: &Arc<Self>, answer: Answer<HomeRef>) -> Result<(), OsError> {
        let Answer { to, page, contents } = answer;
        let me = self.network.me();
        match to {
            HomeRef::DropHere => self.at_home(|home| home.handle_invalidated(page, me)),
            HomeRef::ReturnHere => {
                let returned = contents.map_or(Returned::Gone, Returned::Contents);
                self.at_home(|home| home.handle_recalled(page, me, returned))
            }
            HomeRef::DropThere(to) => {
                self.causes.count(Cause::CopyDropped);
                to.send(Invalidated { stamp: Stamp::default(), address: page.address() });
                Ok(())
            }
            HomeRef::ReturnThere(to, version) => {
                let cause = if contents.is_some() { Cause::ReturnedContents } else { Cause::ReturnedBefore };
                self.causes.count(cause);
                to.send(page_reply(page, version, contents));
                Ok(())
            }
        }
    }

    /// Another node asks for a page: of its home, this node, or as its home.
    pub(super) fn page_requested(
        self: &Arc<Self>,
        request: &PageRequest,
        to: ReplyTo<PageReply>,
    ) -> Result<(), OsError> {
        let address = crate::page::Address(request.address);
        let (page, access, version) = (address.page(), request.access, request.version);
        let from = to.from();
        if page.home(self.network.nodes()) == self.network.me() {
            self.check_home(page)?;
            self.at_home(|home| home.handle_request(page, from, access, version, PageClient::There(to)))
        } else {
            let wanted = HomeRef::ReturnThere(to, version);
            let answer = lock(&self.cache).handle_recall(page, version, access, wanted);
            answer.map_or(Ok(()), |answer| self.answer(answer))
        }
    }

    /// Another node's home wants a copy dropped.
    pub(super) fn invalidation_requested(
        self: &Arc<Self>,
        request: &Invalidate,
        to: ReplyTo<Invalidated>,
    ) -> Result<(), OsError> {
        let page = crate::page::Address(request.address).page();
        let answer = lock(&self.cache).handle_invalidate(page, request.version, HomeRef::DropThere(to));
        answer.map_or(Ok(()), |answer| self.answer(answer))
    }

    /// Another node gives a page back to this home.
    pub(super) fn given_back(
        self: &Arc<Self>,
        page: PageNumber,
        version: Version,
        contents: Option<Box<Page>>,
        to: ReplyTo<FlushAck>,
    ) -> Result<(), OsError> {
        let from = to.from();
        self.at_home(|home| home.handle_given_back(page, from, version, contents))?;
        self.causes.count(Cause::NotedBack);
        to.send(FlushAck { stamp: Stamp::default(), address: page.address() });
        Ok(())
    }

    /// Sees to it that a page that nobody has touched yet has its entry here.
    pub(super) fn check_home(&self, page: PageNumber) -> Result<(), OsError> {
        if page.home(self.network.nodes()) != self.network.me() || !Ranges::is_possible(page.address()) {
            return Err(Violation::NotHome { page }.into());
        }
        lock(&self.home).insert_if_absent(page);
        Ok(())
    }

    /// The end of something that nobody waits for.
    pub(super) fn concluded(&self, result: Result<(), OsError>) {
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

//! Reading and writing shared memory: hits, faults and evictions.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use pronto::NodeId;

use super::homes::PageClient;
use super::{Os, OsError, lock};
use crate::account::Cause;
use crate::cache::{Cache, Eviction, Touch};
use crate::messages::{Flush, PageGrant, PageReply, PageRequest, Release, Stamp, TaskId};
use crate::network::PATIENCE;
use crate::page::{Access, Address, PAGE_SIZE, Page, PageNumber, Version};

/// A home's answer to a fault.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) version: Version,
    pub(super) contents: Option<Box<Page>>,
}

impl Os {
    /// Reads `bytes.len()` bytes from `address`. What lies on one page is read in one moment.
    pub(crate) fn read(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        bytes: &mut [u8],
    ) -> Result<(), OsError> {
        self.check_mapped(task, address, bytes.len(), Access::Read)?;
        let mut rest = bytes;
        let mut at = address;
        while !rest.is_empty() {
            let offset = at.offset();
            let (here, later) = rest.split_at_mut(rest.len().min(PAGE_SIZE - offset));
            self.with_page(task, at.page(), Access::Read, |cache| {
                if let Some(page) = cache.contents(at.page()) {
                    here.copy_from_slice(&page.0[offset..offset + here.len()]);
                }
            })?;
            at = at.plus(here.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Writes `bytes` to `address`. What lies on one page is written in one moment.
    pub(crate) fn write(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        bytes: &[u8],
    ) -> Result<(), OsError> {
        self.check_mapped(task, address, bytes.len(), Access::Write)?;
        let mut rest = bytes;
        let mut at = address;
        while !rest.is_empty() {
            let offset = at.offset();
            let (here, later) = rest.split_at(rest.len().min(PAGE_SIZE - offset));
            self.with_page(task, at.page(), Access::Write, |cache| {
                if let Some(page) = cache.contents_mut(at.page()) {
                    page.0[offset..offset + here.len()].copy_from_slice(here);
                }
            })?;
            at = at.plus(here.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Changes `N` bytes at `address` in one moment, all on one page; returns what was there.
    pub(crate) fn update<const N: usize>(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        change: impl FnOnce([u8; N]) -> [u8; N],
    ) -> Result<[u8; N], OsError> {
        self.check_mapped(task, address, N, Access::Write)?;
        let before = self.with_page(task, address.page(), Access::Write, |cache| {
            let page = cache.contents_mut(address.page())?;
            let bytes = page.0.get_mut(address.offset()..)?.first_chunk_mut()?;
            let before = *bytes;
            *bytes = change(before);
            Some(before)
        })?;
        before.ok_or(OsError::Misplaced { address })
    }

    /// Sends home what this node has written, because no task here will need it again.
    pub(crate) fn send_written_home(self: &Arc<Self>) -> Result<(), OsError> {
        loop {
            let eviction = lock(&self.cache).evict_written();
            match eviction {
                Some(eviction) => self.give_back(eviction)?,
                None => return Ok(()),
            }
        }
    }

    /// Uses a page when it is here with the right to, after fetching it if need be.
    fn with_page<R>(
        self: &Arc<Self>,
        task: TaskId,
        page: PageNumber,
        access: Access,
        using: impl FnOnce(&mut Cache<super::HomeRef>) -> R,
    ) -> Result<R, OsError> {
        let mut cache = lock(&self.cache);
        let held = loop {
            match cache.touch(page, access) {
                Touch::Hit => return Ok(using(&mut cache)),
                Touch::Fault { held } => break held,
                Touch::Wait => {
                    let waited = self.changed.wait_timeout(cache, PATIENCE);
                    let (guard, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                    if timeout.timed_out() {
                        return Err(OsError::PageLate { page });
                    }
                    cache = guard;
                }
            }
        };
        drop(cache);
        let granted = self.fetch(task, page, access, held)?;
        let mut cache = lock(&self.cache);
        cache.install(page, granted.version, granted.contents)?;
        let result = using(&mut cache);
        let (answer, eviction) = (cache.settle(page), cache.evict());
        drop(cache);
        self.changed.notify_all();
        if let Some(answer) = answer {
            self.answer(answer)?;
        }
        if let Some(eviction) = eviction {
            self.give_back(eviction)?;
        }
        Ok(result)
    }

    /// Asks the home, here or elsewhere.
    fn fetch(
        self: &Arc<Self>,
        task: TaskId,
        page: PageNumber,
        access: Access,
        held: Version,
    ) -> Result<Granted, OsError> {
        let me = self.network.me();
        let home = page.home(self.network.nodes());
        if home == me {
            let (to, granted) = sync_channel(1);
            self.check_home(page)?;
            self.at_home(|home| home.handle_request(page, me, access, held, PageClient::Here(to)))?;
            return granted.recv_timeout(PATIENCE).map_err(|_| OsError::PageLate { page });
        }
        self.causes.count(Cause::Faulted);
        let request =
            PageRequest { stamp: Stamp::default(), task, address: page.address().0, access, version: held };
        match self.network.call(home, request)? {
            PageReply::Short(short) => Ok(Granted { version: short.version, contents: None }),
            PageReply::Page(response) => {
                let contents = response.page().ok_or_else(|| self.corrupt(page, home))?;
                Ok(Granted { version: response.version, contents: Some(contents) })
            }
        }
    }

    /// Gives a copy back to its home, and waits until that is noted.
    fn give_back(self: &Arc<Self>, eviction: Eviction) -> Result<(), OsError> {
        let Eviction { page, version, contents } = eviction;
        let me = self.network.me();
        let home = page.home(self.network.nodes());
        let grant = PageGrant { address: page.address(), version };
        if home == me {
            self.at_home(|home| home.handle_given_back(page, me, version, contents))?;
        } else if let Some(contents) = contents {
            self.causes.count(Cause::EvictedWritten);
            self.network.call(home, Flush::new(contents, grant))?;
        } else {
            self.causes.count(Cause::EvictedRead);
            let address = grant.address;
            self.network.call(home, Release { stamp: Stamp::default(), address, version })?;
        }
        lock(&self.cache).evicted(page);
        self.changed.notify_all();
        Ok(())
    }

    /// Counts a page whose contents are not what its sum says.
    pub(super) fn corrupt(&self, page: PageNumber, from: NodeId) -> OsError {
        self.network.corrupt(from);
        OsError::Corrupt { page }
    }
}

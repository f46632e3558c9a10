//! Reading and writing shared memory: hits, faults and evictions.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use pronto::NodeId;

use super::homes::PageClient;
use super::{Os, OsError, lock};
use crate::account::Cause;
use crate::cache::{Cache, Eviction, Touch};
use crate::messages::{Flush, PageGrant, PageReply, PageRequest, Release, Stamp, TaskId};
use crate::network::RESPONSE_LIMIT;
use crate::page::{Access, Address, PAGE_SIZE, Page, PageNumber, Version};

/// A home's response to a fault.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) version: Version,
    pub(super) contents: Option<Box<Page>>,
}

impl Os {
    /// Reads `bytes.len()` bytes from `address`. Bytes on one page are read atomically.
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

    /// Writes `bytes` to `address`. Bytes on one page are written atomically.
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

    /// Changes `N` bytes at `address` atomically; all must lie on one page. Returns the earlier value.
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

    /// Returns the pages that this node has modified to their homes, because no task here will need them again.
    pub(crate) fn return_modified_pages(self: &Arc<Self>) -> Result<(), OsError> {
        loop {
            let eviction = lock(&self.cache).evict_written();
            match eviction {
                Some(eviction) => self.return_page(eviction)?,
                None => return Ok(()),
            }
        }
    }

    /// Runs `using` when the page is cached with the access right, after fetching it if necessary.
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
                    let waited = self.changed.wait_timeout(cache, RESPONSE_LIMIT);
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
        let (response, eviction) = (cache.settle(page), cache.evict());
        drop(cache);
        self.changed.notify_all();
        if let Some(response) = response {
            self.respond(response)?;
        }
        if let Some(eviction) = eviction {
            self.return_page(eviction)?;
        }
        Ok(result)
    }

    /// Requests a page from its home, on this or another node.
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
            self.with_home(|home| home.handle_request(page, me, access, held, PageClient::Here(to)))?;
            return granted.recv_timeout(RESPONSE_LIMIT).map_err(|_| OsError::PageLate { page });
        }
        self.causes.count(Cause::Faulted);
        let request =
            PageRequest { stamp: Stamp::default(), task, address: page.address().0, access, version: held };
        match self.network.call(home, request)? {
            PageReply::Short(short) => Ok(Granted { version: short.version, contents: None }),
            PageReply::Page(granted) => {
                let contents = granted.page().ok_or_else(|| self.corrupt(page, home))?;
                Ok(Granted { version: granted.version, contents: Some(contents) })
            }
        }
    }

    /// Returns a copy to its home and waits until the home has recorded that.
    fn return_page(self: &Arc<Self>, eviction: Eviction) -> Result<(), OsError> {
        let Eviction { page, version, contents } = eviction;
        let me = self.network.me();
        let home = page.home(self.network.nodes());
        let grant = PageGrant { address: page.address(), version };
        if home == me {
            self.with_home(|home| home.handle_returned(page, me, version, contents))?;
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

    /// Counts a page whose contents do not match their checksum, and returns the error.
    pub(super) fn corrupt(&self, page: PageNumber, from: NodeId) -> OsError {
        self.network.corrupt(from);
        OsError::Corrupt { page }
    }
}

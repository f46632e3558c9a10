//! The page cache of a node: copies of pages with the right to read or write them, faults, and demands from homes.
//!
//! A task calls [`Cache::touch`]. On [`Touch::Fault`] it asks the home, passes the grant to [`Cache::install`], uses the page
//! immediately, and calls [`Cache::settle`]. On [`Touch::Wait`] it tries again after the next change. Demands of homes arrive
//! through [`Cache::handle_invalidate`] and [`Cache::handle_recall`].
//!
//! A grant travels in the class bulk, a demand in the class control, so a demand may overtake the grant that it ends. The
//! cache detects this by the version and defers the demand until the grant has arrived and was used once. Every fault
//! therefore gets its access, however contended the page is.
//!
//! # Invariants
//! 1. `resident` is the number of copies.
//! 2. A demand is deferred only for a grant that this node has requested and not yet received.
//! 3. A copy that is being evicted is no longer used, but is deferred until the home has recorded its return.

use std::collections::HashMap;

use thiserror::Error;

use crate::page::{Access, Page, PageNumber, Version};

/// Result of touching a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The cache has the page with the access right. The task can use it.
    Hit,
    /// The task must ask the home, and report that the cache still has the contents of this grant.
    Fault {
        /// The grant whose contents are cached; [`Version::NONE`] if there are no contents.
        held: Version,
    },
    /// Another task has asked, or the page is being evicted. The task tries again after the next change.
    Wait,
}

/// Demand of a home concerning a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// Drop the copy.
    Drop,
    /// Return the contents. Keep the right to read if another node is about to read, no right if it is about to write.
    Return { access: Access },
}

/// Response to a demand.
#[derive(Debug, PartialEq, Eq)]
pub struct Response<T> {
    /// Handle of the home that made the demand.
    pub to: T,
    /// The page.
    pub page: PageNumber,
    /// The contents, if the home asked for them and the cache has them.
    pub contents: Option<Box<Page>>,
}

/// A copy to return to its home.
#[derive(Debug)]
pub struct Eviction {
    /// The page.
    pub page: PageNumber,
    /// The grant that ends.
    pub version: Version,
    /// The contents, if this node had the right to write.
    pub contents: Option<Box<Page>>,
}

/// Protocol violation by a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unexpected {
    /// A grant that no task requested.
    #[error("page {page} was granted, but no task requested it", page = page.0)]
    Grant {
        /// The page.
        page: PageNumber,
    },
    /// A grant without contents for a page that is not cached.
    #[error("page {page} was granted without contents, but is not cached", page = page.0)]
    Contents {
        /// The page.
        page: PageNumber,
    },
}

/// The cache of one node. `T` is the handle for responses to a home.
#[derive(Debug)]
pub struct Cache<T> {
    entries: HashMap<PageNumber, Entry<T>>,
    frames: usize,
    resident: usize,
    now: u64,
}

/// State of a page. It outlives the copy because of `seen`.
#[derive(Debug)]
struct Entry<T> {
    seen: Version,
    copy: Option<Copy>,
    fault: Option<Access>,
    deferred: Option<Deferred<T>>,
}

#[derive(Debug)]
struct Copy {
    contents: Box<Page>,
    access: Access,
    version: Version,
    evicting: bool,
    used: u64,
}

/// A demand that arrived before its grant.
#[derive(Debug)]
struct Deferred<T> {
    version: Version,
    demand: Demand,
    to: T,
}

impl<T> Cache<T> {
    /// Creates a cache of `frames` frames. Only copies that are being evicted may exceed this limit.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { entries: HashMap::new(), frames: frames.max(1), resident: 0, now: 0 }
    }

    /// Returns the number of frames, used or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Checks whether a task may use `page` now, and registers a fault if it has to ask the home.
    pub fn touch(&mut self, page: PageNumber, access: Access) -> Touch {
        self.now += 1;
        let now = self.now;
        let entry = self.entry(page);
        if let Some(copy) = &mut entry.copy {
            if copy.evicting {
                return Touch::Wait;
            }
            if copy.access >= access {
                copy.used = now;
                return Touch::Hit;
            }
        }
        if entry.fault.is_some() {
            return Touch::Wait;
        }
        entry.fault = Some(access);
        Touch::Fault { held: entry.copy.as_ref().map_or(Version::NONE, |copy| copy.version) }
    }

    /// Returns the contents of a cached copy, after [`Touch::Hit`] or [`Cache::install`].
    #[must_use]
    pub fn contents(&self, page: PageNumber) -> Option<&Page> {
        Some(&self.entries.get(&page)?.copy.as_ref()?.contents)
    }

    /// Returns the contents of a copy that this node may write.
    #[must_use]
    pub fn contents_mut(&mut self, page: PageNumber) -> Option<&mut Page> {
        let copy = self.entries.get_mut(&page)?.copy.as_mut()?;
        (copy.access == Access::Write).then_some(&mut *copy.contents)
    }

    /// Stores what the home granted. The task uses it before any other operation on the cache, then calls [`settle`].
    ///
    /// [`settle`]: Cache::settle
    ///
    /// # Errors
    /// [`Unexpected`] if the grant does not belong to a fault.
    pub fn install(
        &mut self,
        page: PageNumber,
        version: Version,
        contents: Option<Box<Page>>,
    ) -> Result<(), Unexpected> {
        self.now += 1;
        let now = self.now;
        let entry = self.entry(page);
        let access = entry.fault.take().ok_or(Unexpected::Grant { page })?;
        let before = entry.copy.take();
        let was_here = before.is_some();
        let contents = contents.or_else(|| before.map(|copy| copy.contents));
        entry.seen = version;
        entry.copy = contents.map(|contents| Copy { contents, access, version, evicting: false, used: now });
        let is_here = entry.copy.is_some();
        self.resident = self.resident + usize::from(is_here) - usize::from(was_here);
        if is_here { Ok(()) } else { Err(Unexpected::Contents { page }) }
    }

    /// Reports that the page was used. Returns the response to a demand that waited for that.
    pub fn settle(&mut self, page: PageNumber) -> Option<Response<T>> {
        let entry = self.entries.get_mut(&page)?;
        let deferred = entry.deferred.take_if(|deferred| deferred.version <= entry.seen)?;
        Some(self.execute(page, deferred))
    }

    /// Handles a home's demand to drop the copy granted as `version`. Returns the response now, or later from
    /// [`Cache::settle`].
    pub fn handle_invalidate(&mut self, page: PageNumber, version: Version, to: T) -> Option<Response<T>> {
        self.demand(page, Deferred { version, demand: Demand::Drop, to })
    }

    /// Handles a home's demand to return the contents granted as `version`, because another node is about to `access` them.
    /// Returns the response now, or later from [`Cache::settle`].
    pub fn handle_recall(
        &mut self,
        page: PageNumber,
        version: Version,
        access: Access,
        to: T,
    ) -> Option<Response<T>> {
        self.demand(page, Deferred { version, demand: Demand::Return { access }, to })
    }

    /// Starts the eviction of the least recently used copy if there are more copies than frames.
    pub fn evict(&mut self) -> Option<Eviction> {
        if self.resident <= self.frames { None } else { self.evict_oldest(|_| true) }
    }

    /// Starts the eviction of a copy that this node may write, because no task here needs any copy again.
    pub fn evict_written(&mut self) -> Option<Eviction> {
        self.evict_oldest(|copy| copy.access == Access::Write)
    }

    /// Removes a copy after the home has recorded its return.
    pub fn evicted(&mut self, page: PageNumber) {
        if let Some(entry) = self.entries.get_mut(&page)
            && entry.copy.take_if(|copy| copy.evicting).is_some()
        {
            self.resident -= 1;
        }
    }

    fn entry(&mut self, page: PageNumber) -> &mut Entry<T> {
        let empty = || Entry { seen: Version::NONE, copy: None, fault: None, deferred: None };
        self.entries.entry(page).or_insert_with(empty)
    }

    fn demand(&mut self, page: PageNumber, deferred: Deferred<T>) -> Option<Response<T>> {
        let entry = self.entry(page);
        if deferred.version > entry.seen && entry.fault.is_some() && entry.deferred.is_none() {
            entry.deferred = Some(deferred);
            return None;
        }
        Some(self.execute(page, deferred))
    }

    fn execute(&mut self, page: PageNumber, deferred: Deferred<T>) -> Response<T> {
        let Deferred { version, demand, to } = deferred;
        let entry = self.entry(page);
        let Some(copy) = entry.copy.as_mut().filter(|copy| copy.version == version) else {
            return Response { to, page, contents: None };
        };
        let (contents, stays) = match demand {
            Demand::Drop => (None, false),
            Demand::Return { access } => (Some(copy.contents.clone()), access == Access::Read),
        };
        copy.access = Access::Read;
        // A copy that is being evicted stays until the home has recorded its return, whatever is demanded meanwhile.
        if !stays && !copy.evicting {
            entry.copy = None;
            self.resident -= 1;
        }
        Response { to, page, contents }
    }

    fn evict_oldest(&mut self, may_go: impl Fn(&Copy) -> bool) -> Option<Eviction> {
        let idle = |entry: &Entry<T>| entry.fault.is_none() && entry.deferred.is_none();
        let candidates = self.entries.iter_mut().filter(|(_, entry)| idle(entry));
        let copies = candidates.filter_map(|(page, entry)| Some((*page, entry.copy.as_mut()?)));
        let (page, copy) =
            copies.filter(|(_, copy)| !copy.evicting && may_go(copy)).min_by_key(|(_, copy)| copy.used)?;
        copy.evicting = true;
        let contents = (copy.access == Access::Write).then(|| copy.contents.clone());
        Some(Eviction { page, version: copy.version, contents })
    }
}

#[cfg(test)]
mod tests;

//! The page cache of a node: copies of pages with the right to read or write them, faults, and demands from homes.
//!
//! Use by a task: [`Cache::touch`]; on [`Touch::Fault`] ask the home, [`Cache::install`] what it answers, use the page at
//! once, then [`Cache::settle`]; on [`Touch::Wait`] try again after the next change. Demands of homes come in by
//! [`Cache::handle_invalidate`] and [`Cache::handle_recall`].
//!
//! A grant travels as bulk, a demand as control, so a demand may overtake the grant that it ends. The cache tells by the
//! version and keeps the demand until the grant is there and was used once. So every fault gets its access, however
//! contended the page.
//!
//! # Invariants
//! 1. `resident` counts the copies.
//! 2. A demand is kept only for a grant that this node has asked for and not seen.
//! 3. A copy that is being given back is not used any more, but kept until the home has noted it.

use std::collections::HashMap;

use thiserror::Error;

use crate::page::{Access, Page, PageNumber, Version};

/// What touching a page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The copy is here, with the right: use it.
    Hit,
    /// Ask the home, and say that the contents of this grant are here.
    Fault {
        /// The grant; [`Version::NONE`] if there are no contents.
        held: Version,
    },
    /// Another task has asked, or the page is being given back: try again after the next change.
    Wait,
}

/// What a home wants to have done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// Drop it.
    Drop,
    /// Give the contents, and keep at most the right to read if somebody else reads, nothing if somebody writes.
    Return { access: Access },
}

/// The answer to a demand.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// Who asked.
    pub to: T,
    /// The page.
    pub page: PageNumber,
    /// The contents, if they were asked for and are here.
    pub contents: Option<Box<Page>>,
}

/// A copy that is to be given back.
#[derive(Debug)]
pub struct Eviction {
    /// The page.
    pub page: PageNumber,
    /// The grant that ends.
    pub version: Version,
    /// The contents, if this node had the right to write.
    pub contents: Option<Box<Page>>,
}

/// A home said something that does not follow from what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unexpected {
    /// A grant that was not asked for.
    #[error("page {page} was granted, but nobody asked for it", page = page.0)]
    Grant {
        /// The page.
        page: PageNumber,
    },
    /// A right without contents, where there are none.
    #[error("page {page} was granted without the contents, which are not here", page = page.0)]
    Contents {
        /// The page.
        page: PageNumber,
    },
}

/// The cache of one node. `T` is the handle by which a home is answered.
#[derive(Debug)]
pub struct Cache<T> {
    entries: HashMap<PageNumber, Entry<T>>,
    frames: usize,
    resident: usize,
    now: u64,
}

/// What is known of a page; kept when the copy is gone, because of `seen`.
#[derive(Debug)]
struct Entry<T> {
    seen: Version,
    copy: Option<Copy>,
    fault: Option<Access>,
    kept: Option<Kept<T>>,
}

#[derive(Debug)]
struct Copy {
    contents: Box<Page>,
    access: Access,
    version: Version,
    leaving: bool,
    used: u64,
}

/// A demand that was faster than its grant.
#[derive(Debug)]
struct Kept<T> {
    version: Version,
    demand: Demand,
    to: T,
}

impl<T> Cache<T> {
    /// A cache of so many frames. It is exceeded only by copies that are just being given back.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { entries: HashMap::new(), frames: frames.max(1), resident: 0, now: 0 }
    }

    /// Frames, used or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// A task is about to use `page`.
    pub fn touch(&mut self, page: PageNumber, access: Access) -> Touch {
        self.now += 1;
        let now = self.now;
        let entry = self.entry(page);
        if let Some(copy) = &mut entry.copy {
            if copy.leaving {
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

    /// The contents of a copy that is here; after [`Touch::Hit`] or [`Cache::install`].
    #[must_use]
    pub fn contents(&self, page: PageNumber) -> Option<&Page> {
        Some(&self.entries.get(&page)?.copy.as_ref()?.contents)
    }

    /// The contents of a copy that this node may write.
    #[must_use]
    pub fn contents_mut(&mut self, page: PageNumber) -> Option<&mut Page> {
        let copy = self.entries.get_mut(&page)?.copy.as_mut()?;
        (copy.access == Access::Write).then_some(&mut *copy.contents)
    }

    /// The home grants what was asked for. Use it before anything else is done with the cache, then [`settle`].
    ///
    /// [`settle`]: Cache::settle
    ///
    /// # Errors
    /// [`Unexpected`] if it does not answer a fault.
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
        entry.copy = contents.map(|contents| Copy { contents, access, version, leaving: false, used: now });
        let is_here = entry.copy.is_some();
        self.resident = self.resident + usize::from(is_here) - usize::from(was_here);
        if is_here { Ok(()) } else { Err(Unexpected::Contents { page }) }
    }

    /// The page was used; answers the demand that waited for that.
    pub fn settle(&mut self, page: PageNumber) -> Option<Answer<T>> {
        let entry = self.entries.get_mut(&page)?;
        let kept = entry.kept.take_if(|kept| kept.version <= entry.seen)?;
        Some(self.obey(page, kept))
    }

    /// A home wants the copy dropped that it granted as `version`. The answer comes now, or from [`Cache::settle`].
    pub fn handle_invalidate(&mut self, page: PageNumber, version: Version, to: T) -> Option<Answer<T>> {
        self.demand(page, Kept { version, demand: Demand::Drop, to })
    }

    /// A home wants the contents back that it granted as `version`, because somebody else is about to `access` them.
    /// The answer comes now, or from [`Cache::settle`].
    pub fn handle_recall(
        &mut self,
        page: PageNumber,
        version: Version,
        access: Access,
        to: T,
    ) -> Option<Answer<T>> {
        self.demand(page, Kept { version, demand: Demand::Return { access }, to })
    }

    /// The copy that has to go, if there are more than frames: the one that was used longest ago.
    pub fn evict(&mut self) -> Option<Eviction> {
        if self.resident <= self.frames { None } else { self.give_back_oldest(|_| true) }
    }

    /// The next copy that this node may write, to be given back because nobody here needs any copy again.
    pub fn evict_written(&mut self) -> Option<Eviction> {
        self.give_back_oldest(|copy| copy.access == Access::Write)
    }

    /// The home has noted that the copy is given back.
    pub fn evicted(&mut self, page: PageNumber) {
        if let Some(entry) = self.entries.get_mut(&page)
            && entry.copy.take_if(|copy| copy.leaving).is_some()
        {
            self.resident -= 1;
        }
    }

    fn entry(&mut self, page: PageNumber) -> &mut Entry<T> {
        let empty = || Entry { seen: Version::NONE, copy: None, fault: None, kept: None };
        self.entries.entry(page).or_insert_with(empty)
    }

    fn demand(&mut self, page: PageNumber, kept: Kept<T>) -> Option<Answer<T>> {
        let entry = self.entry(page);
        if kept.version > entry.seen && entry.fault.is_some() && entry.kept.is_none() {
            entry.kept = Some(kept);
            return None;
        }
        Some(self.obey(page, kept))
    }

    fn obey(&mut self, page: PageNumber, kept: Kept<T>) -> Answer<T> {
        let Kept { version, demand, to } = kept;
        let entry = self.entry(page);
        let Some(copy) = entry.copy.as_mut().filter(|copy| copy.version == version) else {
            return Answer { to, page, contents: None };
        };
        let (contents, stays) = match demand {
            Demand::Drop => (None, false),
            Demand::Return { access } => (Some(copy.contents.clone()), access == Access::Read),
        };
        copy.access = Access::Read;
        // One that is being given back stays until the home has noted that, whatever is demanded meanwhile.
        if !stays && !copy.leaving {
            entry.copy = None;
            self.resident -= 1;
        }
        Answer { to, page, contents }
    }

    fn give_back_oldest(&mut self, may_go: impl Fn(&Copy) -> bool) -> Option<Eviction> {
        let idle = |entry: &Entry<T>| entry.fault.is_none() && entry.kept.is_none();
        let candidates = self.entries.iter_mut().filter(|(_, entry)| idle(entry));
        let copies = candidates.filter_map(|(page, entry)| Some((*page, entry.copy.as_mut()?)));
        let (page, copy) =
            copies.filter(|(_, copy)| !copy.leaving && may_go(copy)).min_by_key(|(_, copy)| copy.used)?;
        copy.leaving = true;
        let contents = (copy.access == Access::Write).then(|| copy.contents.clone());
        Some(Eviction { page, version: copy.version, contents })
    }
}

#[cfg(test)]
mod tests;

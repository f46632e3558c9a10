//! The directory of a home node: who holds which of its pages, and who waits for them.
//!
//! Many nodes may hold a page to read it, or one to write it. A request that the holders stand in the way of turns into
//! demands to them, and is granted when the last has answered; until then the page is busy and later requests wait in a
//! queue *here*, not in a handler. So a home needs no thread per contended page, and cannot run out of them.
//!
//! Use: `handle_*` takes a message in; then take out actions with [`Directory::poll_action`] until there is none.
//!
//! # Invariants
//! 1. A page has one writer and no readers, or any number of readers and no writer (counting a grant from the moment it
//!    is handed out, and a holder until it has answered the demand or given the page back).
//! 2. The contents kept here are the page's last ones unless somebody holds it to write.
//! 3. A page that is busy has demands outstanding; a page that is not has nobody in its queue.
//! 4. Grants of one page carry rising versions.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use pronto::NodeId;
use thiserror::Error;

use crate::page::{Access, Page, PageNumber, Version};
use entry::Entry;

/// What the directory wants done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Tell a reader to drop its copy; answer with [`Directory::handle_invalidated`].
    Invalidate {
        /// The reader.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
    },
    /// Ask the writer for the contents; answer with [`Directory::handle_recalled`].
    Recall {
        /// The writer.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
        /// What somebody else is about to do. If it is to read, the writer may go on reading.
        access: Access,
    },
    /// Hand out a page.
    Grant {
        /// Who asked.
        to: T,
        /// The page.
        page: PageNumber,
        /// The number of this grant.
        version: Version,
        /// The contents; `None` if who asked has them.
        contents: Option<Box<Page>>,
    },
    /// Tell the value of a word. It is so at this moment: nobody can have written since, until the next `handle_*`.
    Word {
        /// Who asked.
        to: T,
        /// The word; `None` if none lies at that offset.
        word: Option<u32>,
    },
}

/// What somebody asks of a page.
#[derive(Debug)]
enum Want<T> {
    /// A right for itself.
    Page { from: NodeId, access: Access, held: Version, to: T },
    /// To look at a word where it lies.
    Word { offset: usize, to: T },
}

/// What a writer answers to a demand for its page.
#[derive(Debug)]
pub enum Returned {
    /// The contents.
    Contents(Box<Page>),
    /// It has given the page back already.
    Gone,
}

/// A peer said something that does not follow from what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// An answer to a demand that was not made.
    #[error("node {from} answers for page {page}, which was not asked of it", page = page.0)]
    NotAsked {
        /// Who answered.
        from: NodeId,
        /// The page.
        page: PageNumber,
    },
    /// A page whose home is elsewhere, or nowhere.
    #[error("page {page} has no directory entry here", page = page.0)]
    NotHome {
        /// The page.
        page: PageNumber,
    },
}

/// The directory of one home. `T` is the handle by which whoever asked is answered.
#[derive(Debug)]
pub struct Directory<T> {
    entries: HashMap<PageNumber, Entry<T>>,
    actions: VecDeque<Action<T>>,
}

impl<T> Default for Directory<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), actions: VecDeque::new() }
    }
}

impl<T> Directory<T> {
    /// Takes a page in, of which this node is the home. Nobody holds it yet.
    pub fn insert(&mut self, page: PageNumber, contents: Box<Page>) {
        self.entries.insert(page, Entry::new(contents));
    }

    /// Takes a page of zeroes in, if it is not here yet.
    pub fn insert_if_absent(&mut self, page: PageNumber) {
        self.entries.entry(page).or_insert_with(|| Entry::new(Page::zeroed()));
    }

    /// A node asks for `page`, whose contents it still has from the grant `held`.
    ///
    /// # Errors
    /// [`Violation::NotHome`] gives `to` back.
    pub fn handle_request(
        &mut self,
        page: PageNumber,
        from: NodeId,
        access: Access,
        held: Version,
        to: T,
    ) -> Result<(), (Violation, T)> {
        self.want(page, Want::Page { from, access, held, to })
    }

    /// Somebody asks for the word at `offset` of `page`, as the last writer left it.
    ///
    /// # Errors
    /// [`Violation::NotHome`] gives `to` back.
    pub fn handle_look(&mut self, page: PageNumber, offset: usize, to: T) -> Result<(), (Violation, T)> {
        self.want(page, Want::Word { offset, to })
    }

    /// A reader has dropped its copy.
    ///
    /// # Errors
    /// [`Violation`] if it was not asked to.
    pub fn handle_invalidated(&mut self, page: PageNumber, from: NodeId) -> Result<(), Violation> {
        let (entry, actions) = self.parts(page)?;
        entry.invalidated(from).then_some(()).ok_or(Violation::NotAsked { from, page })?;
        entry.advance(page, actions);
        Ok(())
    }

    /// The writer has answered a recall.
    ///
    /// # Errors
    /// [`Violation`] if it was not asked to, or says that it gave back what never came.
    pub fn handle_recalled(
        &mut self,
        page: PageNumber,
        from: NodeId,
        returned: Returned,
    ) -> Result<(), Violation> {
        let (entry, actions) = self.parts(page)?;
        entry.recalled(from, returned).then_some(()).ok_or(Violation::NotAsked { from, page })?;
        entry.advance(page, actions);
        Ok(())
    }

    /// A reader no longer keeps its copy. What is not known any more is ignored: an invalidation was faster.
    ///
    /// # Errors
    /// [`Violation::NotHome`].
    pub fn handle_released(
        &mut self,
        page: PageNumber,
        from: NodeId,
        version: Version,
    ) -> Result<(), Violation> {
        self.parts(page)?.0.released(from, version);
        Ok(())
    }

    /// The writer no longer keeps the page. What is not known any more is ignored: a recall was faster.
    ///
    /// # Errors
    /// [`Violation::NotHome`].
    pub fn handle_flushed(
        &mut self,
        page: PageNumber,
        from: NodeId,
        version: Version,
        contents: Box<Page>,
    ) -> Result<(), Violation> {
        self.parts(page)?.0.flushed(from, version, contents);
        Ok(())
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action<T>> {
        self.actions.pop_front()
    }

    fn want(&mut self, page: PageNumber, want: Want<T>) -> Result<(), (Violation, T)> {
        let Some(entry) = self.entries.get_mut(&page) else {
            let (Want::Page { to, .. } | Want::Word { to, .. }) = want;
            return Err((Violation::NotHome { page }, to));
        };
        entry.push(want);
        entry.advance(page, &mut self.actions);
        Ok(())
    }

    fn parts(&mut self, page: PageNumber) -> Result<(&mut Entry<T>, &mut VecDeque<Action<T>>), Violation> {
        let entry = self.entries.get_mut(&page).ok_or(Violation::NotHome { page })?;
        Ok((entry, &mut self.actions))
    }
}

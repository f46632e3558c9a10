//! The directory of a home node: the holders of each of its pages, and the queue of requests.
//!
//! Many nodes may hold a page to read it, or one node to write it. If holders conflict with a request, the directory sends
//! them demands, and grants the request when the last holder has responded. Until then the page is busy, and later requests
//! wait in a queue *here*, not in a handler. A home therefore needs no thread per contended page and cannot run out of them.
//!
//! Pass a message to `handle_*`, then take actions from [`Directory::poll_action`] until it returns `None`.
//!
//! # Invariants
//! 1. A page has one writer and no readers, or any number of readers and no writer. A grant counts from the moment it is
//!    handed out. A holder counts until it has responded to the demand or returned the page.
//! 2. The contents stored here are current unless a node holds the page to write.
//! 3. A busy page has outstanding demands. A page that is not busy has an empty queue.
//! 4. Grants of one page carry ascending versions.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use pronto::NodeId;
use thiserror::Error;

use crate::page::{Access, Page, PageNumber, Version};
use entry::Entry;

/// An action that the directory requests.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Ask a reader to drop its copy. Pass its response to [`Directory::handle_invalidated`].
    Invalidate {
        /// The reader.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
    },
    /// Ask the writer for the contents. Pass its response to [`Directory::handle_recalled`].
    Recall {
        /// The writer.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
        /// The access that another node is about to get. If it is `Read`, the writer may keep reading.
        access: Access,
    },
    /// Grant a page.
    Grant {
        /// Handle of the requester.
        to: T,
        /// The page.
        page: PageNumber,
        /// The number of this grant.
        version: Version,
        /// The contents; `None` if the requester has them.
        contents: Option<Box<Page>>,
    },
    /// Report the value of a word. The value is current until the next `handle_*`: no node can write the page before.
    Word {
        /// Handle of the requester.
        to: T,
        /// The word; `None` if none lies at that offset.
        word: Option<u32>,
    },
}

/// A request for a page.
#[derive(Debug)]
enum Request<T> {
    /// A node requests an access right.
    Page { from: NodeId, access: Access, held: Version, to: T },
    /// Reads a word at the home.
    Word { offset: usize, to: T },
}

/// Response of a writer to a recall of its page.
#[derive(Debug)]
pub enum Returned {
    /// The contents.
    Contents(Box<Page>),
    /// The writer has already returned the page.
    Gone,
}

/// Protocol violation by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A response to a demand that was not made.
    #[error("node {from} sent an unsolicited response for page {page}", page = page.0)]
    Unsolicited {
        /// Sender of the response.
        from: NodeId,
        /// The page.
        page: PageNumber,
    },
    /// A page that is not in this directory.
    #[error("page {page} has no directory entry here", page = page.0)]
    NotHome {
        /// The page.
        page: PageNumber,
    },
}

/// The directory of one home. `T` is the handle for the response to a requester.
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
    /// Adds a page whose home is this node. It has no holders yet.
    pub fn insert(&mut self, page: PageNumber, contents: Box<Page>) {
        self.entries.insert(page, Entry::new(contents));
    }

    /// Adds a page of zeroes if the page does not exist yet.
    pub fn insert_if_absent(&mut self, page: PageNumber) {
        self.entries.entry(page).or_insert_with(|| Entry::new(Page::zeroed()));
    }

    /// Handles a node's request for `page`. The node still has the contents of the grant `held`.
    ///
    /// # Errors
    /// [`Violation::NotHome`] returns `to`.
    pub fn handle_request(
        &mut self,
        page: PageNumber,
        from: NodeId,
        access: Access,
        held: Version,
        to: T,
    ) -> Result<(), (Violation, T)> {
        self.enqueue(page, Request::Page { from, access, held, to })
    }

    /// Requests the word at `offset` of `page`, as the last writer left it.
    ///
    /// # Errors
    /// [`Violation::NotHome`] returns `to`.
    pub fn handle_read_word(&mut self, page: PageNumber, offset: usize, to: T) -> Result<(), (Violation, T)> {
        self.enqueue(page, Request::Word { offset, to })
    }

    /// Handles a reader's report that it has dropped its copy.
    ///
    /// # Errors
    /// [`Violation`] if the reader was not asked to.
    pub fn handle_invalidated(&mut self, page: PageNumber, from: NodeId) -> Result<(), Violation> {
        let (entry, actions) = self.parts(page)?;
        entry.invalidated(from).then_some(()).ok_or(Violation::Unsolicited { from, page })?;
        entry.advance(page, actions);
        Ok(())
    }

    /// Handles the writer's response to a recall.
    ///
    /// # Errors
    /// [`Violation`] if the writer was not asked, or claims to have returned a page that never arrived.
    pub fn handle_recalled(
        &mut self,
        page: PageNumber,
        from: NodeId,
        returned: Returned,
    ) -> Result<(), Violation> {
        let (entry, actions) = self.parts(page)?;
        entry.recalled(from, returned).then_some(()).ok_or(Violation::Unsolicited { from, page })?;
        entry.advance(page, actions);
        Ok(())
    }

    /// Handles a reader's report that it has evicted its copy. An unknown copy is ignored: an invalidation was faster.
    ///
    /// # Errors
    /// [`Violation::NotHome`] if the page is not in this directory.
    pub fn handle_released(
        &mut self,
        page: PageNumber,
        from: NodeId,
        version: Version,
    ) -> Result<(), Violation> {
        self.parts(page)?.0.released(from, version);
        Ok(())
    }

    /// Handles a page that its writer has evicted. An unknown grant is ignored: a recall was faster.
    ///
    /// # Errors
    /// [`Violation::NotHome`] if the page is not in this directory.
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

    /// Returns the next action to execute.
    pub fn poll_action(&mut self) -> Option<Action<T>> {
        self.actions.pop_front()
    }

    fn enqueue(&mut self, page: PageNumber, request: Request<T>) -> Result<(), (Violation, T)> {
        let Some(entry) = self.entries.get_mut(&page) else {
            let (Request::Page { to, .. } | Request::Word { to, .. }) = request;
            return Err((Violation::NotHome { page }, to));
        };
        entry.push(request);
        entry.advance(page, &mut self.actions);
        Ok(())
    }

    fn parts(&mut self, page: PageNumber) -> Result<(&mut Entry<T>, &mut VecDeque<Action<T>>), Violation> {
        let entry = self.entries.get_mut(&page).ok_or(Violation::NotHome { page })?;
        Ok((entry, &mut self.actions))
    }
}

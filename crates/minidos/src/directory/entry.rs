//! One page in its home's directory: its holders, its current activity, and the queue of requests.

use std::collections::VecDeque;

use pronto::NodeId;

use super::{Action, Request, Returned};
use crate::page::{Access, Page, PageNumber, Version};

/// State of a page at its home.
#[derive(Debug)]
pub(super) struct Entry<T> {
    contents: Box<Page>,
    granted: Version,
    holders: Holders,
    activity: Activity<T>,
    queue: VecDeque<Request<T>>,
}

/// Nodes that have the page, with the number of the grant.
#[derive(Debug)]
enum Holders {
    /// Any number of readers, with the contents that the entry stores.
    Readers(Vec<(NodeId, Version)>),
    /// One writer. The contents in the entry may be outdated.
    Writer(NodeId, Version),
}

/// Current activity of a page.
#[derive(Debug)]
enum Activity<T> {
    Idle,
    /// Readers in `left` must drop their copies before the request is served.
    Invalidating {
        left: Vec<NodeId>,
        request: Request<T>,
    },
    /// The writer must return the contents before the request is served.
    Recalling {
        from: NodeId,
        access: Access,
        flushed: bool,
        request: Request<T>,
    },
}

impl<T> Entry<T> {
    pub(super) fn new(contents: Box<Page>) -> Self {
        Self {
            contents,
            granted: Version::NONE,
            holders: Holders::Readers(Vec::new()),
            activity: Activity::Idle,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, request: Request<T>) {
        self.queue.push_back(request);
    }

    /// Serves the queue until it is empty or the page is busy.
    pub(super) fn advance(&mut self, page: PageNumber, actions: &mut VecDeque<Action<T>>) {
        while matches!(self.activity, Activity::Idle) {
            let Some(request) = self.queue.pop_front() else { return };
            self.serve(page, request, actions);
        }
    }

    /// Grants a request, or demands that conflicting holders give the page up.
    fn serve(&mut self, page: PageNumber, request: Request<T>, actions: &mut VecDeque<Action<T>>) {
        let access = match &request {
            Request::Page { access, .. } => *access,
            Request::Word { .. } => Access::Read,
        };
        match &self.holders {
            Holders::Writer(writer, version) => {
                let (to, version) = (*writer, *version);
                actions.push_back(Action::Recall { to, page, version, access });
                self.activity = Activity::Recalling { from: to, access, flushed: false, request };
            }
            Holders::Readers(readers) => {
                let conflicts = |reader: NodeId| match &request {
                    Request::Page { from, access: Access::Write, .. } => reader != *from,
                    Request::Page { access: Access::Read, .. } | Request::Word { .. } => false,
                };
                let mut left = Vec::new();
                for &(to, version) in readers.iter().filter(|(reader, _)| conflicts(*reader)) {
                    actions.push_back(Action::Invalidate { to, page, version });
                    left.push(to);
                }
                if left.is_empty() {
                    self.grant(page, request, actions);
                } else {
                    self.activity = Activity::Invalidating { left, request };
                }
            }
        }
    }

    /// Grants a request that conflicts with no holder.
    fn grant(&mut self, page: PageNumber, request: Request<T>, actions: &mut VecDeque<Action<T>>) {
        let Holders::Readers(readers) = &mut self.holders else {
            unreachable!("a writer is recalled before anything is granted");
        };
        match request {
            Request::Word { offset, to } => {
                actions.push_back(Action::Word { to, word: self.contents.word(offset) });
            }
            Request::Page { from, access, held, to } => {
                self.granted = self.granted.next();
                let version = self.granted;
                let has_contents = readers.contains(&(from, held));
                readers.retain(|(reader, _)| *reader != from);
                match access {
                    Access::Read => readers.push((from, version)),
                    Access::Write => self.holders = Holders::Writer(from, version),
                }
                let contents = (!has_contents).then(|| self.contents.clone());
                actions.push_back(Action::Grant { to, page, version, contents });
            }
        }
    }

    /// Handles a reader's response; returns `false` if none was expected.
    pub(super) fn invalidated(&mut self, from: NodeId) -> bool {
        let Activity::Invalidating { left, .. } = &mut self.activity else { return false };
        let Some(index) = left.iter().position(|reader| *reader == from) else { return false };
        left.swap_remove(index);
        let all = left.is_empty();
        if let Holders::Readers(readers) = &mut self.holders {
            readers.retain(|(reader, _)| *reader != from);
        }
        if all {
            self.resume();
        }
        true
    }

    /// Handles the writer's response; returns `false` if none was expected.
    pub(super) fn recalled(&mut self, from: NodeId, returned: Returned) -> bool {
        let Activity::Recalling { from: asked, access, flushed, .. } = &self.activity else { return false };
        let lost = matches!(returned, Returned::Gone) && !*flushed;
        if *asked != from || lost {
            return false;
        }
        let keeps = *access == Access::Read && !*flushed && matches!(returned, Returned::Contents(_));
        let version = match self.holders {
            Holders::Writer(_, version) => version,
            Holders::Readers(_) => {
                unreachable!("the page keeps its writer until the recall is completed")
            }
        };
        if let Returned::Contents(contents) = returned {
            self.contents = contents;
        }
        self.holders = Holders::Readers(if keeps { vec![(from, version)] } else { Vec::new() });
        self.resume();
        true
    }

    /// Ends the activity and puts its request back at the head of the queue.
    fn resume(&mut self) {
        match core::mem::replace(&mut self.activity, Activity::Idle) {
            Activity::Idle => {}
            Activity::Invalidating { request, .. } | Activity::Recalling { request, .. } => {
                self.queue.push_front(request);
            }
        }
    }

    pub(super) fn released(&mut self, from: NodeId, version: Version) {
        if let Holders::Readers(readers) = &mut self.holders {
            readers.retain(|reader| *reader != (from, version));
        }
    }

    pub(super) fn flushed(&mut self, from: NodeId, version: Version, contents: Box<Page>) {
        match &mut self.holders {
            Holders::Writer(writer, granted) if (*writer, *granted) == (from, version) => {
                self.contents = contents;
                match &mut self.activity {
                    // The recall is in flight to the writer, which responds in any case.
                    Activity::Recalling { flushed, .. } => *flushed = true,
                    Activity::Idle | Activity::Invalidating { .. } => {
                        self.holders = Holders::Readers(Vec::new())
                    }
                }
            }
            Holders::Writer(..) => {}
            // A recall let the writer keep reading, and brought the same contents.
            Holders::Readers(readers) => readers.retain(|reader| *reader != (from, version)),
        }
    }
}

#[cfg(test)]
impl<T> Entry<T> {
    /// Returns the writer, if there is one.
    pub(super) fn writer(&self) -> Option<NodeId> {
        match &self.holders {
            Holders::Writer(writer, _) => Some(*writer),
            Holders::Readers(_) => None,
        }
    }

    /// Returns the readers in ascending order.
    pub(super) fn readers(&self) -> Vec<NodeId> {
        let mut readers: Vec<NodeId> = match &self.holders {
            Holders::Writer(..) => Vec::new(),
            Holders::Readers(readers) => readers.iter().map(|(reader, _)| *reader).collect(),
        };
        readers.sort_unstable();
        readers
    }

    /// Returns whether the third invariant of the directory holds.
    pub(super) fn is_consistent(&self) -> bool {
        match &self.activity {
            Activity::Idle => self.queue.is_empty(),
            Activity::Invalidating { left, .. } => !left.is_empty() && self.writer().is_none(),
            Activity::Recalling { from, .. } => self.writer() == Some(*from),
        }
    }
}

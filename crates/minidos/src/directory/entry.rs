//! One page in its home's directory: holders, what is going on, and who is next.

use std::collections::VecDeque;

use pronto::NodeId;

use super::{Action, Returned, Want};
use crate::page::{Access, Page, PageNumber, Version};

/// A page at its home.
#[derive(Debug)]
pub(super) struct Entry<T> {
    contents: Box<Page>,
    granted: Version,
    holders: Holders,
    doing: Doing<T>,
    queue: VecDeque<Want<T>>,
}

/// Who has the page, with the number of the grant.
#[derive(Debug)]
enum Holders {
    /// Any number of readers. The contents here are theirs.
    Readers(Vec<(NodeId, Version)>),
    /// One writer. The contents here may be old.
    Writer(NodeId, Version),
}

/// What the page is busy with.
#[derive(Debug)]
enum Doing<T> {
    Nothing,
    /// Readers drop their copies, so that `for_whom` may write.
    Invalidating {
        left: Vec<NodeId>,
        for_whom: Want<T>,
    },
    /// The writer gives back the contents.
    Recalling {
        from: NodeId,
        access: Access,
        flushed: bool,
        for_whom: Want<T>,
    },
}

impl<T> Entry<T> {
    pub(super) fn new(contents: Box<Page>) -> Self {
        Self {
            contents,
            granted: Version::NONE,
            holders: Holders::Readers(Vec::new()),
            doing: Doing::Nothing,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, want: Want<T>) {
        self.queue.push_back(want);
    }

    /// Serves the queue until it is empty or the page is busy.
    pub(super) fn advance(&mut self, page: PageNumber, actions: &mut VecDeque<Action<T>>) {
        while matches!(self.doing, Doing::Nothing) {
            let Some(want) = self.queue.pop_front() else { return };
            self.serve(page, want, actions);
        }
    }

    /// Grants, or demands what stands in the way.
    fn serve(&mut self, page: PageNumber, want: Want<T>, actions: &mut VecDeque<Action<T>>) {
        let access = match &want {
            Want::Page { access, .. } => *access,
            Want::Word { .. } => Access::Read,
        };
        match &self.holders {
            Holders::Writer(writer, version) => {
                let (to, version) = (*writer, *version);
                actions.push_back(Action::Recall { to, page, version, access });
                self.doing = Doing::Recalling { from: to, access, flushed: false, for_whom: want };
            }
            Holders::Readers(readers) => {
                let in_the_way = |reader: NodeId| match &want {
                    Want::Page { from, access: Access::Write, .. } => reader != *from,
                    Want::Page { access: Access::Read, .. } | Want::Word { .. } => false,
                };
                let mut left = Vec::new();
                for &(to, version) in readers.iter().filter(|(reader, _)| in_the_way(*reader)) {
                    actions.push_back(Action::Invalidate { to, page, version });
                    left.push(to);
                }
                if left.is_empty() {
                    self.grant(page, want, actions);
                } else {
                    self.doing = Doing::Invalidating { left, for_whom: want };
                }
            }
        }
    }

    /// Nobody stands in the way.
    fn grant(&mut self, page: PageNumber, want: Want<T>, actions: &mut VecDeque<Action<T>>) {
        let Holders::Readers(readers) = &mut self.holders else {
            unreachable!("a writer is recalled before anything is granted");
        };
        match want {
            Want::Word { offset, to } => {
                actions.push_back(Action::Word { to, word: self.contents.word(offset) });
            }
            Want::Page { from, access, held, to } => {
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

    /// Takes a reader's answer; false if none was awaited.
    pub(super) fn invalidated(&mut self, from: NodeId) -> bool {
        let Doing::Invalidating { left, .. } = &mut self.doing else { return false };
        let Some(place) = left.iter().position(|reader| *reader == from) else { return false };
        left.swap_remove(place);
        let all = left.is_empty();
        if let Holders::Readers(readers) = &mut self.holders {
            readers.retain(|(reader, _)| *reader != from);
        }
        if all {
            self.resume();
        }
        true
    }

    /// Takes the writer's answer; false if none was awaited.
    pub(super) fn recalled(&mut self, from: NodeId, returned: Returned) -> bool {
        let Doing::Recalling { from: asked, access, flushed, .. } = &self.doing else { return false };
        let lost = matches!(returned, Returned::Gone) && !*flushed;
        if *asked != from || lost {
            return false;
        }
        let keeps = *access == Access::Read && !*flushed && matches!(returned, Returned::Contents(_));
        let version = match self.holders {
            Holders::Writer(_, version) => version,
            Holders::Readers(_) => {
                unreachable!("a recall is about a writer, and stays so until it is answered")
            }
        };
        if let Returned::Contents(contents) = returned {
            self.contents = contents;
        }
        self.holders = Holders::Readers(if keeps { vec![(from, version)] } else { Vec::new() });
        self.resume();
        true
    }

    /// Puts the want that the page was busy for first in the queue again.
    fn resume(&mut self) {
        match core::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => {}
            Doing::Invalidating { for_whom, .. } | Doing::Recalling { for_whom, .. } => {
                self.queue.push_front(for_whom);
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
                match &mut self.doing {
                    // The recall is on its way to the writer, and is answered in any case.
                    Doing::Recalling { flushed, .. } => *flushed = true,
                    Doing::Nothing | Doing::Invalidating { .. } => {
                        self.holders = Holders::Readers(Vec::new())
                    }
                }
            }
            Holders::Writer(..) => {}
            // A recall let it go on reading, and brought the same contents.
            Holders::Readers(readers) => readers.retain(|reader| *reader != (from, version)),
        }
    }
}

#[cfg(test)]
impl<T> Entry<T> {
    /// The writer, if there is one.
    pub(super) fn writer(&self) -> Option<NodeId> {
        match &self.holders {
            Holders::Writer(writer, _) => Some(*writer),
            Holders::Readers(_) => None,
        }
    }

    /// The readers, in rising order.
    pub(super) fn readers(&self) -> Vec<NodeId> {
        let mut readers: Vec<NodeId> = match &self.holders {
            Holders::Writer(..) => Vec::new(),
            Holders::Readers(readers) => readers.iter().map(|(reader, _)| *reader).collect(),
        };
        readers.sort_unstable();
        readers
    }

    /// Whether the third invariant of the directory holds.
    pub(super) fn is_consistent(&self) -> bool {
        match &self.doing {
            Doing::Nothing => self.queue.is_empty(),
            Doing::Invalidating { left, .. } => !left.is_empty() && self.writer().is_none(),
            Doing::Recalling { from, .. } => self.writer() == Some(*from),
        }
    }
}

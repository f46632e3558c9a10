//! Messages about pages and futexes.

use pronto::{Message, Payload};

use super::Stamp;
use super::tasks::TaskId;
use crate::page::{Access, Address, PAGE_SIZE, Page, Version};

/// To a page's home: let me read or write it. From its home to its writer: give it back, and keep at most the right to
/// read.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_request", reply = PageReply, order = by_key(address))]
pub struct PageRequest {
    /// Sender and position.
    pub stamp: Stamp,
    /// The task that faulted, or 0 if the home asks.
    pub task: TaskId,
    /// First byte of the page.
    pub address: u64,
    /// What is asked for. From the home: what somebody else is about to do.
    pub access: Access,
    /// The grant whose contents the sender still has. From the home: the grant that ends.
    pub version: Version,
}

/// The answer to a [`PageRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_response", class = bulk)]
#[expect(clippy::large_enum_variant, reason = "most answers are pages, and they travel in place")]
pub enum PageReply {
    /// With contents.
    Page(PageResponse),
    /// Without.
    Short(PageResponseShort),
}

/// What a page comes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageGrant {
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant. To the home: of the one that ends.
    pub version: Version,
}

/// A page with its contents.
#[derive(Clone, Debug, PartialEq, Eq, Payload)]
pub struct PageResponse {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant. To the home: of the one that ends.
    pub version: Version,
    /// Sum over the contents.
    pub checksum: u64,
    /// The contents.
    pub contents: [u8; PAGE_SIZE],
}

impl PageResponse {
    /// A response that carries `page`.
    #[must_use]
    pub fn new(page: Box<Page>, grant: PageGrant) -> Self {
        Self {
            stamp: Stamp::default(),
            address: grant.address,
            version: grant.version,
            checksum: page.checksum(),
            contents: page.0,
        }
    }

    /// The page, or `None` if the contents are not what was sent.
    #[must_use]
    pub fn page(&self) -> Option<Box<Page>> {
        intact(&self.contents, self.checksum)
    }
}

/// A right without contents: the reader may write from now on; or, to the home: the contents went home before.
#[derive(Clone, Debug, PartialEq, Eq, Payload)]
pub struct PageResponseShort {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant.
    pub version: Version,
}

/// From a page's home to a reader: drop your copy.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.page_invalidate_request", reply = Invalidated, order = by_key(address))]
pub struct Invalidate {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: u64,
    /// The grant that ends.
    pub version: Version,
}

/// The copy is gone.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.page_invalidate_response")]
pub struct Invalidated {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
}

/// A page goes home, because its writer needs the frame or ends.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_flush", reply = FlushAck, class = bulk, order = ordered)]
pub struct Flush {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The grant that ends.
    pub version: Version,
    /// Sum over the contents.
    pub checksum: u64,
    /// The contents.
    pub contents: [u8; PAGE_SIZE],
}

impl Flush {
    /// A message that carries `page` home.
    #[must_use]
    pub fn new(page: Box<Page>, grant: PageGrant) -> Self {
        Self {
            stamp: Stamp::default(),
            address: grant.address,
            version: grant.version,
            checksum: page.checksum(),
            contents: page.0,
        }
    }

    /// The page, or `None` if the contents are not what was sent.
    #[must_use]
    pub fn page(&self) -> Option<Box<Page>> {
        intact(&self.contents, self.checksum)
    }
}

/// A reader no longer keeps its copy, because it needs the frame.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_release", reply = FlushAck, order = ordered)]
pub struct Release {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The grant that ends.
    pub version: Version,
}

/// The home has noted that the page is given back.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_flush_ack")]
pub struct FlushAck {
    /// Sender and position.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
}

/// To the home of a futex.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.futex_request", reply = FutexResponse, order = by_key(address))]
pub struct FutexRequest {
    /// Sender and position.
    pub stamp: Stamp,
    /// The task that asks.
    pub task: TaskId,
    /// The futex: the address of its word.
    pub address: u64,
    /// What to do.
    pub operation: FutexOperation,
    /// To wait: the word's value, as the task saw it. To wake: how many at most.
    pub value: u32,
}

/// What to do with a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum FutexOperation {
    /// Sleep, if the word still has the value that the task saw.
    Wait,
    /// Wake those who sleep, in the order in which they came.
    Wake,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.futex_response")]
pub struct FutexResponse {
    /// Sender and position.
    pub stamp: Stamp,
    /// What happened.
    pub outcome: FutexOutcome,
    /// Tasks woken, if this answers a wake.
    pub woken: u32,
}

/// What happened at a futex' home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum FutexOutcome {
    /// The task slept and was woken.
    Woken,
    /// The word had another value already.
    Changed,
    /// The wake was carried out.
    Done,
    /// No word lies there: it would cross the end of its page.
    Misplaced,
}

fn intact(contents: &[u8; PAGE_SIZE], checksum: u64) -> Option<Box<Page>> {
    let page = Box::new(Page(*contents));
    (page.checksum() == checksum).then_some(page)
}

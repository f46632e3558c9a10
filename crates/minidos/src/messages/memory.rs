//! Messages about pages and futexes.

use pronto::{Message, Payload};

use super::Stamp;
use super::tasks::TaskId;
use crate::page::{Access, Address, PAGE_SIZE, Page, Version};

/// Request for a page. To the page's home: a request for access. From the home to the writer: a recall, after which the
/// writer keeps at most the right to read.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_request", reply = PageReply, order = by_key(address))]
pub struct PageRequest {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The task that faulted, or 0 if the home sends the request.
    pub task: TaskId,
    /// First byte of the page.
    pub address: u64,
    /// The requested access. From the home: the access that another node is about to get.
    pub access: Access,
    /// The grant whose contents the sender still has. From the home: the grant that ends.
    pub version: Version,
}

/// Reply to a [`PageRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_response", class = bulk)]
#[expect(clippy::large_enum_variant, reason = "most replies are pages, and a box would add an allocation")]
pub enum PageReply {
    /// A page with contents.
    Page(PageResponse),
    /// An access right without contents.
    Short(PageResponseShort),
}

/// Address and version of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageGrant {
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant. To the home: the number of the grant that ends.
    pub version: Version,
}

/// A page with its contents.
#[derive(Clone, Debug, PartialEq, Eq, Payload)]
pub struct PageResponse {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant. To the home: the number of the grant that ends.
    pub version: Version,
    /// Checksum of the contents.
    pub checksum: u64,
    /// The contents.
    pub contents: [u8; PAGE_SIZE],
}

impl PageResponse {
    /// Creates a response that carries `page`.
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

    /// Returns the page, or `None` if the contents were damaged.
    #[must_use]
    pub fn page(&self) -> Option<Box<Page>> {
        intact(&self.contents, self.checksum)
    }
}

/// An access right without contents: the reader may write now. To the home: the contents were returned earlier.
#[derive(Clone, Debug, PartialEq, Eq, Payload)]
pub struct PageResponseShort {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The number of the grant.
    pub version: Version,
}

/// Demand from a page's home to a reader to drop its copy.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.page_invalidate_request", reply = Invalidated, order = by_key(address))]
pub struct Invalidate {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: u64,
    /// The grant that ends.
    pub version: Version,
}

/// Report that the copy was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.page_invalidate_response")]
pub struct Invalidated {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
}

/// Return of a modified page, because its writer needs the frame or ends.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_flush", reply = FlushAck, class = bulk, order = ordered)]
pub struct Flush {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The grant that ends.
    pub version: Version,
    /// Checksum of the contents.
    pub checksum: u64,
    /// The contents.
    pub contents: [u8; PAGE_SIZE],
}

impl Flush {
    /// Creates a message that returns `page` to its home.
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

    /// Returns the page, or `None` if the contents were damaged.
    #[must_use]
    pub fn page(&self) -> Option<Box<Page>> {
        intact(&self.contents, self.checksum)
    }
}

/// Report that a reader has evicted its copy, because it needs the frame.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_release", reply = FlushAck, order = ordered)]
pub struct Release {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
    /// The grant that ends.
    pub version: Version,
}

/// Confirmation that the home has recorded the return of a page.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.remote_page_flush_ack")]
pub struct FlushAck {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// First byte of the page.
    pub address: Address,
}

/// Request to the home of a futex.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.futex_request", reply = FutexResponse, order = by_key(address))]
pub struct FutexRequest {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// The requesting task.
    pub task: TaskId,
    /// The futex: the address of its word.
    pub address: u64,
    /// Operation to perform.
    pub operation: FutexOperation,
    /// For a wait, the word's value as the task saw it. For a wake, the maximum number of tasks to wake.
    pub value: u32,
}

/// A futex operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum FutexOperation {
    /// Sleep if the word still has the value that the task saw.
    Wait,
    /// Wake sleeping tasks in the order in which they arrived.
    Wake,
}

/// Response to a futex operation.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[message(name = "dex.futex_response")]
pub struct FutexResponse {
    /// Sender and position in the stream.
    pub stamp: Stamp,
    /// Outcome of the operation.
    pub outcome: FutexOutcome,
    /// Number of tasks woken, in the response to a wake.
    pub woken: u32,
}

/// Outcome of a futex operation at its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Payload)]
pub enum FutexOutcome {
    /// The task slept and was woken.
    Woken,
    /// The word already had another value.
    Changed,
    /// The wake was carried out.
    Done,
    /// The address is not that of a futex word: it would cross the end of its page.
    Misplaced,
}

fn intact(contents: &[u8; PAGE_SIZE], checksum: u64) -> Option<Box<Page>> {
    let page = Box::new(Page(*contents));
    (page.checksum() == checksum).then_some(page)
}

//! What the nodes say to each other: one struct per message type, in the sizes of DEX as far as they come naturally.
//!
//! Page contents travel in the class *bulk*, everything else is *control* and never queues behind them. Requests that
//! name a page or a futex are ordered by it, the rest as its doc says.

mod kind;
mod memory;
mod tasks;

use pronto::{Message, NodeId, Payload};

pub use kind::Kind;
pub use memory::{
    Flush, FlushAck, FutexOperation, FutexOutcome, FutexRequest, FutexResponse, Invalidate, Invalidated,
    PageGrant, PageReply, PageRequest, PageResponse, PageResponseShort, Release,
};
pub use tasks::{
    ExitOrigin, ExitRemote, Migrate, MigrateBack, NodeInfo, Pairing, Path, ProcessId, Registers, Signal,
    TaskId, VmaInfoRequest, VmaInfoResponse, VmaOp, VmaOpRequest, VmaOpResponse,
};

/// Where a message comes from, and the how-manieth of its stream it is: 10 bytes, as many as DEX' header.
///
/// Every message carries one. The receiver checks it, so that lost, doubled and overtaking messages are seen and
/// not assumed away. A stream is all messages of one type from one node to another; of a type that is ordered by key,
/// those with one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Payload)]
pub struct Stamp {
    /// The number of the sending node.
    pub from: u16,
    /// Position in the stream, from 0.
    pub sequence: u64,
}

impl Stamp {
    /// A stamp.
    #[must_use]
    pub fn new(from: NodeId, sequence: u64) -> Self {
        Self { from: from.0, sequence }
    }

    /// The sending node.
    #[must_use]
    pub fn from(self) -> NodeId {
        NodeId(self.from)
    }
}

/// A message of the mini distributed OS.
pub trait Stamped: Message {
    /// Its type. A type of its own for each of two replies that answer one request.
    fn kind(&self) -> Kind;

    /// The stamp that it carries.
    fn stamp(&self) -> Stamp;

    /// Sets the stamp; done by whoever posts it.
    fn set_stamp(&mut self, stamp: Stamp);
}

macro_rules! stamped {
    ($($message:ident is $kind:ident),* $(,)?) => {$(
        impl Stamped for $message {
            fn kind(&self) -> Kind {
                Kind::$kind
            }

            fn stamp(&self) -> Stamp {
                self.stamp
            }

            fn set_stamp(&mut self, stamp: Stamp) {
                self.stamp = stamp;
            }
        }
    )*};
}

stamped! {
    NodeInfo is NodeInfo,
    Migrate is TaskMigrate,
    MigrateBack is TaskMigrateBack,
    Pairing is TaskPairing,
    ExitOrigin is TaskExitOrigin,
    ExitRemote is TaskExitRemote,
    VmaInfoRequest is VmaInfoRequest,
    VmaInfoResponse is VmaInfoResponse,
    VmaOpRequest is VmaOpRequest,
    VmaOpResponse is VmaOpResponse,
    PageRequest is RemotePageRequest,
    Invalidate is PageInvalidateRequest,
    Invalidated is PageInvalidateResponse,
    Flush is RemotePageFlush,
    Release is RemotePageRelease,
    FlushAck is RemotePageFlushAck,
    FutexRequest is FutexRequest,
    FutexResponse is FutexResponse,
    Signal is Signal,
}

impl Stamped for PageReply {
    fn kind(&self) -> Kind {
        match self {
            Self::Page(_) => Kind::RemotePageResponse,
            Self::Short(_) => Kind::RemotePageResponseShort,
        }
    }

    fn stamp(&self) -> Stamp {
        match self {
            Self::Page(page) => page.stamp,
            Self::Short(short) => short.stamp,
        }
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        match self {
            Self::Page(page) => page.stamp = stamp,
            Self::Short(short) => short.stamp = stamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PAGE_SIZE, Page};

    /// Sizes of whole messages as they travel, without the wire's own header, against DEX' with its header of 10.
    #[test]
    fn sizes_are_those_of_dex_within_a_few_bytes() {
        let sizes = [
            (Kind::NodeInfo, NodeInfo::MIN_LEN),
            (Kind::TaskPairing, Pairing::MIN_LEN),
            (Kind::TaskExitOrigin, ExitOrigin::MIN_LEN),
            (Kind::TaskExitRemote, ExitRemote::MIN_LEN),
            (Kind::VmaInfoRequest, VmaInfoRequest::MIN_LEN),
            (Kind::VmaInfoResponse, VmaInfoResponse::MIN_LEN),
            (Kind::VmaOpRequest, VmaOpRequest::MIN_LEN),
            (Kind::VmaOpResponse, VmaOpResponse::MIN_LEN),
            (Kind::RemotePageRequest, PageRequest::MIN_LEN),
            (Kind::RemotePageResponse, PageResponse::MIN_LEN),
            (Kind::RemotePageResponseShort, PageResponseShort::MIN_LEN),
            (Kind::PageInvalidateRequest, Invalidate::MIN_LEN),
            (Kind::PageInvalidateResponse, Invalidated::MIN_LEN),
            (Kind::RemotePageFlush, Flush::MIN_LEN),
            (Kind::RemotePageRelease, Release::MIN_LEN),
            (Kind::RemotePageFlushAck, FlushAck::MIN_LEN),
            (Kind::FutexRequest, FutexRequest::MIN_LEN),
            (Kind::FutexResponse, FutexResponse::MIN_LEN),
        ];
        for (kind, len) in sizes {
            let dex = kind.dex_bytes().unwrap() as usize;
            compare(kind, len, dex);
        }
        compare(Kind::TaskMigrate, Migrate::MIN_LEN, 638 + 8 * Registers::COUNT);
        compare(Kind::TaskMigrateBack, MigrateBack::MIN_LEN, 26 + 8 * Registers::COUNT);
    }

    #[test]
    fn a_page_arrives_as_it_left_or_is_told_corrupt() {
        let mut page = Page::zeroed();
        page.0[PAGE_SIZE - 1] = 7;
        let mut response = PageResponse::new(page.clone(), PageGrant::default());
        assert_eq!(response.page(), Some(page));
        response.contents[17] = 1;
        assert_eq!(response.page(), None);
    }

    fn compare(kind: Kind, len: usize, dex: usize) {
        assert!(len <= dex + OURS && len + THEIRS >= dex, "{}: {len} bytes, {dex} in DEX", kind.name());
    }

    /// Fields that only we have: versions, sums.
    const OURS: usize = 16;

    /// Fields that only DEX has: wait stations, remote keys, addresses of buffers, a futex' second word and its timeout.
    const THEIRS: usize = 40;
}

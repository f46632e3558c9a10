//! The messages between nodes: one struct per message type, close to the sizes of DEX.
//!
//! Page contents travel in the class *bulk*. All other messages are *control*, so they never queue behind pages. Page and
//! futex requests are ordered by their address; the order of other types is given in their attributes.

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

/// Sender of a message and its position in its stream: 10 bytes, the size of DEX' header.
///
/// Every message carries a stamp. The receiver checks it, so that lost, duplicated and overtaking messages are detected. A
/// stream consists of all messages of one type from one node to another. If the type is ordered by key, each key has its
/// own stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Payload)]
pub struct Stamp {
    /// The number of the sending node.
    pub from: u16,
    /// Position in the stream, from 0.
    pub sequence: u64,
}

impl Stamp {
    /// Creates a stamp.
    #[must_use]
    pub fn new(from: NodeId, sequence: u64) -> Self {
        Self { from: from.0, sequence }
    }

    /// Returns the sending node.
    #[must_use]
    pub fn from(self) -> NodeId {
        NodeId(self.from)
    }
}

/// A message of the mini distributed OS.
pub trait Stamped: Message {
    /// Returns the message type. The variants of a [`PageReply`] have different types.
    fn kind(&self) -> Kind;

    /// Returns the stamp.
    fn stamp(&self) -> Stamp;

    /// Sets the stamp, before the message is posted.
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

    /// Compares the sizes of whole messages, without the wire's own header, with those of DEX with its header of 10 bytes.
    #[test]
    fn sizes_are_close_to_those_of_dex() {
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
    fn a_damaged_page_is_detected() {
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

    /// Bytes of fields that only we have: versions, checksums.
    const OURS: usize = 16;

    /// Bytes of fields that only DEX has: wait stations, remote keys, buffer addresses, a futex' second word and its timeout.
    const THEIRS: usize = 40;
}

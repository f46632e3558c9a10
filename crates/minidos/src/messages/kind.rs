//! The message types of the mini distributed OS: the set of DEX, and signals.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $dex:expr;)*) => {
        /// A message type. Order and names follow the message list of DEX; only the last entry is an addition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All message types.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            /// Returns the name in reports, in lower case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns the size of this message in DEX, with its header of 10 bytes and without machine registers.
            #[must_use]
            pub fn dex_bytes(self) -> Option<u32> {
                match self { $(Self::$kind => $dex,)* }
            }
        }
    };
}

kinds! {
    /// A node announces itself and its properties.
    NodeInfo = "node_info", Some(22);
    /// The origin hands a task over.
    TaskMigrate = "task_migrate", Some(638);
    /// A task comes back to its origin.
    TaskMigrateBack = "task_migrate_back", Some(26);
    /// A migrated task runs, under the given number. Reply to [`Kind::TaskMigrate`].
    TaskPairing = "task_pairing", Some(22);
    /// The process ended at its origin.
    TaskExitOrigin = "task_exit_origin", Some(22);
    /// A task ended away from its origin.
    TaskExitRemote = "task_exit_remote", Some(22);
    /// A node asks what is mapped at an address.
    VmaInfoRequest = "vma_info_request", Some(26);
    /// The range mapped at the address. Reply to [`Kind::VmaInfoRequest`].
    VmaInfoResponse = "vma_info_response", Some(570);
    /// A task away from its origin changes the address space.
    VmaOpRequest = "vma_op_request", Some(582);
    /// The result of the change. Reply to [`Kind::VmaOpRequest`].
    VmaOpResponse = "vma_op_response", Some(50);
    /// To a page's home: a request for access. From the home to the writer: a recall of the page.
    RemotePageRequest = "remote_page_request", Some(58);
    /// A page with its contents. Reply to [`Kind::RemotePageRequest`].
    RemotePageResponse = "remote_page_response", Some(4130);
    /// An access right without the contents, which the receiver already has. Reply to [`Kind::RemotePageRequest`].
    RemotePageResponseShort = "remote_page_response_short", Some(34);
    /// A home asks a reader to drop its copy of a page.
    PageInvalidateRequest = "page_invalidate_request", Some(30);
    /// The reader has dropped its copy. Reply to [`Kind::PageInvalidateRequest`].
    PageInvalidateResponse = "page_invalidate_response", Some(22);
    /// A writer evicts a page and returns its contents.
    RemotePageFlush = "remote_page_flush", Some(4138);
    /// A reader has evicted its copy.
    RemotePageRelease = "remote_page_release", Some(42);
    /// The home has recorded the return. Reply to [`Kind::RemotePageFlush`] and [`Kind::RemotePageRelease`].
    RemotePageFlushAck = "remote_page_flush_ack", Some(22);
    /// A request to a futex' home to wait or to wake.
    FutexRequest = "futex_request", Some(66);
    /// The outcome of a futex operation. Reply to [`Kind::FutexRequest`].
    FutexResponse = "futex_response", Some(22);
    /// A signal for a task that runs on another node. The DEX paper names it; DEX' public code has no such message.
    Signal = "signal", None;
}

impl Kind {
    /// Returns the index in [`Kind::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_position_in_the_list() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }

    #[test]
    fn names_in_json_are_the_names_in_reports() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}

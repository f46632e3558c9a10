//! The message types of the mini distributed OS by name: the set of DEX, and signals.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $dex:expr;)*) => {
        /// A message type. Order and names are those of DEX' message list; its last entry is ours.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            /// Its name in reports, lower case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// What this message takes in DEX, bytes with its header of 10; machine registers left out.
            #[must_use]
            pub fn dex_bytes(self) -> Option<u32> {
                match self { $(Self::$kind => $dex,)* }
            }
        }
    };
}

kinds! {
    /// A node says that it is there, and what it is.
    NodeInfo = "node_info", Some(22);
    /// The origin hands a task over.
    TaskMigrate = "task_migrate", Some(638);
    /// A task comes back to its origin.
    TaskMigrateBack = "task_migrate_back", Some(26);
    /// The task that was handed over runs, and under which number. Answers [`Kind::TaskMigrate`].
    TaskPairing = "task_pairing", Some(22);
    /// The process ended at its origin.
    TaskExitOrigin = "task_exit_origin", Some(22);
    /// A task ended away from its origin.
    TaskExitRemote = "task_exit_remote", Some(22);
    /// What is mapped at an address?
    VmaInfoRequest = "vma_info_request", Some(26);
    /// This is. Answers [`Kind::VmaInfoRequest`].
    VmaInfoResponse = "vma_info_response", Some(570);
    /// A task away from its origin changes the address space.
    VmaOpRequest = "vma_op_request", Some(582);
    /// Done, and where. Answers [`Kind::VmaOpRequest`].
    VmaOpResponse = "vma_op_response", Some(50);
    /// To a page's home: let me read or write it. From its home: give it back.
    RemotePageRequest = "remote_page_request", Some(58);
    /// A page with its contents. Answers [`Kind::RemotePageRequest`].
    RemotePageResponse = "remote_page_response", Some(4130);
    /// A page's right without its contents, which are there already. Answers [`Kind::RemotePageRequest`].
    RemotePageResponseShort = "remote_page_response_short", Some(34);
    /// Drop your copy of a page.
    PageInvalidateRequest = "page_invalidate_request", Some(30);
    /// Dropped. Answers [`Kind::PageInvalidateRequest`].
    PageInvalidateResponse = "page_invalidate_response", Some(22);
    /// A page that its writer no longer keeps goes home.
    RemotePageFlush = "remote_page_flush", Some(4138);
    /// A reader no longer keeps its copy.
    RemotePageRelease = "remote_page_release", Some(42);
    /// Noted. Answers [`Kind::RemotePageFlush`] and [`Kind::RemotePageRelease`].
    RemotePageFlushAck = "remote_page_flush_ack", Some(22);
    /// To a futex' home: wait, or wake.
    FutexRequest = "futex_request", Some(66);
    /// Woken, refused, or how many were woken. Answers [`Kind::FutexRequest`].
    FutexResponse = "futex_response", Some(22);
    /// A signal for a task that runs elsewhere. DEX' letter names it, its public code has none.
    Signal = "signal", None;
}

impl Kind {
    /// Its place in [`Kind::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_each_is_where_it_stands() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), place);
        }
    }

    #[test]
    fn names_in_json_are_the_names_in_reports() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}

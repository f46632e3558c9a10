//! The reasons why messages are sent. Each is counted by the part that decides to send, not by the one that sends.

use pronto_sync::atomic::{AtomicU64, Ordering};

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $text:literal;)*) => {
        /// A reason for a message between nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $($(#[$doc])* $cause,)*
        }

        impl Cause {
            /// All causes.
            pub const ALL: [Self; [$(Self::$cause),*].len()] = [$(Self::$cause),*];

            /// Returns the name that the report uses in its equations.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$cause => $text,)* }
            }
        }
    };
}

causes! {
    /// This node announced itself to another one.
    Announced = "announcements";
    /// The origin handed a task over.
    HandedOver = "tasks handed over";
    /// A task of another origin was started here.
    Started = "tasks started";
    /// A task of another origin migrated back.
    MigratedBack = "tasks migrated back";
    /// A task of another origin ended here.
    EndedRemotely = "tasks ended remotely";
    /// The origin ended a process in which another node took part.
    ProcessEnded = "process ends";
    /// A task touched an address that its node does not know.
    RangeMissed = "unknown ranges touched";
    /// The origin looked a range up for another node.
    RangeLookedUp = "ranges looked up";
    /// A task that runs away from its origin mapped a range.
    MappedRemotely = "ranges mapped remotely";
    /// The origin mapped a range for a task on another node.
    MappedFor = "ranges mapped for other nodes";
    /// A task touched a page with another home, for which its node does not have the access right.
    Faulted = "page faults";
    /// A home recalled a page from a node that writes it, because another node needs it.
    WriterRecalled = "writers recalled";
    /// A home granted a page and its contents to another node.
    GrantedContents = "pages granted";
    /// A home granted the right to write to a node that already had the contents.
    GrantedRight = "upgrades granted";
    /// A writer returned the contents because the home asked.
    ReturnedContents = "pages returned";
    /// A writer had returned the contents before the home asked.
    ReturnedEarlier = "pages returned earlier";
    /// A home revoked the copy of a reader, because another node wants to write the page.
    ReaderRevoked = "reader copies revoked";
    /// A reader dropped a copy because the page's home on another node asked.
    CopyDropped = "copies dropped";
    /// A clean copy of another home's page was evicted.
    EvictedRead = "copies evicted";
    /// A modified page of another home was evicted, or its process ended.
    EvictedWritten = "modified pages sent home";
    /// A home recorded that another node returned a page.
    ReturnNoted = "page returns noted";
    /// A task asked another home to let it sleep.
    Slept = "futex waits";
    /// A task asked another home to wake sleeping tasks.
    Woke = "futex wakes";
    /// A home responded to a futex operation of a task on another node.
    FutexResponded = "futex responses";
    /// A task on another node was signalled.
    Signalled = "signals raised";
}

/// Counters of causes. They are statistics: the running system makes no decision from them.
#[derive(Debug, Default)]
pub struct Causes([AtomicU64; Cause::ALL.len()]);

impl Causes {
    /// Counts one occurrence of `cause`.
    pub fn count(&self, cause: Cause) {
        // SYNC: a counter that orders nothing; read after the tasks that count have ended.
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts, in the order of [`Cause::ALL`].
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        // SYNC: as in `count`.
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

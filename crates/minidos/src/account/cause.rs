//! Why messages are sent. Each is counted by the part that decides, not by the one that sends.

use pronto_sync::atomic::{AtomicU64, Ordering};

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $text:literal;)*) => {
        /// A reason for messages. What stays within one node has none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $($(#[$doc])* $cause,)*
        }

        impl Cause {
            /// All of them.
            pub const ALL: [Self; [$(Self::$cause),*].len()] = [$(Self::$cause),*];

            /// In the words of the reconciliation.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$cause => $text,)* }
            }
        }
    };
}

causes! {
    /// This node said to another that it is there.
    Announced = "announcements";
    /// The origin handed a task over.
    HandedOver = "tasks handed over";
    /// A task of another origin was started here.
    Started = "tasks started";
    /// A task of another origin goes back.
    WentBack = "tasks gone back";
    /// A task of another origin ended here.
    EndedAway = "tasks ended away";
    /// The origin took a process apart that another node took part in.
    TakenApart = "process ends";
    /// A task touched an address of which its node knew nothing.
    RangeMissed = "unknown ranges touched";
    /// The origin looked a range up for another node.
    RangeLookedUp = "ranges looked up";
    /// A task away from its origin mapped a range.
    MappedAway = "ranges mapped away";
    /// The origin mapped a range for a task elsewhere.
    MappedFor = "ranges mapped for others";
    /// A task touched a page that its node may not use so, and whose home is elsewhere.
    Faulted = "page faults";
    /// A home found that another node writes a page that somebody wants.
    WriterInTheWay = "writers recalled";
    /// A home granted a page with contents to another node.
    GrantedContents = "pages granted";
    /// A home granted the right to write to a node that had the contents.
    GrantedRight = "upgrades granted";
    /// A writer gave contents back to a home that asked.
    ReturnedContents = "pages returned";
    /// A writer had given the contents back before the home asked.
    ReturnedBefore = "pages returned before";
    /// A home found that another node reads a page that somebody wants to write.
    ReaderInTheWay = "sharers revoked";
    /// A reader dropped a copy, because a home elsewhere asked.
    CopyDropped = "copies dropped";
    /// A copy of another home's page made room.
    EvictedRead = "copies evicted";
    /// A written page of another home made room, or its process ended.
    EvictedWritten = "written pages sent home";
    /// A home noted what another node gave back.
    NotedBack = "pages noted as back";
    /// A task asked another home to sleep.
    Slept = "futex waits";
    /// A task asked another home to wake others.
    Woke = "futex wakes";
    /// A home answered a task elsewhere.
    FutexAnswered = "futex answers";
    /// A task was signalled at another node.
    Signalled = "signals raised";
}

/// Counts causes. Statistics: nothing is decided by them while the system runs.
#[derive(Debug, Default)]
pub struct Causes([AtomicU64; Cause::ALL.len()]);

impl Causes {
    /// Counts one.
    pub fn count(&self, cause: Cause) {
        // SYNC: a counter that orders nothing; read after the tasks that count have ended.
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All counts, in the order of [`Cause::ALL`].
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        // SYNC: as in `count`.
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

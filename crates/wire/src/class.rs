//! The two classes of messages, which never wait for each other.

/// Which of a peer's two connections a message travels on (comm-layer paper, section 3.1: control and data features).
///
/// Control never queues behind bulk, on any provider; nothing is promised about order between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Small and latency-bound: synchronisation, grants, invalidations.
    Control = 0,
    /// Large and bandwidth-bound: pages, file blocks.
    Bulk = 1,
}

impl Class {
    /// Both classes, in the order in which they are polled.
    pub const ALL: [Self; 2] = [Self::Control, Self::Bulk];

    /// Position in per-class tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

//! The two classes of messages, which never wait for each other.

/// The class of a message, which selects one of a peer's two connections (comm-layer paper, section 3.1: control and data features).
///
/// On every provider, control messages never queue behind bulk messages. The order between the two classes is unspecified.
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

    /// Returns the index of this class in per-class tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

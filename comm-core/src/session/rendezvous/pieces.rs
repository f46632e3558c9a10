//! The location of the bytes of a message by reference: one range of the sender's memory, or several in order.

use alloc::boxed::Box;
use core::ops::Range;

use crate::fabric::RemoteRange;

/// Maximum number of pieces of a message by reference.
pub const MAX_PIECES: usize = 16;

/// The ranges of a message by reference, in the order of their bytes. They may overlap, and may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Almost every message is one range, which needs no memory.
    first: RemoteRange,
    more: Box<[RemoteRange]>,
    len: u64,
}

impl From<RemoteRange> for Pieces {
    fn from(range: RemoteRange) -> Self {
        Self { first: range, more: Box::default(), len: range.len }
    }
}

impl Pieces {
    /// Returns the ranges of a message. Returns `None` if there are more than [`MAX_PIECES`], or if their lengths exceed a number of 64 bits.
    pub fn new(first: RemoteRange, more: impl ExactSizeIterator<Item = RemoteRange>) -> Option<Self> {
        if more.len() >= MAX_PIECES {
            return None;
        }
        let more: Box<[_]> = more.collect();
        let len = more.iter().try_fold(first.len, |len, piece| len.checked_add(piece.len))?;
        Some(Self { first, more, len })
    }

    /// Returns the length of the message, bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the message has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory of the bytes from `range.start`, up to `range.end` or to the end of their piece. Returns `None` if the message has no
    /// byte at the start.
    pub(super) fn part(&self, range: Range<u64>) -> Option<RemoteRange> {
        let mut begin = 0;
        for piece in core::iter::once(&self.first).chain(&self.more) {
            // The sum of all lengths is a number of 64 bits.
            let end = begin + piece.len;
            if range.start < end {
                return piece.part(range.start - begin..range.end.min(end).checked_sub(begin)?);
            }
            begin = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn range(key: u64, len: u64) -> RemoteRange {
        RemoteRange { key, offset: 100 * key, len }
    }

    /// Returns the parts of a message that is read in chunks: key, offset and length.
    fn read(pieces: &Pieces, chunk: u64) -> Vec<(u64, u64, u64)> {
        let (mut at, mut parts) = (0, Vec::new());
        while let Some(RemoteRange { key, offset, len }) = pieces.part(at..pieces.len().min(at + chunk)) {
            parts.push((key, offset, len));
            at += len;
        }
        assert_eq!(at, pieces.len());
        parts
    }

    #[test]
    fn a_chunk_ends_with_its_piece() {
        let one = Pieces::from(range(1, 25));
        assert_eq!(read(&one, 10), [(1, 100, 10), (1, 110, 10), (1, 120, 5)]);
        let three = Pieces::new(range(1, 5), [range(2, 12), range(3, 1)].into_iter()).expect("it is short");
        assert_eq!(three.len(), 18);
        assert_eq!(read(&three, 10), [(1, 100, 5), (2, 200, 10), (2, 210, 2), (3, 300, 1)]);
    }

    #[test]
    fn empty_and_overlapping_pieces_are_read_as_they_are() {
        let same = range(2, 3);
        let more = [range(5, 0), same, range(6, 0), same, range(7, 0)];
        let pieces = Pieces::new(range(4, 0), more.into_iter()).expect("it is short");
        assert_eq!(read(&pieces, 10), [(2, 200, 3), (2, 200, 3)]);
        let nothing = Pieces::new(range(4, 0), [range(5, 0)].into_iter()).expect("it is short");
        assert!(nothing.is_empty() && read(&nothing, 10).is_empty());
    }

    #[test]
    fn too_many_or_too_long_pieces_are_refused() {
        let more = |count: usize| core::iter::repeat_n(range(1, 1), count);
        assert!(Pieces::new(range(1, 1), more(MAX_PIECES - 1)).is_some());
        assert_eq!(Pieces::new(range(1, 1), more(MAX_PIECES)), None);
        assert_eq!(Pieces::new(range(1, u64::MAX), more(1)), None);
    }
}

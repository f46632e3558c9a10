//! The piece: a part of the stream whose bytes lie in a region, with the header of its frame.
//!
//! The kernel reads the bytes where they are. If the peer's grant of them ends while a piece is partly sent, its bytes are copied,
//! because its frame has to be completed with bytes from before that moment.

use pronto_core::fabric::{OutOfBounds, Region};
use pronto_wire::HEADER_LEN;

use crate::frame::MAX_EXTRA;
use crate::parts::Source;

/// The bytes after the header.
#[derive(Debug, Default)]
enum Body {
    #[default]
    None,
    /// The bytes of a region from here on.
    Region(Region, usize),
    /// The bytes as they were when the grant ended.
    Saved(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Piece {
    head: [u8; HEADER_LEN + MAX_EXTRA],
    head_len: usize,
    body: Body,
    body_len: usize,
    sent: usize,
}

impl Default for Piece {
    fn default() -> Self {
        Self { head: [0; HEADER_LEN + MAX_EXTRA], head_len: 0, body: Body::None, body_len: 0, sent: 0 }
    }
}

impl Piece {
    /// Returns a piece of the `len` bytes of a region from `at` on. Copies them from memory that may lose them while they are sent, as a frame
    /// that was begun must be completed.
    ///
    /// # Errors
    /// The region has fewer bytes, or has lost them.
    pub(crate) fn new(head: &[&[u8]], region: &Region, at: usize, len: usize) -> Result<Self, OutOfBounds> {
        region.address(at, len)?;
        if region.may_fault() {
            let mut bytes = vec![0; len];
            region.read(at, &mut bytes)?;
            return Ok(Self { body: Body::Saved(bytes), body_len: len, ..Self::of_head(head) });
        }
        Ok(Self { body: Body::Region(region.clone(), at), body_len: len, ..Self::of_head(head) })
    }

    /// Returns a piece without a body.
    pub(crate) fn of_head(parts: &[&[u8]]) -> Self {
        let mut piece = Self::default();
        for part in parts {
            piece.head[piece.head_len..][..part.len()].copy_from_slice(part);
            piece.head_len += part.len();
        }
        piece
    }

    /// Returns the number of bytes that are not sent.
    pub(crate) fn left(&self) -> usize {
        self.head_len + self.body_len - self.sent
    }

    /// Returns whether the whole header is sent, and not the whole body.
    #[cfg(test)]
    pub(crate) fn is_begun(&self) -> bool {
        self.sent >= self.head_len && self.left() != 0
    }

    /// Returns the bytes that are not sent.
    pub(crate) fn parts(&self) -> [Source<'_>; 2] {
        let head = &self.head[self.sent.min(self.head_len)..self.head_len];
        let skip = self.sent.saturating_sub(self.head_len);
        let body = match &self.body {
            Body::None => Source::EMPTY,
            Body::Region(region, at) => Source::in_region(region, at + skip, self.body_len - skip)
                .expect("bounds checked when made, and a region keeps its length"),
            Body::Saved(bytes) => Source::of(&bytes[skip..]),
        };
        [Source::of(head), body]
    }

    /// Returns the bytes of a saved piece that are not sent.
    pub(crate) fn slices(&self) -> [&[u8]; 2] {
        let head = &self.head[self.sent.min(self.head_len)..self.head_len];
        let skip = self.sent.saturating_sub(self.head_len);
        match &self.body {
            Body::None => [head, &[]],
            Body::Saved(bytes) => [head, &bytes[skip..]],
            Body::Region(..) => unreachable!("saved before it is encrypted"),
        }
    }

    /// Counts bytes as sent. Drops the region after the last one.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.left() == 0 {
            *self = Self::default();
        }
    }

    /// Copies the body, so that changes of the region no longer matter.
    pub(crate) fn save(&mut self) {
        let Body::Region(region, at) = &self.body else { return };
        let mut bytes = vec![0; self.body_len];
        region.read(*at, &mut bytes).expect("bounds checked when made, and a region keeps its length");
        self.body = Body::Saved(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pronto_core::fabric::HeapMemory;

    use super::*;

    #[test]
    fn a_saved_piece_keeps_its_bytes_and_a_sent_one_drops_its_region() {
        let region = Region::new(Arc::new(HeapMemory::new(64)));
        region.write(8, &[1; 8]).unwrap();
        let mut piece = Piece::new(&[b"he", b"ad"], &region, 8, 8).unwrap();
        assert_eq!((piece.left(), piece.parts().map(|part| part.len())), (12, [4, 8]));
        piece.advance(6);
        assert_eq!((piece.left(), piece.parts().map(|part| part.len())), (6, [0, 6]));
        assert!(region.is_held_elsewhere());
        piece.save();
        region.write(8, &[2; 8]).unwrap();
        assert!(!region.is_held_elsewhere());
        assert!(matches!(&piece.body, Body::Saved(bytes) if *bytes == [1; 8]));
        assert_eq!(piece.parts().map(|part| part.len()), [0, 6]);
        let mut other = Piece::new(&[], &region, 0, 64).unwrap();
        other.advance(64);
        assert!(other.left() == 0 && !region.is_held_elsewhere());
        assert!(Piece::new(&[], &region, 60, 8).is_err());
    }
}

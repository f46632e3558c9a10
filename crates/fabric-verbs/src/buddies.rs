//! Pieces of registered chunks, in sizes that are powers of two. A longer piece is halved, and two free halves are
//! merged, so that no mix of sizes exhausts the longer pieces.

/// Shortest and longest pieces, as powers of two: 4 KiB and 8 MiB.
const SMALLEST: u32 = 12;
pub(crate) const CLASSES: usize = 12;

/// Returns the size class of a length in bytes, or `None` if it is too long for any.
pub(crate) fn class_of(len: usize) -> Option<usize> {
    let bits = len.max(1).checked_next_power_of_two()?.trailing_zeros().max(SMALLEST);
    usize::try_from(bits - SMALLEST).ok().filter(|class| *class < CLASSES)
}

/// Returns the size of a piece of a class, in bytes.
pub(crate) const fn size_of(class: usize) -> usize {
    1 << (class + SMALLEST as usize)
}

/// A piece: the number of its chunk, and the offset of its first byte there, a multiple of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) chunk: usize,
    pub(crate) offset: usize,
}

/// Free pieces by size class.
#[derive(Debug, Default)]
pub(crate) struct Buddies {
    free: [Vec<Piece>; CLASSES],
}

impl Buddies {
    /// Takes a piece of a class.
    pub(crate) fn take(&mut self, class: usize) -> Option<Piece> {
        let found = (class..CLASSES).find(|class| !self.free[*class].is_empty())?;
        let piece = self.free[found].pop()?;
        for smaller in (class..found).rev() {
            self.free[smaller].push(Piece { offset: piece.offset + size_of(smaller), ..piece });
        }
        Some(piece)
    }

    /// Returns a piece; it merges with its other half as long as that is free, too.
    pub(crate) fn give(&mut self, mut piece: Piece, class: usize) {
        for class in class..CLASSES {
            let buddy = Piece { offset: piece.offset ^ size_of(class), ..piece };
            let Some(at) = self.free[class].iter().position(|free| *free == buddy) else {
                self.free[class].push(piece);
                return;
            };
            self.free[class].swap_remove(at);
            piece.offset &= !size_of(class);
        }
        // A piece of the longest class has no other half in a chunk of its size.
        self.free[CLASSES - 1].push(piece);
    }

    /// Adds a chunk of `len` bytes, a power of two of at most the longest class.
    pub(crate) fn add(&mut self, chunk: usize, len: usize) {
        if let Some(class) = class_of(len).filter(|class| size_of(*class) == len) {
            self.free[class].push(Piece { chunk, offset: 0 });
        }
    }

    /// Returns whether nothing of this class, or longer, is free.
    pub(crate) fn is_out_of(&self, class: usize) -> bool {
        self.free[class..].iter().all(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pseudo-random numbers, the same in every run.
    fn random(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(*state >> 40).unwrap()
    }

    #[test]
    fn lengths_find_their_class() {
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(4096), Some(0));
        assert_eq!(class_of(4097), Some(1));
        assert_eq!(class_of(8 << 20), Some(CLASSES - 1));
        assert_eq!(class_of((8 << 20) + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn pieces_never_overlap_and_merge_into_whole_chunks() {
        let mut buddies = Buddies::default();
        let chunks = 3;
        for chunk in 0..chunks {
            buddies.add(chunk, 1 << 20);
        }
        let (mut held, mut state): (Vec<(Piece, usize)>, u64) = (Vec::new(), 1);
        for _ in 0..20_000 {
            let class = random(&mut state) % 9;
            if random(&mut state).is_multiple_of(2)
                && let Some(piece) = buddies.take(class)
            {
                let bytes = |piece: Piece, class| piece.offset..piece.offset + size_of(class);
                let mine = bytes(piece, class);
                assert!(mine.end <= 1 << 20 && piece.offset.is_multiple_of(size_of(class)));
                for (other, class) in held.iter().filter(|(other, _)| other.chunk == piece.chunk) {
                    let other = bytes(*other, *class);
                    assert!(mine.end <= other.start || other.end <= mine.start, "{mine:?} and {other:?}");
                }
                held.push((piece, class));
            } else if !held.is_empty() {
                let (piece, class) = held.swap_remove(random(&mut state) % held.len());
                buddies.give(piece, class);
            }
        }
        for (piece, class) in held {
            buddies.give(piece, class);
        }
        // After all pieces have returned, the chunks are whole.
        for _ in 0..chunks {
            assert!(buddies.take(8).is_some());
        }
        assert!(buddies.is_out_of(0));
    }
}

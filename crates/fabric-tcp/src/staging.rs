//! The staging buffer: headers and short payloads that wait for a vectored write.

/// A ring of bytes that grows on demand, which most connections never need.
///
/// `head` and `tail` count the bytes pushed and consumed since the ring was last empty, so that after a burst the next
/// one begins at the same, still cached, first byte.
#[derive(Debug)]
pub(crate) struct Staging {
    bytes: Box<[u8]>,
    /// Maximum number of bytes.
    most: usize,
    head: usize,
    tail: usize,
}

impl Staging {
    /// Initial size in bytes.
    pub(crate) const SHORTEST: usize = 1 << 10;

    /// Returns a ring for up to `len` bytes, a power of two.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two(), "positions are masked");
        Self { bytes: vec![0; len.min(Self::SHORTEST)].into_boxed_slice(), most: len, head: 0, tail: 0 }
    }

    /// Grows the ring to at least `len` bytes.
    #[cold]
    fn grow(&mut self, len: usize) {
        let mut bytes = vec![0; len.next_power_of_two()].into_boxed_slice();
        let held = self.head - self.tail;
        let (first, second) = self.parts(0, held);
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..held].copy_from_slice(second);
        (self.bytes, self.head, self.tail) = (bytes, held, 0);
    }

    /// Shrinks an empty ring to its initial size.
    pub(crate) fn give_back(&mut self) {
        if self.bytes.len() > Self::SHORTEST && self.head == self.tail {
            *self = Self::new(self.most);
        }
    }

    /// Returns the number of bytes that can be pushed.
    pub(crate) fn free(&self) -> usize {
        self.most - (self.head - self.tail)
    }

    /// Pushes bytes; the caller has checked [`free`](Self::free).
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len(), |part, at| part.copy_from_slice(&bytes[at..at + part.len()]));
    }

    /// Reserves `len` bytes and calls `fill` for them: once, or twice where the ring wraps around. `fill` gets each
    /// part and its offset in the whole.
    pub(crate) fn reserve(&mut self, len: usize, mut fill: impl FnMut(&mut [u8], usize)) {
        assert!(len <= self.free(), "room was checked when posted");
        if self.head - self.tail + len > self.bytes.len() {
            self.grow(self.head - self.tail + len);
        }
        let at = self.head & (self.bytes.len() - 1);
        let first = len.min(self.bytes.len() - at);
        fill(&mut self.bytes[at..at + first], 0);
        if first < len {
            fill(&mut self.bytes[..len - first], first);
        }
        self.head += len;
    }

    /// Returns `len` bytes, after skipping the `skip` oldest ones, in one or two parts.
    pub(crate) fn parts(&self, skip: usize, len: usize) -> (&[u8], &[u8]) {
        debug_assert!(self.tail + skip + len <= self.head);
        let at = (self.tail + skip) & (self.bytes.len() - 1);
        let first = len.min(self.bytes.len() - at);
        (&self.bytes[at..at + first], &self.bytes[..len - first])
    }

    /// Removes the oldest bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.tail += len;
        debug_assert!(self.tail <= self.head);
        if self.tail == self.head {
            self.head = 0;
            self.tail = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: usize = Staging::SHORTEST;

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_end_of_the_ring() {
        let mut staging = Staging::new(64);
        // One byte always remains, so that the ring wraps around instead of restarting at its first byte.
        staging.push(&[0]);
        for round in 1u8..100 {
            staging.push(&[round; 24]);
            staging.push(&[round + 1; 11]);
            let (a, b) = staging.parts(1, 24);
            assert_eq!([a, b].concat(), [round; 24]);
            let (a, b) = staging.parts(25, 11);
            assert_eq!([a, b].concat(), [round + 1; 11]);
            staging.consume(35);
            assert_eq!(staging.free(), 63);
        }
    }

    #[test]
    fn growing_preserves_the_contents() {
        let mut staging = Staging::new(8 * FIRST);
        // The oldest byte is near the end of the initial memory.
        staging.push(&[1; FIRST - 2]);
        staging.consume(FIRST - 3);
        let all: Vec<u8> = (0..=255).cycle().take(7 * FIRST).collect();
        for piece in all.chunks(100) {
            staging.push(piece);
        }
        assert_eq!(staging.free(), 8 * FIRST - 7 * FIRST - 1);
        let (first, second) = staging.parts(1, all.len());
        assert_eq!([first, second].concat(), all);
        staging.consume(all.len() + 1);
        staging.push(&[9; 8 * FIRST]);
        assert_eq!((staging.free(), staging.parts(0, 1).0), (0, &[9][..]));
        staging.give_back();
        assert_eq!(staging.bytes.len(), 8 * FIRST, "a ring with contents does not shrink");
        staging.consume(8 * FIRST);
        staging.give_back();
        assert_eq!((staging.bytes.len(), staging.free()), (FIRST, 8 * FIRST));
        staging.push(&[3; 2 * FIRST]);
        assert_eq!(staging.parts(0, 2 * FIRST).0, &[3; 2 * FIRST]);
    }

    #[test]
    #[should_panic(expected = "room was checked")]
    fn pushing_more_than_fits_panics() {
        Staging::new(64).push(&[0; 65]);
    }
}

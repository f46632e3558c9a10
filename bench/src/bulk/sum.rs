//! The sum of a message, which every receiver computes: the wrapping sum of its words of eight bytes, in eight lanes, which baseline
//! instructions add two or more at a time. `bench/peers` includes this file by its path, and its C programs have the same loop.

/// Number of bytes that are added together.
pub(crate) const BLOCK: usize = 64;

/// A sum of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum([u64; BLOCK / 8]);

impl Sum {
    /// The sum of no blocks.
    pub(crate) const ZERO: Self = Self([0; BLOCK / 8]);

    /// Adds a block. The loop has no zip: without link-time optimisation, a part of it is not inlined, and a sum takes six times as long.
    #[inline]
    pub(crate) fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (at, lane) in self.0.iter_mut().enumerate() {
            *lane = lane.wrapping_add(u64::from_le_bytes(words[at]));
        }
    }

    /// Returns the sum of all blocks.
    pub(crate) fn total(self) -> u64 {
        self.0.into_iter().fold(0, u64::wrapping_add)
    }
}

/// Returns the sum of bytes; the last block is padded with zeros.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    let mut sum = Sum::ZERO;
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        sum.add(block);
    }
    if !rest.is_empty() {
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        sum.add(&last);
    }
    sum.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_that_of_all_words() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let words = bytes.chunks(8).map(|word| {
            let mut all = [0; 8];
            all[..word.len()].copy_from_slice(word);
            u64::from_le_bytes(all)
        });
        assert_eq!(of(&bytes), words.fold(0, u64::wrapping_add));
        assert_eq!(of(&[]), 0);
        let mut changed = bytes.clone();
        changed[999] += 1;
        assert_ne!(of(&changed), of(&bytes));
    }
}

//! Buckets of keys, their owners, and the ranks of the keys that an owner has received.

use core::ops::Range;

use super::class::Class;
use crate::comm::Rank;

/// The distribution of keys over buckets, and of buckets over ranks. Per iteration: `order`, `set_totals`, `assign`.
#[derive(Debug)]
pub(super) struct Buckets {
    class: Class,
    /// Number of ranks.
    ranks: usize,
    /// Keys of this rank in each bucket.
    own: Vec<u32>,
    /// Keys of all ranks in each bucket.
    totals: Vec<u32>,
    /// The first bucket of each rank, and the number of buckets.
    first: Vec<usize>,
    /// Next free place of each bucket in the ordered keys.
    next: Vec<u32>,
}

impl Buckets {
    pub(super) fn new(class: Class, ranks: usize) -> Self {
        let buckets = class.buckets();
        let (own, totals, next) = (vec![0; buckets], vec![0; buckets], vec![0; buckets]);
        Self { class, ranks, own, totals, first: Vec::new(), next }
    }

    /// Counts keys by bucket and writes them to `ordered`, bucket by bucket.
    pub(super) fn order(&mut self, keys: &[u32], ordered: &mut [u32]) {
        let shift = self.class.bucket_shift();
        self.own.fill(0);
        for key in keys {
            self.own[(key >> shift) as usize] += 1;
        }
        let mut place = 0;
        for (next, count) in self.next.iter_mut().zip(&self.own) {
            *next = place;
            place += count;
        }
        for key in keys {
            let next = &mut self.next[(key >> shift) as usize];
            ordered[*next as usize] = *key;
            *next += 1;
        }
    }

    /// Returns the numbers of own keys in the buckets.
    pub(super) fn own_sizes(&self) -> &[u32] {
        &self.own
    }

    /// Sets the numbers of all ranks' keys in the buckets.
    pub(super) fn set_totals(&mut self, totals: &[u32]) {
        self.totals.copy_from_slice(totals);
    }

    /// Gives each rank consecutive buckets: a rank gets buckets until the ranks up to this one have their share of all keys.
    pub(super) fn assign(&mut self) {
        let share = self.class.keys() / self.ranks;
        self.first.clear();
        self.first.push(0);
        let mut below = 0;
        for (bucket, total) in self.totals.iter().enumerate() {
            below += *total as usize;
            while self.first.len() < self.ranks && below >= self.first.len() * share {
                self.first.push(bucket + 1);
            }
        }
        self.first.resize(self.ranks, self.class.buckets());
        self.first.push(self.class.buckets());
    }

    /// Returns the number of own keys in the buckets of a rank.
    pub(super) fn own_keys_for(&self, rank: Rank) -> u32 {
        self.own[self.of(rank)].iter().sum()
    }

    /// Returns the keys that are in the buckets of a rank.
    pub(super) fn range_of(&self, rank: Rank) -> Range<u32> {
        let start = |bucket: usize| u32::try_from(bucket).expect("few buckets") << self.class.bucket_shift();
        let Range { start: first, end } = self.of(rank);
        start(first)..start(end)
    }

    /// Returns the number of all keys in the buckets of the ranks below this one.
    pub(super) fn keys_below(&self, rank: Rank) -> u32 {
        self.totals[..self.first[rank.0]].iter().sum()
    }

    fn of(&self, rank: Rank) -> Range<usize> {
        self.first[rank.0]..self.first[rank.0 + 1]
    }
}

/// The ranks of the keys in a range.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// Smallest key of the range.
    least: u32,
    /// Keys below the range.
    below: u32,
    /// For each key of the range, the number of keys in the range that are not larger.
    up_to: Vec<u32>,
}

impl Ranks {
    /// Counts `keys`, all of which are within `range`. There are `below` smaller ones at other ranks.
    pub(super) fn count(&mut self, keys: &[u32], range: Range<u32>, below: u32) {
        (self.least, self.below) = (range.start, below);
        self.up_to.clear();
        self.up_to.resize(range.len(), 0);
        for key in keys {
            self.up_to[(key - self.least) as usize] += 1;
        }
        let mut sum = 0;
        for count in &mut self.up_to {
            sum += *count;
            *count = sum;
        }
    }

    /// Returns the number of smaller keys of all ranks, if `key` is in the range.
    pub(super) fn of(&self, key: u32) -> Option<u32> {
        let at = key.checked_sub(self.least).filter(|at| (*at as usize) < self.up_to.len())? as usize;
        Some(self.below + if at == 0 { 0 } else { self.up_to[at - 1] })
    }

    /// Returns the counted keys in the order of their ranks.
    pub(super) fn sort(&self, keys: &[u32]) -> Vec<u32> {
        let mut places = self.up_to.clone();
        let mut sorted = vec![0; keys.len()];
        for key in keys {
            let place = &mut places[(key - self.least) as usize];
            *place -= 1;
            sorted[*place as usize] = *key;
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_smaller_keys() {
        let mut ranks = Ranks::default();
        ranks.count(&[13, 11, 13, 10], 10..15, 100);
        assert_eq!(
            [9, 10, 11, 12, 13, 14, 15].map(|key| ranks.of(key)),
            [None, Some(100), Some(101), Some(102), Some(102), Some(104), None]
        );
        assert_eq!(ranks.sort(&[13, 11, 13, 10]), [10, 11, 13, 13]);
    }

    #[test]
    fn each_rank_gets_about_its_share() {
        let mut buckets = Buckets::new(Class::S, 4);
        // All keys in four buckets, one of which has half of them.
        let mut totals = vec![0; Class::S.buckets()];
        (totals[3], totals[5], totals[6], totals[500]) = (1 << 15, 1 << 14, 1 << 13, 1 << 13);
        buckets.set_totals(&totals);
        buckets.assign();
        assert_eq!(buckets.first, [0, 4, 4, 6, 512]);
        assert_eq!(buckets.range_of(Rank(0)), 0..16);
        assert!(buckets.range_of(Rank(1)).is_empty());
        assert_eq!([2, 3].map(|rank| buckets.keys_below(Rank(rank))), [1 << 15, 3 << 14]);
    }
}

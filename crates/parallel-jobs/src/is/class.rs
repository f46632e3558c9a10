//! The sizes of the problem and the published ranks of test keys.

/// Iterations of every class.
pub(super) const ITERATIONS: u32 = 10;
/// Keys whose ranks are compared with published values, in each iteration.
pub(super) const TEST_KEYS: usize = 5;

/// A size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 2^16 keys below 2^11.
    S,
    /// 2^20 keys below 2^16.
    W,
    /// 2^23 keys below 2^19.
    A,
}

/// A test key: its position in the whole sequence, its rank without the changed keys, and how that rank changes with the iteration.
struct TestKey {
    index: usize,
    rank: u32,
    change: Change,
}

/// Change of a test rank. The keys that change in iteration `i` are a small one and a large one. They replace keys of any size, so the rank
/// of a small test key rises and that of a large one falls.
enum Change {
    /// By `i + offset`.
    Rises(i32),
    /// By `i + offset`.
    Falls(i32),
}

use Change::{Falls, Rises};

const fn key(index: usize, rank: u32, change: Change) -> TestKey {
    TestKey { index, rank, change }
}

/// The values that NPB 3 publishes for its IS, by class.
const TESTS_S: [TestKey; TEST_KEYS] = [
    key(48_427, 0, Rises(0)),
    key(17_148, 18, Rises(0)),
    key(23_627, 346, Rises(0)),
    key(62_548, 64_917, Falls(0)),
    key(4_431, 65_463, Falls(0)),
];
const TESTS_W: [TestKey; TEST_KEYS] = [
    key(357_773, 1_249, Rises(-2)),
    key(934_767, 11_698, Rises(-2)),
    key(875_723, 1_039_987, Falls(0)),
    key(898_999, 1_043_896, Falls(0)),
    key(404_505, 1_048_018, Falls(0)),
];
const TESTS_A: [TestKey; TEST_KEYS] = [
    key(2_112_377, 104, Rises(-1)),
    key(662_041, 17_523, Rises(-1)),
    key(5_336_171, 123_928, Rises(-1)),
    key(3_642_833, 8_288_932, Falls(-1)),
    key(4_250_760, 8_388_264, Falls(-1)),
];

impl Class {
    /// Returns the number of keys of all ranks.
    pub const fn keys(self) -> usize {
        1 << match self {
            Self::S => 16,
            Self::W => 20,
            Self::A => 23,
        }
    }

    /// Returns the number above all keys.
    pub const fn key_range(self) -> u32 {
        1 << self.key_bits()
    }

    /// Returns the number of bits of a key that do not select its bucket.
    pub(super) const fn bucket_shift(self) -> u32 {
        self.key_bits() - self.bucket_bits()
    }

    /// Returns the number of buckets.
    pub(super) const fn buckets(self) -> usize {
        1 << self.bucket_bits()
    }

    const fn key_bits(self) -> u32 {
        match self {
            Self::S => 11,
            Self::W => 16,
            Self::A => 19,
        }
    }

    const fn bucket_bits(self) -> u32 {
        if matches!(self, Self::S) { 9 } else { 10 }
    }

    const fn tests(self) -> &'static [TestKey; TEST_KEYS] {
        match self {
            Self::S => &TESTS_S,
            Self::W => &TESTS_W,
            Self::A => &TESTS_A,
        }
    }

    /// Returns the positions of the test keys in the sequence of all keys.
    pub(super) fn test_indices(self) -> [usize; TEST_KEYS] {
        self.tests().each_ref().map(|test| test.index)
    }

    /// Returns the published rank of a test key in an iteration.
    pub(super) fn test_rank(self, test: usize, iteration: u32) -> u32 {
        let TestKey { rank, change, .. } = &self.tests()[test];
        let iteration = iteration.cast_signed();
        match change {
            Rises(offset) => rank.checked_add_signed(iteration + offset),
            Falls(offset) => rank.checked_sub((iteration + offset).cast_unsigned()),
        }
        .expect("published ranks are in range")
    }
}

//! IS: ranks of integer keys by a bucket sort, which sends each key to the rank that owns its bucket.
//!
//! Written from the NAS report RNR-94-007, section 2.3.5, and from the documentation of NPB 3. In each of ten iterations two keys change, the
//! sizes of all buckets are added over all ranks, each bucket is assigned to a rank, and the keys are exchanged. The ranks of five keys are
//! compared with published values (*partial verification*). After the last iteration the keys are sorted by their ranks (*full
//! verification*).

mod class;
mod ranking;

use zerocopy::IntoBytes;

use crate::comm::{Comm, CommError, Incoming, Outgoing, Rank, Reduction, Tag};
use crate::outcome::{Clock, Outcome, Watch};
use crate::random::{Random, SEED};
use crate::usage::Meter;
pub use class::Class;
use class::{ITERATIONS, TEST_KEYS};
use ranking::{Buckets, Ranks};

/// Tag of the largest key of a rank, sent to the rank above.
const LARGEST: Tag = Tag(1);

/// The keys of a rank, before they are sorted.
#[derive(Debug)]
pub struct IntegerSort {
    class: Class,
    /// The part of the key sequence that belongs to this rank.
    keys: Vec<u32>,
    /// Test ranks that were correct, over all iterations.
    correct: u32,
}

/// Work arrays, which the iterations share.
struct Work {
    buckets: Buckets,
    /// Own keys in the order of their buckets.
    ordered: Vec<u32>,
    /// Keys of the own buckets.
    received: Vec<u32>,
    ranks: Ranks,
}

impl IntegerSort {
    /// Generates the keys of this rank. The whole sequence is the same for every number of ranks.
    ///
    /// # Panics
    /// Panics if the number of ranks does not divide the number of keys.
    pub fn new(comm: &impl Comm, class: Class) -> Self {
        let (size, rank) = (comm.size(), comm.rank().0);
        assert!(class.keys().is_multiple_of(size), "{size} ranks cannot share {} keys", class.keys());
        let count = class.keys() / size;
        // Each key is the average of four numbers, scaled to the range of keys.
        let mut random = Random::new(SEED).skip(4 * (rank * count) as u64);
        let quarter = f64::from(class.key_range() / 4);
        let mut key = || {
            let sum = random.next() + random.next() + random.next() + random.next();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= sum < 4")]
            let key = (quarter * sum) as u32;
            key
        };
        Self { class, keys: (0..count).map(|_| key()).collect(), correct: 0 }
    }

    /// Returns the keys, which a test may change.
    pub fn keys_mut(&mut self) -> &mut [u32] {
        &mut self.keys
    }

    /// Ranks the keys ten times and verifies the result.
    ///
    /// # Errors
    /// A rank has ended.
    pub fn run(
        mut self,
        comm: &mut impl Comm,
        clock: &impl Clock,
        watch: &dyn Watch,
    ) -> Result<Outcome, CommError> {
        let mut work = Work {
            buckets: Buckets::new(self.class, comm.size()),
            ordered: vec![0; self.keys.len()],
            received: Vec::new(),
            ranks: Ranks::default(),
        };
        // An iteration that does not count touches all memory, as in NPB.
        self.iterate(comm, &mut work, 1)?;
        self.correct = 0;
        comm.barrier()?;
        let meter = Meter::start(clock, comm.traffic());
        for iteration in 1..=ITERATIONS {
            watch.reached(iteration, ITERATIONS);
            self.iterate(comm, &mut work, iteration)?;
        }
        let usage = meter.stop(clock, comm.traffic());
        let is_sorted = self.full_verification(comm, &work)?;
        let mut correct = [self.correct];
        comm.allreduce(Reduction::SumU32(&mut correct))?;
        let tests = ITERATIONS * u32::try_from(TEST_KEYS).expect("five");
        Ok(Outcome {
            usage,
            verified: is_sorted && correct[0] == tests,
            detail: format!(
                "{} of {tests} test ranks are right, the keys are {}",
                correct[0],
                if is_sorted { "sorted" } else { "not sorted" }
            ),
            work: f64::from(ITERATIONS) * self.class.keys() as f64,
            unit: "keys ranked",
        })
    }

    /// Ranks the keys once.
    fn iterate(&mut self, comm: &mut impl Comm, work: &mut Work, iteration: u32) -> Result<(), CommError> {
        if comm.rank() == Rank(0) {
            self.keys[iteration as usize] = iteration;
            self.keys[(iteration + ITERATIONS) as usize] = self.class.key_range() - iteration;
        }
        let Work { buckets, ordered, received, ranks } = work;
        buckets.order(&self.keys, ordered);
        let test_keys = self.share_sums(comm, buckets)?;
        buckets.assign();
        exchange_keys(comm, buckets, ordered, received)?;
        ranks.count(received, buckets.range_of(comm.rank()), buckets.keys_below(comm.rank()));
        for (index, key) in test_keys.iter().enumerate() {
            let expected = self.class.test_rank(index, iteration);
            self.correct += u32::from(ranks.of(*key).is_some_and(|rank| rank == expected));
        }
        Ok(())
    }

    /// Adds the bucket sizes of all ranks. The test keys go along: the owner of each contributes it, the others zero.
    fn share_sums(&self, comm: &mut impl Comm, buckets: &mut Buckets) -> Result<[u32; TEST_KEYS], CommError> {
        let first = comm.rank().0 * self.keys.len();
        let own = |index: usize| index.checked_sub(first).and_then(|at| self.keys.get(at));
        let tests = self.class.test_indices().map(|index| own(index).copied().unwrap_or(0));
        let mut sums = buckets.own_sizes().to_vec();
        sums.extend(tests);
        comm.allreduce(Reduction::SumU32(&mut sums))?;
        let (totals, tests) = sums.split_at(sums.len() - TEST_KEYS);
        buckets.set_totals(totals);
        Ok(tests.try_into().expect("as many as were added"))
    }

    /// Sorts the received keys by their ranks, and checks that they and their neighbours at other ranks are in order, and that no key is
    /// missing.
    fn full_verification(&self, comm: &mut impl Comm, work: &Work) -> Result<bool, CommError> {
        let sorted = work.ranks.sort(&work.received);
        let (rank, size) = (comm.rank().0, comm.size());
        let largest = sorted.last().copied().unwrap_or(0);
        let mut below = [0_u32];
        let to = (rank + 1 < size).then(|| Outgoing {
            to: Rank(rank + 1),
            tag: LARGEST,
            bytes: largest.as_bytes(),
        });
        let from = (rank > 0).then(|| Incoming {
            from: Rank(rank.wrapping_sub(1)),
            tag: LARGEST,
            bytes: below.as_mut_bytes(),
        });
        let (to, mut from): (Vec<_>, Vec<_>) = (to.into_iter().collect(), from.into_iter().collect());
        comm.exchange(&to, &mut from)?;
        let is_sorted = sorted.is_sorted() && sorted.first().is_none_or(|first| below[0] <= *first);
        let mut sums = [u32::from(is_sorted), u32::try_from(sorted.len()).expect("fewer than 2^32 keys")];
        comm.allreduce(Reduction::SumU32(&mut sums))?;
        Ok(sums[0] as usize == size && sums[1] as usize == self.class.keys())
    }
}

/// Sends each key to the owner of its bucket.
fn exchange_keys(
    comm: &mut impl Comm,
    buckets: &Buckets,
    ordered: &[u32],
    received: &mut Vec<u32>,
) -> Result<(), CommError> {
    const KEY: usize = size_of::<u32>();
    let size = comm.size();
    let send: Vec<u32> = (0..size).map(|rank| buckets.own_keys_for(Rank(rank))).collect();
    let mut receive = vec![0_u32; size];
    let one_each = vec![KEY; size];
    comm.all_to_all(send.as_bytes(), receive.as_mut_bytes(), (&one_each, &one_each))?;
    let bytes = |counts: &[u32]| counts.iter().map(|count| *count as usize * KEY).collect::<Vec<_>>();
    received.resize(receive.iter().map(|count| *count as usize).sum(), 0);
    let lengths = (bytes(&send), bytes(&receive));
    comm.all_to_all(ordered.as_bytes(), received.as_mut_bytes(), (&lengths.0, &lengths.1))
}

//! A comparison of the send ring with a model: a list of live extents that must not overlap.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use proptest::prelude::*;

use super::{Chunk, Exhausted, Frame, Loan, Placement, PresentRing, RingConfig, SendRing, SlotClass};
use crate::fabric::HeapSendMemory;
use crate::time::Nanos;

const CHUNK: usize = 2048;
const ARENA: u32 = 512;
const LEN: usize = 5 * CHUNK + 8 * ARENA as usize;

#[derive(Clone, Debug)]
enum Step {
    Loan {
        len: usize,
    },
    /// A loan of a thread, from its arena if it fits.
    LoanBy {
        thread: usize,
        len: usize,
    },
    /// The provider reclaims the memory of an idle thread arena.
    TrimStrip,
    Shrink {
        len: usize,
    },
    Free {
        pick: usize,
    },
    Commit,
    Trim,
    /// The provider returns the chunk that is lent to it, ready if `ready`.
    Provider {
        ready: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop_oneof![0..400usize, 0..3 * CHUNK].prop_map(|len| Step::Loan { len }),
        6 => (0..3usize, 0..200usize).prop_map(|(thread, len)| Step::LoanBy { thread, len }),
        1 => Just(Step::TrimStrip),
        1 => (0..400usize).prop_map(|len| Step::Shrink { len }),
        5 => any::<usize>().prop_map(|pick| Step::Free { pick }),
        2 => Just(Step::Commit),
        1 => Just(Step::Trim),
        2 => any::<bool>().prop_map(|ready| Step::Provider { ready }),
    ];
    prop::collection::vec(step, 0..300)
}

fn range(frame: &Frame) -> Range<usize> {
    let start = frame.extent().offset as usize;
    // An empty buffer has its own line, too.
    start..start + frame.len().max(1)
}

/// The ring, its live buffers, and the ranges that are ready.
struct Model {
    ring: Arc<SendRing>,
    present: PresentRing,
    live: Vec<(Frame, u8)>,
    ready: Vec<Range<usize>>,
    in_hand: Vec<Chunk>,
    count: u8,
}

impl Model {
    fn new(placement: Placement) -> Self {
        let config = RingConfig {
            chunk_bytes: 2048,
            first_chunk_bytes: 1024,
            arena_bytes: ARENA,
            long_bytes: 512,
            overflow: [128, 256, 512].map(|bytes| SlotClass { bytes, count: 2 }),
            straggler_after: Nanos::from_millis(100),
            placement,
        };
        let ring =
            Arc::new(SendRing::new(Arc::new(HeapSendMemory::new(LEN)), config).expect("the memory is new"));
        let ready = ring.initial().into();
        let present = PresentRing::new();
        present.set(Some(Arc::clone(&ring)), || unreachable!("no other thread is here"));
        Self { ring, present, live: Vec::new(), ready, in_hand: Vec::new(), count: 0 }
    }

    fn loan(&mut self, len: usize, shrink_to: Option<usize>) -> Result<(), TestCaseError> {
        let mut loan = match Arc::clone(&self.ring).loan(len, 0) {
            Ok(loan) => loan,
            Err(Exhausted::TooLarge { .. }) => {
                prop_assert!(len > CHUNK);
                return Ok(());
            }
            Err(_) => {
                prop_assert!(!self.live.is_empty() || len > 1024 || !self.in_hand.is_empty());
                return Ok(());
            }
        };
        loan.shrink(shrink_to.unwrap_or(len));
        self.keep(loan)
    }

    fn keep(&mut self, mut loan: Loan) -> Result<(), TestCaseError> {
        self.count = self.count.wrapping_add(1);
        loan.as_mut_slice().fill(self.count);
        let frame = loan.finish();
        let new = range(&frame);
        prop_assert_eq!(new.start % 64, 0);
        prop_assert!(self.ready.iter().any(|ready| ready.start <= new.start && new.end <= ready.end));
        for (other, _) in &self.live {
            let old = range(other);
            prop_assert!(new.end <= old.start || old.end <= new.start, "{:?} overlaps {:?}", new, old);
        }
        self.live.push((frame, self.count));
        Ok(())
    }

    fn free(&mut self, pick: usize) -> Result<(), TestCaseError> {
        if self.live.is_empty() {
            return Ok(());
        }
        let (frame, mark) = self.live.swap_remove(pick % self.live.len());
        prop_assert!(frame.bytes().iter().all(|byte| *byte == mark), "overwritten while alive");
        drop(frame.post().completed());
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Loan { len } => self.loan(len, None)?,
            Step::LoanBy { thread, len } => {
                if let Some(Ok(loan)) = self.present.loan_by(thread, len, 0) {
                    self.keep(loan)?;
                }
            }
            Step::TrimStrip => {
                if let Some(arena) = self.present.idle_arena() {
                    let range = arena.range();
                    prop_assert!(
                        self.live.iter().all(|(frame, _)| !range.contains(&(frame.extent().offset as usize)))
                    );
                }
            }
            Step::Shrink { len } => self.loan(400, Some(len))?,
            Step::Free { pick } => self.free(pick)?,
            Step::Commit => self.in_hand.extend(self.ring.commit_next()),
            Step::Trim => {
                if let Some(chunk) = self.ring.trim() {
                    let range = chunk.range();
                    prop_assert!(
                        self.live.iter().all(|(frame, _)| !range.contains(&(frame.extent().offset as usize)))
                    );
                    self.ready.retain(|ready| *ready != range);
                    self.in_hand.push(chunk);
                }
            }
            Step::Provider { ready } => match self.in_hand.pop() {
                Some(chunk) if ready => {
                    self.ready.push(chunk.range());
                    self.ring.open(chunk);
                }
                Some(chunk) => self.ring.close(chunk),
                None => {}
            },
        }
        let stats = self.ring.stats();
        prop_assert_eq!((stats.live + stats.overflow_in_use) as usize, self.live.len());
        Ok(())
    }

    fn end(mut self) -> Result<(), TestCaseError> {
        while !self.live.is_empty() {
            self.free(0)?;
        }
        let stats = self.ring.stats();
        prop_assert_eq!((stats.live, stats.overflow_in_use, stats.abandoned), (0, 0, 0));
        prop_assert_eq!(self.ring.oldest(), None);
        self.loan(1024, None)?;
        prop_assert_eq!(self.live.len(), 1, "an empty ring takes what fits its first chunk");
        Ok(())
    }
}

proptest! {
    #[test]
    fn buffers_never_overlap_and_all_come_back(steps in steps()) {
        let mut model = Model::new(Placement::HotFirst);
        for step in steps {
            model.step(step)?;
        }
        model.end()?;
    }

    #[test]
    fn circular_buffers_never_overlap_and_all_come_back(steps in steps()) {
        let mut model = Model::new(Placement::Circular);
        for step in steps {
            model.step(step)?;
        }
        while !model.live.is_empty() {
            model.free(0)?;
        }
        prop_assert_eq!(model.ring.stats().live, 0);
    }
}

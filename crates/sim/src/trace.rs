//! All events in order: a hash of everything, and the last events as text.

use core::fmt;
use std::collections::VecDeque;

use pronto_core::Nanos;

/// Number of events kept as text, for the message of a failed check.
const KEPT: usize = 200;

/// Trace of a world. Two runs with the same seed have the same hash; otherwise, something is not deterministic.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    last: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    what: &'static str,
    numbers: [u64; 3],
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, count: 0, last: VecDeque::with_capacity(KEPT) }
    }

    pub(crate) fn note(&mut self, at: Nanos, what: &'static str, numbers: [u64; 3]) {
        self.count += 1;
        self.mix(at.0);
        for byte in what.bytes() {
            self.mix(byte.into());
        }
        for number in numbers {
            self.mix(number);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(Entry { at, what, numbers });
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events, hash {:016x}; the last {}:", self.count, self.hash, self.last.len())?;
        for Entry { at, what, numbers: [a, b, c] } in &self.last {
            writeln!(f, "{:>12} ns  {what} {a} {b} {c}", at.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_time_kind_numbers_and_order() {
        let hash = |events: &[(u64, &'static str, u64)]| {
            let mut trace = Trace::new();
            for (at, what, number) in events {
                trace.note(Nanos(*at), what, [*number, 0, 0]);
            }
            trace.hash()
        };
        let base = hash(&[(1, "a", 1), (2, "b", 2)]);
        assert_eq!(base, hash(&[(1, "a", 1), (2, "b", 2)]));
        for other in [
            hash(&[(1, "a", 1), (3, "b", 2)]),
            hash(&[(1, "a", 1), (2, "c", 2)]),
            hash(&[(1, "a", 1), (2, "b", 3)]),
            hash(&[(2, "b", 2), (1, "a", 1)]),
            hash(&[(1, "a", 1)]),
        ] {
            assert_ne!(base, other);
        }
    }
}

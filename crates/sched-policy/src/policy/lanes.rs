// SPDX-License-Identifier: MIT OR Apache-2.0
//! The next lane to serve: control before bulk, the oldest first, and bulk never starves.
//!
//! A lane is an ordered stream of handler executions, one at a time. Control messages are small and waited for, bulk
//! messages are large (the comm-layer paper, section 3.1, distinguishes control from data); control goes first. Within
//! a class, the lane whose head has waited longest goes first, so a lane waits for each other lane once at most. A
//! class that is passed over must not starve, as in the coscheduling paper for local tasks (section 4.2): after
//! [`IN_A_ROW`] control lanes while bulk was ready, a bulk lane is served.

use super::time::Nanos;

/// Control lanes served in a row while bulk is ready, which leaves bulk at least one turn in 17. Chosen by us; no
/// source.
pub const IN_A_ROW: u8 = 16;

/// The class of a lane's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Small messages that a caller waits for.
    Control,
    /// Large messages.
    Bulk,
}

/// The work of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// No work.
    Idle,
    /// A running item; the next one must wait for it.
    Running,
    /// A waiting item that may run.
    Ready {
        /// Time since which it waits.
        since: Nanos,
    },
}

/// A lane, reduced to the inputs of this decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Class of its messages.
    pub class: Class,
    /// Its work.
    pub work: Work,
}

/// State of the alternation between control and bulk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    passed: u8,
}

impl Turn {
    /// Initial state.
    pub const NEW: Self = Self { passed: 0 };

    /// Returns the index of the lane to serve now, if any is ready. Examines each lane once; on a tie, the lowest index
    /// wins.
    #[must_use]
    pub fn next(self, lanes: &[Lane]) -> (Self, Option<usize>) {
        match (oldest(lanes, Class::Control), oldest(lanes, Class::Bulk)) {
            (Some(control), None) => (Self::NEW, Some(control)),
            (Some(control), Some(_)) if self.passed < IN_A_ROW => {
                (Self { passed: self.passed.saturating_add(1) }, Some(control))
            }
            (_, Some(bulk)) => (Self::NEW, Some(bulk)),
            (None, None) => (self, None),
        }
    }
}

fn oldest(lanes: &[Lane], class: Class) -> Option<usize> {
    // `enumerate` counts with an overflow check, which is a panic in the kernel; a range that ends does not.
    (0..lanes.len())
        .zip(lanes)
        .filter(|(_, lane)| lane.class == class)
        .filter_map(|(place, lane)| match lane.work {
            Work::Ready { since } => Some((since, place)),
            Work::Idle | Work::Running => None,
        })
        .min()
        .map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ready(class: Class, since: u64) -> Lane {
        Lane { class, work: Work::Ready { since: Nanos(since) } }
    }

    #[test]
    fn control_goes_first_and_the_oldest_of_it() {
        let lanes = [ready(Class::Bulk, 1), ready(Class::Control, 9), ready(Class::Control, 5)];
        assert_eq!(Turn::NEW.next(&lanes).1, Some(2));
        assert_eq!(Turn::NEW.next(&lanes[..2]).1, Some(1));
        assert_eq!(Turn::NEW.next(&lanes[..1]).1, Some(0));
        assert_eq!(Turn::NEW.next(&[]).1, None);
    }

    #[test]
    fn a_lane_that_runs_is_not_served_twice() {
        let running = Lane { class: Class::Control, work: Work::Running };
        let idle = Lane { class: Class::Control, work: Work::Idle };
        assert_eq!(Turn::NEW.next(&[running, idle, ready(Class::Bulk, 7)]).1, Some(2));
    }

    #[test]
    fn bulk_has_its_turn_after_sixteen_of_control() {
        let lanes = [ready(Class::Control, 0), ready(Class::Bulk, 0)];
        let mut turn = Turn::NEW;
        for _ in 0..3 {
            for _ in 0..IN_A_ROW {
                let (next, place) = turn.next(&lanes);
                assert_eq!(place, Some(0));
                turn = next;
            }
            let (next, place) = turn.next(&lanes);
            assert_eq!(place, Some(1));
            turn = next;
        }
    }
}

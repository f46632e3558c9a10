//! The next lane to serve: control before bulk, the oldest first, and bulk never starves.
//!
//! A lane is an ordered stream of handler executions, one at a time. Control is small and waited for, bulk is large (the
//! comm-layer paper, section 3.1, tells control from data); control goes first. Within a class the lane goes first whose
//! head has waited longest, so that no lane waits for more than each of the others once. As the coscheduling paper has
//! it for local tasks (section 4.2), what is passed must not starve: after [`IN_A_ROW`] lanes of control while bulk was
//! ready, bulk has a turn.

use super::time::Nanos;

/// Lanes of control served in a row while bulk is ready: the share of bulk is at least one in 17 then. Ours.
pub const IN_A_ROW: u8 = 16;

/// What a lane carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Small and waited for.
    Control,
    /// Large.
    Bulk,
}

/// What a lane has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Nothing.
    Idle,
    /// An item runs; the next one must wait for it.
    Running,
    /// An item waits, and may run.
    Ready {
        /// Since when.
        since: Nanos,
    },
}

/// A lane, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// What it carries.
    pub class: Class,
    /// What it has to do.
    pub work: Work,
}

/// Whose turn it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    passed: u8,
}

impl Turn {
    /// Nobody had a turn yet.
    pub const NEW: Self = Self { passed: 0 };

    /// The place of the lane to serve now, if any is ready. One look at each lane; equals go by place.
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

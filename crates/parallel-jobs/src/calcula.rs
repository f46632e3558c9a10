//! The local task `calcula` of the coscheduling paper (section 4): floating-point work, endless or a number of units.

use core::hint::black_box;

use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::comm::Traffic;
use crate::outcome::{Clock, Outcome};
use crate::usage::Meter;

/// Steps of a unit. A step is one dependent multiplication and addition, so a unit takes about 50 µs on a CPU of some GHz.
const STEPS: u32 = 20_000;

/// End of the work.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// After this number of units.
    Units(u64),
    /// After this time, seconds.
    Seconds(f64),
    /// When the flag is set.
    Stopped(&'a AtomicBool),
}

/// Does one unit of work, whose result depends on `value`.
pub fn unit(value: f64) -> f64 {
    // The logistic map in its chaotic range: every step needs the one before.
    let mut x = 0.25 + 0.5 / (1.0 + value.abs());
    for _ in 0..STEPS {
        x = black_box(3.7 * x * (1.0 - x));
    }
    x
}

/// Works until the end and counts the units.
pub fn run(until: Until<'_>, clock: &impl Clock) -> Outcome {
    let meter = Meter::start(clock, Traffic::default());
    let mut units = 0_u64;
    let mut right = true;
    let expected = unit(0.0);
    loop {
        let is_over = match until {
            Until::Units(limit) => units >= limit,
            Until::Seconds(limit) => meter.seconds(clock) >= limit,
            // SYNC: the flag alone is shared; it orders nothing else.
            Until::Stopped(flag) => flag.load(Ordering::Relaxed),
        };
        if is_over {
            break;
        }
        right &= unit(0.0).to_bits() == expected.to_bits();
        units += 1;
    }
    Outcome {
        usage: meter.stop(clock, Traffic::default()),
        verified: right,
        detail: if right {
            "every unit had the same result".into()
        } else {
            "results of units differ".into()
        },
        work: units as f64,
        unit: "units",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::SystemClock;

    #[test]
    fn the_given_number_of_units_is_done() {
        let outcome = run(Until::Units(7), &SystemClock);
        assert!(outcome.verified && outcome.work == 7.0, "{outcome:?}");
        assert!(unit(0.0) > 0.0 && unit(0.0) < 1.0 && unit(0.0) != unit(1.0));
    }

    #[test]
    fn a_flag_and_a_time_end_it() {
        assert_eq!(run(Until::Stopped(&AtomicBool::new(true)), &SystemClock).work, 0.0);
        assert!(run(Until::Seconds(0.002), &SystemClock).usage.seconds >= 0.002);
    }
}

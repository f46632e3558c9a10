//! EEVDF's data about a task; converts nice values to weights and slices to virtual time.

use pronto_sched_policy::policy::time::Nanos;

use super::super::Class;
use crate::id::Core;

/// Virtual time, in nanoseconds of a task of nice 0. It may be negative; only differences count.
pub(super) type Virtual = i64;

/// The weight of nice 0 (`NICE_0_LOAD`, without the bits that 64-bit kernels add below).
const NICE_0: i64 = 1024;

/// Shortest and longest slice that a task may ask for (`__setparam_fair`).
const SLICES: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(100));

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entity {
    pub(super) weight: i64,
    /// Request, nanoseconds; `None` for the base slice.
    custom: Option<i64>,
    pub(super) slice: i64,
    pub(super) vruntime: Virtual,
    pub(super) deadline: Virtual,
    /// Lag over weight, as of when it left the queue.
    pub(super) vlag: Virtual,
    /// Virtual time up to which it is protected from preemption.
    pub(super) vprot: Virtual,
    /// `deadline` is relative to `vruntime`: it left the queue without sleeping.
    pub(super) relative: bool,
    /// In the fair queue, on a CPU or not.
    pub(super) queued: bool,
    /// Asleep, but in the queue until its negative lag is used up.
    pub(super) delayed: bool,
    /// It has been in a queue before.
    pub(super) begun: bool,
    pub(super) class: Class,
    /// CPU on which it is queued, or was last.
    pub(super) core: Core,
}

impl Entity {
    /// Returns a task that was never queued.
    pub(super) fn new(nice: i8, slice: Option<Nanos>, base: i64) -> Self {
        let custom = slice.map(|slice| slice.clamp(SLICES.0, SLICES.1).0.cast_signed());
        Self {
            weight: weight(nice),
            custom,
            slice: custom.unwrap_or(base),
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            vprot: 0,
            relative: false,
            queued: false,
            delayed: false,
            begun: false,
            class: Class::Normal,
            core: Core(0),
        }
    }

    /// Converts real time to this task's virtual time (`calc_delta_fair`).
    pub(super) const fn virtually(&self, time: i64) -> Virtual {
        if self.weight == NICE_0 { time } else { time.saturating_mul(NICE_0) / self.weight }
    }

    /// Converts this task's virtual time to real time.
    pub(super) const fn really(&self, time: Virtual) -> i64 {
        time.saturating_mul(self.weight) / NICE_0
    }

    /// Begins a new request: the deadline is a slice ahead.
    pub(super) fn request(&mut self, base: i64) {
        self.slice = self.custom.unwrap_or(base);
        self.deadline = self.vruntime + self.virtually(self.slice);
    }

    /// Returns whether it is still protected from preemption by fair tasks.
    pub(super) const fn protected(&self) -> bool {
        self.vruntime < self.vprot
    }
}

/// Returns the weight of a nice value: 1024, and a quarter more or less with each step (`sched_prio_to_weight` is that,
/// rounded).
pub(super) fn weight(nice: i8) -> i64 {
    let weight = 1024.0 / 1.25_f64.powi(i32::from(nice));
    #[expect(clippy::cast_possible_truncation, reason = "between 15 and 88,818")]
    let weight = weight.round() as i64;
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kernel_s_within_a_step_of_rounding() {
        assert_eq!([0, 1, 19, -1].map(weight), [1024, 819, 15, 1280]);
        // The kernel has 820 and 1277 there, 88,761 at -20.
        assert!((weight(-20) - 88_761).abs() < 100);
    }

    #[test]
    fn heavy_tasks_age_slowly() {
        let light = Entity::new(0, None, 700_000);
        let heavy = Entity::new(-10, None, 700_000);
        assert_eq!(light.virtually(1_000), 1_000);
        assert!((100..120).contains(&heavy.virtually(1_000)));
        assert!((990..=1_000).contains(&heavy.really(heavy.virtually(1_000))));
    }

    #[test]
    fn slices_stay_within_the_limits_of_the_kernel() {
        let slice = |us| Entity::new(0, Some(Nanos::from_micros(us)), 700_000).slice;
        assert_eq!([1, 100, 5_000, 1_000_000].map(slice), [100_000, 100_000, 5_000_000, 100_000_000]);
    }
}

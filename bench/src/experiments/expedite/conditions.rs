//! The conditions of a row: the preemption model, and the CPUs of handlers and background.

use crate::expedite::{Machine, Place, Preempt, Setting};
use crate::params::{Choice as _, Params};
use crate::report::Fields;

/// Conditions of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    pub(super) preempt: Preempt,
    pub(super) place: Place,
}

impl Conditions {
    /// Those of Debian, with handlers and background on one CPU. All claims are about these.
    pub(super) const USUAL: Self = Self { preempt: Preempt::Lazy, place: Place::Pinned };

    /// All conditions, in the order in which they are measured: those on all CPUs are last, because the machine stays so.
    const ALL: [Self; 3] = [
        Self::USUAL,
        Self { preempt: Preempt::Full, ..Self::USUAL },
        Self { place: Place::Anywhere, ..Self::USUAL },
    ];

    /// Returns those that the run selects.
    pub(super) fn kept(params: &Params) -> Vec<Self> {
        let keeps = |conditions: &Self| {
            params.keeps("preempt", conditions.preempt.name())
                && params.keeps("place", conditions.place.name())
        };
        Self::ALL.into_iter().filter(keeps).collect()
    }

    /// Returns whether a short run has rows with this setting. Full preemption lets threads with short slices preempt others
    /// immediately, so the slice is compared with no boost there.
    pub(super) fn compares(self, setting: Setting) -> bool {
        match self {
            Self { preempt: Preempt::Full, .. } => matches!(setting, Setting::Off | Setting::Slice),
            Self { place: Place::Anywhere, .. } => setting != Setting::Deadline,
            Self { .. } => true,
        }
    }

    /// Prepares the machine.
    pub(super) fn apply(self, machine: &mut Machine) -> anyhow::Result<()> {
        machine.preempt(self.preempt)?;
        if self.place == Place::Anywhere { machine.unpin() } else { Ok(()) }
    }

    /// Returns the conditions, for the progress.
    pub(super) fn label(self) -> String {
        format!("{} {}", self.preempt.name(), self.place.name())
    }

    /// Adds the columns of the conditions.
    pub(super) fn columns(self, row: Fields) -> Fields {
        row.with("preempt", self.preempt.name()).with("place", self.place.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_unpinned_last() {
        let places = Conditions::kept(&Params::new()).into_iter().map(|conditions| conditions.place);
        assert!(places.is_sorted_by_key(|place| place == Place::Anywhere));
    }

    #[test]
    fn rows_are_selected_by_both_columns() {
        let mut params = Params::new();
        params.choose("place", vec!["pinned".into()]);
        assert_eq!(Conditions::kept(&params).len(), 2);
        params.choose("preempt", vec!["full".into()]);
        let kept = Conditions::kept(&params);
        assert_eq!(kept, [Conditions { preempt: Preempt::Full, place: Place::Pinned }]);
        assert!(kept[0].compares(Setting::Slice) && !kept[0].compares(Setting::Module));
    }
}

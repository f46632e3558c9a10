//! The boosts that services are measured with: those that this process is permitted to use.

use pronto::{Boost, WaitPolicy};
use pronto_core::Tier;

use super::CROWD;
use crate::echo::Wait;
pub(super) use crate::echo::boosts as name;
use crate::params::Params;

/// The values of the column.
pub(super) const NAMES: [&str; 4] = ["none", "slice", "fifo", "module"];

/// All tiers but none.
const TIERS: [(Boost, Tier); 3] =
    [(Boost::Slice, Tier::Slice), (Boost::Fifo, Tier::Fifo), (Boost::Module, Tier::Module)];

/// Gaps measured with a boost, in microseconds: long enough that threads sleep, short enough that a round has many calls.
const GAPS: [u64; 3] = [10, 100, 1_000];

/// Returns whether a thread with this boost sleeps immediately.
pub(super) const fn may_be_real_time(boost: Boost) -> bool {
    matches!(boost, Boost::Fifo | Boost::Module | Boost::Deadline)
}

/// Returns the selected tiers that services get here, and a note with the reason for each skipped one.
pub(super) fn granted(params: &Params) -> (Vec<Boost>, Vec<String>) {
    let wanted = |boost| params.keeps("boost", name(boost));
    let mut missing =
        vec!["skipped: boost deadline: its threads cannot be pinned, as those measured here are".to_owned()];
    let mut granted: Vec<Boost> = [Boost::None].into_iter().filter(|boost| wanted(*boost)).collect();
    for (boost, tier) in TIERS.into_iter().filter(|(boost, _)| wanted(*boost)) {
        let obtained = pronto_expedite::obtain(Some(tier));
        match obtained.missing.first() {
            None => granted.push(boost),
            Some((_, why)) => missing.push(format!("skipped: boost {}: {why}", name(boost))),
        }
    }
    (granted, missing)
}

/// Returns whether a boost can have an effect on such a row: services that poll are not woken.
pub(super) fn is_shown(wait: Wait, gap_us: u64, competing: usize) -> bool {
    wait.0 == WaitPolicy::Adaptive && GAPS.contains(&gap_us) && [0, CROWD].contains(&competing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_name_every_tier_that_is_measured() {
        let names: Vec<_> =
            [Boost::None].into_iter().chain(TIERS.map(|(boost, _)| boost)).map(name).collect();
        assert_eq!(names, NAMES);
        for (boost, tier) in TIERS {
            assert_eq!(may_be_real_time(boost), tier.may_be_real_time());
            assert_eq!(name(boost), tier.to_string());
        }
    }

    #[test]
    fn a_boost_is_shown_where_a_thread_is_woken() {
        let shown = |wait, gap_us, competing| is_shown(Wait(wait), gap_us, competing);
        assert!(shown(WaitPolicy::Adaptive, 100, 0) && shown(WaitPolicy::Adaptive, 10, CROWD));
        assert!(!shown(WaitPolicy::Spin, 100, 0) && !shown(WaitPolicy::Adaptive, 1, 0));
        assert!(!shown(WaitPolicy::Adaptive, 100_000, 0) && !shown(WaitPolicy::Adaptive, 100, 1));
    }

    #[test]
    fn skipped_tiers_are_noted() {
        let (granted, missing) = granted(&Params::default());
        assert_eq!(granted.len() + missing.len(), NAMES.len() + 1, "{granted:?}, {missing:?}");
        assert_eq!(granted.first(), Some(&Boost::None));
        assert!(
            missing[0].contains("deadline") && missing.iter().all(|why| why.starts_with("skipped: boost "))
        );
    }
}

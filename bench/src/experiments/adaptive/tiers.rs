//! The boosts that services are measured with: those that this process may have.

use pronto::{Boost, WaitPolicy};
use pronto_core::Tier;

use super::CROWD;
use crate::echo::Wait;
pub(super) use crate::echo::boosts as name;
use crate::params::Params;

/// Values of the column.
pub(super) const NAMES: [&str; 4] = ["none", "slice", "fifo", "module"];

/// Tiers beside none.
const TIERS: [(Boost, Tier); 3] =
    [(Boost::Slice, Tier::Slice), (Boost::Fifo, Tier::Fifo), (Boost::Module, Tier::Module)];

/// With a boost, calls that are neither so frequent that nobody is ever asleep nor so seldom that a round has a few only. Microseconds.
const GAPS: [u64; 3] = [10, 100, 1_000];

/// Whether a thread that has it sleeps at once.
pub(super) const fn may_be_real_time(boost: Boost) -> bool {
    matches!(boost, Boost::Fifo | Boost::Module | Boost::Deadline)
}

/// Those of the wanted that services get here, and what is left out, with the reason.
pub(super) fn granted(params: &Params) -> (Vec<Boost>, Vec<String>) {
    let wanted = |boost| params.keeps("boost", name(boost));
    let mut missing = vec![
        "left out: boost deadline, as its threads cannot be bound to a CPU, and those measured here are"
            .to_owned(),
    ];
    let mut granted: Vec<Boost> = [Boost::None].into_iter().filter(|boost| wanted(*boost)).collect();
    for (boost, tier) in TIERS.into_iter().filter(|(boost, _)| wanted(*boost)) {
        let obtained = pronto_expedite::obtain(Some(tier));
        match obtained.missing.first() {
            None => granted.push(boost),
            Some((_, why)) => missing.push(format!("left out: boost {}: {why}", name(boost))),
        }
    }
    (granted, missing)
}

/// Whether there is anything to see of a boost there: services that poll are not woken.
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
    fn a_boost_is_shown_where_somebody_is_woken() {
        let shown = |wait, gap_us, competing| is_shown(Wait(wait), gap_us, competing);
        assert!(shown(WaitPolicy::Adaptive, 100, 0) && shown(WaitPolicy::Adaptive, 10, CROWD));
        assert!(!shown(WaitPolicy::Spin, 100, 0) && !shown(WaitPolicy::Adaptive, 1, 0));
        assert!(!shown(WaitPolicy::Adaptive, 100_000, 0) && !shown(WaitPolicy::Adaptive, 100, 1));
    }

    #[test]
    fn what_is_left_out_is_said() {
        let (granted, missing) = granted(&Params::default());
        assert_eq!(granted.len() + missing.len(), NAMES.len() + 1, "{granted:?}, {missing:?}");
        assert_eq!(granted.first(), Some(&Boost::None));
        assert!(
            missing[0].contains("deadline") && missing.iter().all(|why| why.starts_with("left out: boost "))
        );
    }
}

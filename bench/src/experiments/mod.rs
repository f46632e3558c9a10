//! The list of experiments: one file each.

pub(crate) mod adaptive;
mod anatomy;
mod bandwidth;
pub(crate) mod comm_fig1;
mod comm_fig3;
mod comm_fig4;
mod completion;
mod cosched_scale;
mod cosched_sim;
mod expedite;
mod expedite_sim;
mod floor;
mod head_of_line;
mod idle_peers;
mod latency;
mod load;
mod mix;
mod overlap_tables;
mod peers;
mod pioman_fig3;
mod pioman_table2;
mod rate;
mod ring;
mod sessions;
mod sim_speed;
mod soak;
mod straggler;
mod threshold;
mod wait_sim;
mod wakeup;

use crate::experiment::Experiment;

/// Every experiment, in the order in which `pronto-bench list` names them.
pub const ALL: &[&dyn Experiment] = &[
    &floor::Floor,
    &latency::Latency,
    &anatomy::Anatomy,
    &rate::Rate,
    &bandwidth::Bandwidth,
    &comm_fig1::CommFig1,
    &comm_fig3::CommFig3,
    &comm_fig4::CommFig4,
    &completion::Completion,
    &load::Load,
    &threshold::Threshold,
    &idle_peers::IdlePeers,
    &adaptive::Adaptive,
    &pioman_table2::PiomanTable2,
    &straggler::Straggler,
    &ring::Ring,
    &sessions::Sessions,
    &soak::Soak,
    &mix::Mix,
    &peers::Peers,
    &wakeup::Wakeup,
    &pioman_fig3::PiomanFig3,
    &head_of_line::HeadOfLine,
    &overlap_tables::OverlapTables,
    &expedite_sim::ExpediteSim,
    &expedite::Handlers,
    &expedite::PINGS_WITHOUT,
    &expedite::PINGS_BOOSTED,
    &expedite::Late,
    &expedite::PAIRS,
    &expedite::TENTH,
    &expedite::Computing,
    &expedite::Nice,
    &sim_speed::SimSpeed,
    &cosched_sim::CoschedSim,
    &wait_sim::WaitSim,
    &cosched_scale::CoschedScale,
];

/// Returns the experiment with that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_lower_case() {
        let names: BTreeSet<_> = ALL.iter().map(|experiment| experiment.name()).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(
            names
                .iter()
                .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
        );
        assert!(names.iter().all(|name| find(name).is_some_and(|found| found.name() == *name)));
    }

    #[test]
    fn columns_are_spelled_so_that_options_can_be() {
        for axis in ALL.iter().flat_map(|experiment| experiment.axes()) {
            assert!(axis.column.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{axis:?}");
            assert!(
                !["json", "quick", "plots", "seconds", "help", "version"].contains(&axis.column)
                    && !axis.values.is_empty()
            );
        }
    }
}

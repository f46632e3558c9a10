//! The list of experiments: one file each.

pub(crate) mod adaptive;
mod anatomy;
mod bandwidth;
mod bulk;
pub(crate) mod comm_fig1;
pub(crate) mod comm_fig2;
mod comm_fig3;
mod comm_fig4;
mod completion;
mod cosched_cost;
mod cosched_forms;
mod cosched_host;
mod cosched_pattern;
mod cosched_scale;
mod cosched_sim;
mod expedite;
mod expedite_sim;
mod floor;
mod head_of_line;
mod latency;
mod load;
mod mix;
mod overlap_tables;
mod peers;
mod pioman_fig3;
mod pioman_table2;
mod rate;
mod sensitivity;
mod sessions;
mod soak;
mod straggler;
mod strangers;
mod tasks;
pub(crate) mod threshold;
mod tls;
mod wait_sim;
mod wakeup;

use crate::experiment::Experiment;

/// Every experiment, in the order of `pronto-bench list`.
pub(crate) const ALL: &[&Experiment] = &[
    &floor::EXPERIMENT,
    &latency::EXPERIMENT,
    &sensitivity::EXPERIMENT,
    &anatomy::EXPERIMENT,
    &rate::EXPERIMENT,
    &bandwidth::EXPERIMENT,
    &comm_fig1::EXPERIMENT,
    &comm_fig2::EXPERIMENT,
    &comm_fig3::EXPERIMENT,
    &comm_fig4::EXPERIMENT,
    &completion::EXPERIMENT,
    &tasks::EXPERIMENT,
    &load::EXPERIMENT,
    &threshold::EXPERIMENT,
    &adaptive::EXPERIMENT,
    &pioman_table2::EXPERIMENT,
    &straggler::EXPERIMENT,
    &sessions::EXPERIMENT,
    &soak::EXPERIMENT,
    &mix::EXPERIMENT,
    &peers::EXPERIMENT,
    &bulk::EXPERIMENT,
    &tls::EXPERIMENT,
    &strangers::EXPERIMENT,
    &wakeup::EXPERIMENT,
    &pioman_fig3::EXPERIMENT,
    &head_of_line::EXPERIMENT,
    &overlap_tables::EXPERIMENT,
    &expedite_sim::EXPERIMENT,
    &expedite::HANDLERS,
    &expedite::PINGS_WITHOUT,
    &expedite::PINGS_BOOSTED,
    &expedite::LATE,
    &expedite::PAIRS,
    &expedite::TENTH,
    &expedite::COMPUTING,
    &expedite::NICE,
    &expedite::MPI,
    &cosched_host::EXPERIMENT,
    &cosched_host::IN_LAB,
    &cosched_cost::EXPERIMENT,
    &cosched_forms::EXPERIMENT,
    &cosched_sim::EXPERIMENT,
    &cosched_pattern::EXPERIMENT,
    &wait_sim::EXPERIMENT,
    &cosched_scale::EXPERIMENT,
];

/// Returns the experiment with that name.
pub(crate) fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_lower_case() {
        let names: BTreeSet<_> = ALL.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), ALL.len());
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(names.iter().all(|name| !name.is_empty() && name.chars().all(is_plain)));
    }

    #[test]
    fn every_experiment_asks_one_question_and_is_shorter_if_quick() {
        for Experiment { name, question, takes: [full, quick], .. } in ALL {
            assert!(question.ends_with('?') && question.matches('?').count() == 1, "{name}: {question}");
            assert!(*quick > 0 && quick < full, "{name}");
        }
    }

    #[test]
    fn columns_are_spelled_so_that_options_can_be() {
        for axis in ALL.iter().flat_map(|experiment| experiment.axes) {
            assert!(axis.column.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{axis:?}");
            assert!(
                !["json", "quick", "plots", "seconds", "help", "version"].contains(&axis.column)
                    && !axis.values.is_empty()
            );
        }
    }
}

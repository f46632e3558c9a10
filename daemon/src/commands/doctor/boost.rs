//! Tiers of the boost: which of them this process may have.

use pronto_expedite::{Missing, Tier, available};

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "boost";

/// Each is tried on a thread of its own, which ends.
pub(super) fn probe(_: &Machine) -> Vec<Finding> {
    let tiers = [Tier::Module, Tier::Fifo, Tier::Slice];
    tiers.map(|tier| finding(tier, available(tier))).into()
}

fn finding(tier: Tier, tried: Result<(), Missing>) -> Finding {
    match tried {
        Ok(()) => Finding::ok(SUBJECT, format!("{tier} is to be had: boost = \"{tier}\"")),
        Err(why) => {
            let advice = match tier {
                Tier::Module => {
                    "kernel/expedite/README.md says how to build and load it; other tiers need no module"
                }
                Tier::Fifo => "LimitRTPRIO=2 in the systemd unit, or CAP_SYS_NICE",
                _ => "Linux 6.12 or newer, with its own scheduler",
            };
            Finding::note(SUBJECT, format!("{tier} is not: {why}"), advice)
        }
    }
}

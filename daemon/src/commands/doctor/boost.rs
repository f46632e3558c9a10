//! Boost: the tiers that are available to this process.

use pronto_expedite::{Missing, Tier, available};

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "boost";

/// Tries each tier on a short-lived thread of its own.
pub(super) fn probe(_: &Machine) -> Vec<Finding> {
    let tiers = [Tier::Module, Tier::Fifo, Tier::Slice, Tier::Scx];
    tiers.map(|tier| finding(tier, available(tier))).into()
}

fn finding(tier: Tier, tried: Result<(), Missing>) -> Finding {
    match tried {
        Ok(()) => Finding::ok(SUBJECT, format!("{tier} is available; enable it with boost = \"{tier}\"")),
        Err(why) => {
            let advice = match tier {
                Tier::Module => {
                    "build and load it as kernel/expedite/README.md describes; other tiers need no module"
                }
                Tier::Scx => {
                    "where modules are forbidden: build and load the scheduler as kernel/scx/README.md describes"
                }
                Tier::Fifo => "LimitRTPRIO=2 in the systemd unit, or CAP_SYS_NICE",
                _ => "Linux 6.12 or newer, with its default scheduler",
            };
            Finding::note(SUBJECT, format!("{tier} is not available: {why}"), advice)
        }
    }
}

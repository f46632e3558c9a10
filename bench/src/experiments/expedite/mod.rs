//! Expedite on a real kernel: the paper's figures 1 to 5 and ours, in the lab, with the module, with what there is without it, and
//! with nothing.

mod computing;
mod handlers;
mod late;
mod nice;
mod pairs;
mod pings;
mod trial;

pub(super) use computing::Computing;
pub(super) use handlers::Handlers;
pub(super) use late::Late;
pub(super) use nice::Nice;
pub(super) use pairs::{PAIRS, TENTH};
pub(super) use pings::{PINGS_BOOSTED, PINGS_WITHOUT};

use crate::lab::Lab;
use crate::params::Axis;

/// The machine: handlers and background on one CPU, senders on the other.
const fn lab(quick: bool) -> Lab {
    Lab {
        cpus: 2,
        virtual_time: true,
        verbs: false,
        module: Some("kernel/expedite"),
        limit: if quick { 900 } else { 6 * 3_600 },
    }
}

const SETTING: Axis = Axis {
    column: "setting",
    help: "Only handlers with this boost",
    values: &["off", "module", "fifo", "deadline", "slice"],
};

/// Rounds, in which the settings take turns.
const ROUNDS: u32 = 5;

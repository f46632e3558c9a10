//! Settings of tests in a process of their own: a fixed weight of 4 for one group.

use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::group::Members;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};

/// Returns settings with a folder of the state that has this name and the number of this process.
pub(crate) fn settings(name: &str, actuator: ActuatorKind, members: Members) -> Settings {
    Settings {
        policy: Policy::Static,
        period: Settings::PERIOD,
        past: Past::Fixed(Settings::PAST),
        most: Settings::MOST,
        sensor: Default::default(),
        actuator: Choice::Only(actuator),
        groups: vec![Group { name: "job".into(), members }],
        state: std::env::temp_dir().join(format!("pronto-{name}-{}", std::process::id())),
    }
}

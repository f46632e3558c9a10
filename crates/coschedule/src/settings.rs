//! Settings of a coscheduler.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::path::PathBuf;

use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;
use serde::{Deserialize, Serialize};

use crate::actuator::Choice;
use crate::group::Members;
use crate::sensor;

/// A policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// LINUX of the paper: no weights.
    #[default]
    Off,
    /// DYN of the paper (section 4): received data count.
    #[serde(rename = "dyn")]
    Dynamic,
    /// PRED of the paper (section 3): received data and data to be sent count.
    #[serde(rename = "pred")]
    Predictive,
    /// PRED, and each node reports its frequencies to the nodes at the other ends of connections. Chosen by us; no source.
    Carried,
    /// The largest weight for all processes of the groups at all times: shows what a share of the CPU does without prediction.
    Static,
}

/// The weight of the past in a frequency, P of the paper (formula 1), per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// This P.
    Fixed(Share),
    /// P follows the waits of each process.
    Auto,
}

/// Processes that are coscheduled, under a name for human-readable output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub members: Members,
}

/// Settings of a coscheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policy.
    pub policy: Policy,
    /// Time between two samples.
    pub period: Duration,
    /// P.
    pub past: Past,
    /// The largest weight of a process.
    pub most: Weight,
    /// The means by which queues are read.
    pub sensor: sensor::Choice,
    /// The means by which the kernel is given weights.
    pub actuator: Choice,
    /// The processes.
    pub groups: Vec<Group>,
    /// Folder of the state: the journal and the status.
    pub state: PathBuf,
}

impl Settings {
    /// Default period.
    pub const PERIOD: Duration = Duration::from_millis(10);
    /// Default P: "the best results were obtained with the predictive model (and more precisely when P is about 1)" (section 4.1).
    pub const PAST: Share = Share::percent(90);
    /// Default of the largest weight.
    pub const MOST: Weight = Weight::hundredths(400);
}

impl Policy {
    /// Every policy, with its name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("off", Self::Off),
        ("dyn", Self::Dynamic),
        ("pred", Self::Predictive),
        ("carried", Self::Carried),
        ("static", Self::Static),
    ];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, policy)| policy == self);
        f.pad(named.map_or("", |(name, _)| name))
    }
}

/// Reason why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy {0:?}: it is off, dyn, pred, carried or static")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.iter().find(|(name, _)| *name == text);
        named.map(|(_, policy)| *policy).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// Reason why a text is not a P.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid P {0:?}: it is auto, or a number from 0 to 1")]
pub struct InvalidPast(String);

impl FromStr for Past {
    type Err = InvalidPast;

    fn from_str(text: &str) -> Result<Self, InvalidPast> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number: f64 = text.parse().map_err(|_| InvalidPast(text.to_owned()))?;
        if !(0.0..=1.0).contains(&number) {
            return Err(InvalidPast(text.to_owned()));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a million")]
        let millionths = (number * 1e6).round() as u32;
        Ok(Self::Fixed(Share::millionths(millionths)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_p_are_read_from_text() {
        for (name, policy) in Policy::ALL {
            assert_eq!(name.parse(), Ok(policy));
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{name:?}"));
        }
        assert!("gang".parse::<Policy>().unwrap_err().to_string().contains("carried"));
        assert_eq!("0.98".parse(), Ok(Past::Fixed(Share::percent(98))));
        assert_eq!("auto".parse(), Ok(Past::Auto));
        for invalid in ["", "1.1", "-0.1", "NaN", "x"] {
            assert_eq!(invalid.parse::<Past>(), Err(InvalidPast(invalid.to_owned())));
        }
    }
}

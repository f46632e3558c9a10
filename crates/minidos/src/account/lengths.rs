//! The distribution of payload lengths, by number of messages and by bytes, as in the paper's Fig. 2.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers of messages by payload length in bytes. Message types have few lengths each, so there are few entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lengths(BTreeMap<u64, u64>);

/// One step of the two cumulative distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Payload length, bytes.
    pub length: u64,
    /// Number of messages of this length.
    pub messages: u64,
    /// Share of the messages that are not longer, from 0 to 1.
    pub messages_up_to: f64,
    /// Share of the bytes that messages of this length or shorter ones carry, from 0 to 1.
    pub bytes_up_to: f64,
}

impl Lengths {
    /// Counts a message.
    pub(super) fn count(&mut self, length: u64) {
        *self.0.entry(length).or_default() += 1;
    }

    /// Adds other messages.
    pub fn add(&mut self, other: &Self) {
        for (length, messages) in &other.0 {
            *self.0.entry(*length).or_default() += messages;
        }
    }

    /// Returns the share of messages under 100 bytes, which the paper calls small; 0 if there are none.
    #[must_use]
    pub fn small_messages(&self) -> f64 {
        let small = self.0.range(..SMALL).map(|(_, messages)| messages).sum();
        share(small, self.0.values().sum())
    }

    /// Returns the share of bytes in messages of more than 1 KiB, which we count as large; 0 if there are none.
    #[must_use]
    pub fn large_bytes(&self) -> f64 {
        let bytes = |(length, messages): (&u64, &u64)| length * messages;
        share(self.0.range(LARGE + 1..).map(bytes).sum(), self.0.iter().map(bytes).sum())
    }

    /// Returns both cumulative distributions, from the shortest length to the longest.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let all_messages = self.0.values().sum();
        let all_bytes = self.0.iter().map(|(length, messages)| length * messages).sum();
        let (mut messages_so_far, mut bytes_so_far) = (0, 0);
        let step = |(&length, &messages): (&u64, &u64)| {
            messages_so_far += messages;
            bytes_so_far += length * messages;
            Step {
                length,
                messages,
                messages_up_to: share(messages_so_far, all_messages),
                bytes_up_to: share(bytes_so_far, all_bytes),
            }
        };
        self.0.iter().map(step).collect()
    }
}

impl FromIterator<(u64, u64)> for Lengths {
    /// Collects pairs of a length and a number of messages.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(counts: I) -> Self {
        let mut lengths = Self::default();
        for (length, messages) in counts {
            *lengths.0.entry(length).or_default() += messages;
        }
        lengths
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs three digits, this keeps 15")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Messages below this length are small: Kim 2021, section 3.1.
const SMALL: u64 = 100;

/// The paper calls pages and messages of similar size large. We count payloads above 1 KiB.
const LARGE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_fall_into_the_categories_of_the_paper() {
        let mut lengths = Lengths::default();
        for length in [99, 100, 1_024, 4_130] {
            lengths.count(length);
        }
        assert!((lengths.small_messages() - 0.25).abs() < 1e-9);
        assert!((lengths.large_bytes() - 4_130.0 / 5_353.0).abs() < 1e-9);
        assert_eq!([Lengths::default().small_messages(), Lengths::default().large_bytes()], [0.0; 2]);
    }

    #[test]
    fn steps_accumulate_to_all_messages_and_all_bytes() {
        let mut lengths: Lengths = [(4_000, 1)].into_iter().collect();
        lengths.add(&[(40, 60), (4_000, 1), (800, 2)].into_iter().collect());
        let steps = lengths.steps();
        let found: Vec<_> = steps.iter().map(|step| (step.length, step.messages)).collect();
        assert_eq!(found, [(40, 60), (800, 2), (4_000, 2)]);
        assert!((steps[0].messages_up_to - 60.0 / 64.0).abs() < 1e-9);
        assert!((steps[0].bytes_up_to - 2_400.0 / 12_000.0).abs() < 1e-9);
        assert_eq!((steps[2].messages_up_to, steps[2].bytes_up_to), (1.0, 1.0));
        assert!(Lengths::default().steps().is_empty());
    }
}

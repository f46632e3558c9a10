//! The recorded counts of each scenario, and the comparison with new counts.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// The counts of a scenario, in the order of [`KINDS`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counts(pub(crate) [f64; KINDS.len()]);

/// The counts of all scenarios, by name.
pub(crate) type Counted = BTreeMap<String, Counts>;

/// The content of the file.
#[derive(Debug, Default)]
pub(crate) struct Recorded(pub(crate) Counted);

/// The names of counts in the file.
pub(crate) const KINDS: [&str; 3] = ["instructions", "branches", "references"];

/// A count may exceed the recorded one by this share. Over TCP, system calls that are made slightly later change the counts.
const SHARE: f64 = 0.02;

/// A count may also exceed the recorded one by this number, because a share of a small number is less than one.
const SLACK: f64 = 2.0;

const HEADER: &str = "# Per repetition: instructions, branches and memory references of each scenario in bench/counts, as callgrind counts them.
# `cargo xtask counts` fails where a count grew. Written by `cargo xtask counts --bless`; say in the commit why it may grow.
";

impl Recorded {
    /// Reads the file.
    ///
    /// # Errors
    /// The text is not in the format of [`Self::to_text`].
    pub(crate) fn read(text: &str) -> Result<Self> {
        let tables: BTreeMap<String, BTreeMap<String, f64>> = toml::from_str(text)?;
        let mut counted = Counted::new();
        for (name, table) in tables {
            let mut counts = Counts([0.0; KINDS.len()]);
            for (kind, count) in KINDS.iter().zip(&mut counts.0) {
                *count = *table.get(*kind).with_context(|| format!("{name} has no `{kind}`"))?;
            }
            counted.insert(name, counts);
        }
        Ok(Self(counted))
    }

    /// Returns the text of the file.
    pub(crate) fn to_text(&self) -> String {
        let mut text = HEADER.to_owned();
        for (name, counts) in &self.0 {
            let _ = writeln!(text, "\n[{name}]");
            for (kind, count) in KINDS.iter().zip(counts.0) {
                let _ = writeln!(text, "{kind} = {count:.1}");
            }
        }
        text
    }
}

/// Returns one finding for each scenario that takes more than recorded, is not recorded, or does not exist any more.
pub(crate) fn objections(recorded: &Recorded, counted: &Counted) -> Vec<String> {
    let names: BTreeSet<_> = recorded.0.keys().chain(counted.keys()).collect();
    let objection = |name: &String| match (recorded.0.get(name), counted.get(name)) {
        (Some(before), Some(now)) => {
            let grown: Vec<_> = changes(before, now)
                .filter(|(_, before, now)| *now > before * (1.0 + SHARE) + SLACK)
                .map(|(kind, before, now)| change_text(kind, before, now))
                .collect();
            (!grown.is_empty()).then(|| {
                format!(
                    "{name} takes more: {}. Find out why; if it is worth it, record it with \
                     `cargo xtask counts --bless` and say so in the commit",
                    grown.join(", ")
                )
            })
        }
        (None, _) => Some(format!("{name} is not recorded; record it with `cargo xtask counts --bless`")),
        (_, None) => Some(format!(
            "{name} is recorded, but does not exist any more; remove it with `cargo xtask counts --bless`"
        )),
    };
    names.into_iter().filter_map(objection).collect()
}

/// Returns one sentence for each scenario that takes clearly less than recorded.
pub(crate) fn gains(recorded: &Recorded, counted: &Counted) -> Vec<String> {
    let gain = |(name, now): (&String, &Counts)| {
        let fallen: Vec<_> = changes(recorded.0.get(name)?, now)
            .filter(|(_, before, now)| *now < before * (1.0 - SHARE) - SLACK)
            .map(|(kind, before, now)| change_text(kind, before, now))
            .collect();
        (!fallen.is_empty()).then(|| {
            format!("{name} takes less: {}; record it with `cargo xtask counts --bless`", fallen.join(", "))
        })
    };
    counted.iter().filter_map(gain).collect()
}

/// Returns a table of all counts, with the change from the recorded ones.
pub(crate) fn table(recorded: &Recorded, counted: &Counted) -> String {
    let mut text = String::new();
    for (name, now) in counted {
        let before = recorded.0.get(name);
        let _ = write!(text, "{name:<16}");
        for (at, kind) in KINDS.iter().enumerate() {
            let change = before.map_or_else(|| "new".to_owned(), |before| percent(before.0[at], now.0[at]));
            let _ = write!(text, "  {:>8.0} {kind} ({change})", now.0[at]);
        }
        text.push('\n');
    }
    text
}

/// Returns the lowest and the highest value of each count over several runs.
pub(crate) fn spread(runs: &[Counted]) -> String {
    let mut text = String::new();
    let names: BTreeSet<_> = runs.iter().flat_map(BTreeMap::keys).collect();
    for name in names {
        let _ = write!(text, "{name:<16}");
        for (at, kind) in KINDS.iter().enumerate() {
            let values = || runs.iter().filter_map(|run| Some(run.get(name)?.0[at]));
            let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            let _ = write!(text, "  {kind} {least:.0} to {most:.0}");
        }
        text.push('\n');
    }
    text
}

fn changes(before: &Counts, now: &Counts) -> impl Iterator<Item = (&'static str, f64, f64)> {
    let (before, now) = (before.0, now.0);
    KINDS.into_iter().zip(before).zip(now).map(|((kind, before), now)| (kind, before, now))
}

fn change_text(kind: &str, before: f64, now: f64) -> String {
    format!("{now:.0} {kind} instead of {before:.0} ({})", percent(before, now))
}

fn percent(before: f64, now: f64) -> String {
    format!("{:+.1} %", 100.0 * (now - before) / before.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(instructions: f64) -> Counted {
        [("call".to_owned(), Counts([instructions, 100.0, 500.0]))].into()
    }

    #[test]
    fn written_counts_are_read_back() {
        let text = Recorded(counted(1_000.0)).to_text();
        assert_eq!(Recorded::read(&text).unwrap().0, counted(1_000.0));
        assert!(Recorded::read("[call]\ninstructions = 5.0\n").is_err());
    }

    #[test]
    fn growth_is_reported_with_scenario_size_and_advice() {
        let recorded = Recorded(counted(1_000.0));
        assert!(objections(&recorded, &counted(1_021.0)).is_empty());
        let objections = objections(&recorded, &counted(1_100.0));
        assert_eq!(objections.len(), 1);
        for part in ["call", "1100 instructions instead of 1000", "+10.0 %", "--bless"] {
            assert!(objections[0].contains(part), "{part} is not in: {}", objections[0]);
        }
        assert!(!objections[0].contains("branches"));
    }

    #[test]
    fn a_new_or_removed_scenario_is_a_finding() {
        assert_eq!(objections(&Recorded::default(), &counted(1.0)).len(), 1);
        assert_eq!(objections(&Recorded(counted(1.0)), &Counted::new()).len(), 1);
    }

    #[test]
    fn a_lower_count_is_reported_but_not_a_finding() {
        let recorded = Recorded(counted(1_000.0));
        assert_eq!(gains(&recorded, &counted(900.0)).len(), 1);
        assert!(
            gains(&recorded, &counted(999.0)).is_empty() && objections(&recorded, &counted(900.0)).is_empty()
        );
    }
}

//! What a run was asked for: how long, and which rows.

use std::collections::BTreeMap;

/// A column by which rows are chosen: `--column value[,value]`.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The column, spelled as in the rows and as the option.
    pub column: &'static str,
    /// What it means, for `--help`.
    pub help: &'static str,
    /// Every value it has in this experiment.
    pub values: &'static [&'static str],
}

/// The choices of one run.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// Shorter: within 60 s for any experiment.
    pub quick: bool,
    /// How long, if that was said; only of experiments that ask for it.
    pub seconds: Option<u32>,
    chosen: BTreeMap<&'static str, Vec<String>>,
}

impl Params {
    /// All rows, at full length.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps only the rows whose `column` has one of `values`.
    pub fn choose(&mut self, column: &'static str, values: Vec<String>) {
        self.chosen.insert(column, values);
    }

    /// Whether a row with `value` in `column` was asked for; without a choice for that column every row was.
    #[must_use]
    pub fn keeps(&self, column: &str, value: &str) -> bool {
        self.chosen.get(column).is_none_or(|values| values.iter().any(|chosen| chosen == value))
    }

    /// The choices made, by column.
    pub fn chosen(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.chosen.iter().map(|(&column, values)| (column, values.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_every_row_is_kept() {
        assert!(Params::new().keeps("provider", "shm"));
    }

    #[test]
    fn a_choice_keeps_its_values_and_leaves_other_columns_alone() {
        let mut params = Params::new();
        params.choose("size", vec!["32".into(), "224".into()]);
        assert!(params.keeps("size", "32") && params.keeps("size", "224") && params.keeps("provider", "tcp"));
        assert!(!params.keeps("size", "3") && !params.keeps("size", "4096"));
    }
}

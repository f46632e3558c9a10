//! Choices of a run: its length, and the rows that it measures.

use std::collections::BTreeMap;

/// A column by which rows are selected: `--column value[,value]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Name of the column and of the option.
    pub(crate) column: &'static str,
    /// Meaning of the option, for `--help`.
    pub(crate) help: &'static str,
    /// All values of the column in this experiment.
    pub(crate) values: &'static [&'static str],
}

impl Axis {
    /// The transports of this host.
    pub(crate) const PROVIDER: Self = Self::new("provider", "Only these transports", &["shm", "tcp"]);

    pub(crate) const fn new(
        column: &'static str,
        help: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self { column, help, values }
    }
}

/// The choices of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    /// Whether the run is short: within 60 s for any experiment.
    pub(crate) quick: bool,
    /// Measuring time in seconds that the user chose; only of experiments that let the user choose it.
    pub(crate) seconds: Option<u32>,
    chosen: BTreeMap<&'static str, Vec<String>>,
}

impl Params {
    /// Selects all rows at full length.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Selects only the rows whose `column` has one of `values`.
    pub(crate) fn choose(&mut self, column: &'static str, values: Vec<String>) {
        self.chosen.insert(column, values);
    }

    /// Returns whether rows with `value` in `column` are selected. Without a choice for the column, all rows are.
    pub(crate) fn keeps(&self, column: &str, value: &str) -> bool {
        self.chosen.get(column).is_none_or(|values| values.iter().any(|chosen| chosen == value))
    }

    /// Returns those of `values` that are selected, by their names in `column`.
    pub(crate) fn kept<T, N: AsRef<str>>(
        &self,
        column: &str,
        values: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> N,
    ) -> Vec<T> {
        values.into_iter().filter(|value| self.keeps(column, name(value).as_ref())).collect()
    }

    /// Returns whether the user selected values of `column`.
    pub(crate) fn has_choice(&self, column: &str) -> bool {
        self.chosen.contains_key(column)
    }

    /// Returns the choices, by column.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.chosen.iter().map(|(&column, values)| (column, values.as_slice()))
    }
}

/// A value of a column.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// Every value.
    const ALL: &'static [Self];
    /// Names of all values.
    const NAMES: &'static [&'static str];

    /// Returns the name of the value, as in the column.
    fn name(self) -> &'static str;

    /// Returns the values that are selected by `column`.
    fn kept(params: &Params, column: &str) -> Vec<Self> {
        params.kept(column, Self::ALL.iter().copied(), |value| value.name())
    }
}

/// Declares an enum whose variants are the values of a column, in the order of the rows.
macro_rules! choices {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $crate::params::Choice for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const NAMES: &'static [&'static str] = &[$($text),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl core::str::FromStr for $name {
            type Err = anyhow::Error;

            fn from_str(text: &str) -> anyhow::Result<Self> {
                let known = <Self as $crate::params::Choice>::ALL.iter().copied();
                let found = known.into_iter().find(|known| $crate::params::Choice::name(*known) == text);
                anyhow::Context::with_context(found, || format!("no {} named {text}", stringify!($name)))
            }
        }
    };
}
pub(crate) use choices;

/// Returns the names of all items of a constant list: the values of their column.
macro_rules! names {
    ($items:expr) => {{
        let mut names = [""; $items.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = $items[index].name;
            index += 1;
        }
        names
    }};
}
pub(crate) use names;

/// Declares a list of numbers, and the list of their names: the values of their column.
macro_rules! numbers {
    ($(#[$doc:meta])* $vis:vis $numbers:ident: $type:ty, $names:ident = $($number:literal),+) => {
        $(#[$doc])*
        $vis const $numbers: [$type; [$($number),+].len()] = [$($number),+];
        $vis const $names: [&str; $numbers.len()] = [$(stringify!($number)),+];
    };
}
pub(crate) use numbers;

#[cfg(test)]
mod tests {
    use super::*;

    choices! {
        enum Colour {
            Red = "red",
            Green = "green",
        }
    }

    numbers!(SIZES: usize, SIZE_NAMES = 41, 4096);

    #[test]
    fn a_choice_keeps_its_values_and_leaves_other_columns_alone() {
        let mut params = Params::new();
        assert!(params.keeps("provider", "shm") && !params.has_choice("provider"));
        params.choose("size", vec!["41".into(), "224".into()]);
        params.choose("colour", vec!["green".into()]);
        assert!(params.keeps("size", "41") && params.keeps("size", "224") && params.keeps("provider", "tcp"));
        assert!(!params.keeps("size", "4") && !params.keeps("size", "4096"));
        assert_eq!(params.kept("size", SIZES, usize::to_string), [41]);
        assert_eq!(Colour::kept(&params, "colour"), [Colour::Green]);
    }

    #[test]
    fn names_are_those_of_the_values() {
        assert_eq!((Colour::NAMES, SIZE_NAMES), (&["red", "green"][..], ["41", "4096"]));
        assert_eq!("red".parse::<Colour>().unwrap(), Colour::Red);
        assert_eq!("blue".parse::<Colour>().unwrap_err().to_string(), "no Colour named blue");
    }
}

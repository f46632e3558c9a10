//! Numbers for people: with a unit and about three digits.

use serde_json::Value;

use crate::results;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// A number without a unit.
    Plain,
    /// A time, as a multiple of this number of nanoseconds.
    Time(f64),
    /// A fraction of a whole, shown in per cent.
    Share,
    /// A ratio.
    Multiple,
    /// Bytes.
    Bytes,
    /// Any other unit, shown after the number.
    Named(&'static str),
}

impl Unit {
    pub(super) const NS: Self = Self::Time(1.0);
    pub(super) const US: Self = Self::Time(1e3);
    pub(super) const MS: Self = Self::Time(1e6);
    pub(super) const S: Self = Self::Time(1e9);

    /// Returns a number with this unit.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Plain => thousands(value, ""),
            Self::Time(ns) => time(value * ns),
            Self::Share => percent(value),
            Self::Multiple => format!("{}\u{d7}", digits(value)),
            Self::Bytes => bytes(value),
            Self::Named(unit) => thousands(value, unit),
        }
    }

    /// Returns a value of a result with this unit; texts as they are.
    pub(super) fn show_value(self, value: &Value) -> String {
        match value {
            Value::Number(number) => {
                number.as_f64().map_or_else(|| number.to_string(), |value| self.show(value))
            }
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            other => results::word(other),
        }
    }
}

/// Divides the text of a statement into text and unit. Texts of quantities end with their unit, or say that they are a share or a
/// multiple.
pub(super) fn of_statement(text: &str) -> (&str, Unit) {
    let last = text
        .rsplit_once(", ")
        .and_then(|(front, end)| UNITS.iter().find(|(name, _)| *name == end).map(|(_, unit)| (front, *unit)));
    if let Some(found) = last {
        return found;
    }
    let says = |word: &str| text.split(|c: char| !c.is_ascii_alphabetic()).any(|other| other == word);
    let unit = if says("multiple") {
        Unit::Multiple
    } else if says("Share") || says("share") {
        Unit::Share
    } else {
        Unit::Plain
    };
    (text, unit)
}

const UNITS: &[(&str, Unit)] = &[
    ("ns", Unit::NS),
    ("us", Unit::US),
    ("ms", Unit::MS),
    ("s", Unit::S),
    ("times", Unit::Multiple),
    ("bytes", Unit::Bytes),
    ("KiB", Unit::Named("KiB")),
    ("MiB", Unit::Named("MiB")),
];

/// Returns the title of a column, and its unit.
pub(super) fn of_column(column: &str) -> (String, Unit) {
    if let Some((_, title, unit)) = COLUMNS.iter().find(|(name, ..)| *name == column) {
        return ((*title).to_owned(), *unit);
    }
    let ending = |(end, unit): &(&str, Unit)| Some((column.strip_suffix(end)?, *unit));
    let (name, unit) = ENDINGS.iter().find_map(ending).unwrap_or((column, Unit::Plain));
    let (first, rest) = name.split_at(name.len().min(1));
    (first.to_ascii_uppercase() + &rest.replace('_', " "), unit)
}

const COLUMNS: &[(&str, &str, Unit)] = &[
    ("p50_ns", "Median time", Unit::NS),
    ("p50_us", "Median time", Unit::US),
    ("p99_ns", "99th percentile", Unit::NS),
    ("p99_us", "99th percentile", Unit::US),
    ("mean_ns", "Mean time", Unit::NS),
    ("mean_us", "Mean time", Unit::US),
    ("batch_ns", "Time of an operation in a batch", Unit::NS),
    ("step_ns", "Time of the step", Unit::NS),
    ("send_ns", "Time of a send", Unit::NS),
    ("buffer_ns", "Time of a buffer", Unit::NS),
    ("seconds", "Time", Unit::S),
    ("rpc_per_s", "Calls per second", Unit::Named("/s")),
    ("messages_per_s", "Messages per second", Unit::Named("/s")),
    ("calls_per_s", "Calls per second", Unit::Named("/s")),
    ("gbytes_per_s", "Throughput", Unit::Named("GB/s")),
    ("ratio", "Multiple of the floor", Unit::Multiple),
    ("late", "Share of late pings", Unit::Share),
    ("buffer_share", "Share of the buffer in a send", Unit::Share),
    ("growth_kib", "Growth of resident memory", Unit::Named("KiB")),
    ("peak_mib", "Largest resident memory", Unit::Named("MiB")),
];

const ENDINGS: &[(&str, Unit)] = &[
    ("_ns", Unit::NS),
    ("_us", Unit::US),
    ("_ms", Unit::MS),
    ("_s", Unit::S),
    ("_mib", Unit::Named("MiB")),
    ("_kib", Unit::Named("KiB")),
];

fn time(ns: f64) -> String {
    let size = ns.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match size {
        0.0..1e3 => (ns, "ns"),
        1e3..1e6 => (ns / 1e3, "us"),
        1e6..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Returns a number with three digits, in thousands, millions or billions if it is large.
fn thousands(value: f64, unit: &str) -> String {
    let (value, prefix) = match value.abs() {
        size if size < 1e4 => (value, ""),
        size if size < 1e6 => (value / 1e3, "k"),
        size if size < 1e9 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    format!("{} {prefix}{unit}", digits(value)).trim_end().to_owned()
}

fn percent(share: f64) -> String {
    let value = share * 100.0;
    let text = if value.abs() < 1.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    format!("{} %", trimmed(&text))
}

fn bytes(value: f64) -> String {
    let (value, unit) = match value {
        small if small < 1024.0 => (small, "B"),
        medium if medium < 1_048_576.0 => (medium / 1024.0, "KiB"),
        large if large < 1_073_741_824.0 => (large / 1_048_576.0, "MiB"),
        huge => (huge / 1_073_741_824.0, "GiB"),
    };
    format!("{} {unit}", digits(value))
}

/// Returns a number with three digits, or more in front of the decimal point.
fn digits(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    trimmed(&text).to_owned()
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_readable_unit_and_three_digits() {
        let ns = [0.0, 0.32, 38.0, 1_304.02, 67_634_300.0, 2.5e9, -12.0].map(|ns| Unit::NS.show(ns));
        assert_eq!(ns, ["0", "0.32 ns", "38 ns", "1.3 us", "67.6 ms", "2.5 s", "-12 ns"]);
        assert_eq!(Unit::US.show(1_680.0), "1.68 ms");
    }

    #[test]
    fn shares_are_per_cent_and_lengths_binary() {
        assert_eq!(
            [0.0, 0.0007, 0.066, 0.971, 1.0].map(percent),
            ["0 %", "0.07 %", "6.6 %", "97.1 %", "100 %"]
        );
        assert_eq!([64.0, 1024.0, 4_194_304.0].map(bytes), ["64 B", "1 KiB", "4 MiB"]);
        let named = [0.5, 9_999.0, 363_184.0, 10_000_000.0].map(|value| Unit::Named("/s").show(value));
        assert_eq!(named, ["0.5 /s", "9999 /s", "363 k/s", "10 M/s"]);
        assert_eq!(Unit::Plain.show(50_503.0), "50.5 k");
        assert_eq!(Unit::Multiple.show(1.1149), "1.11\u{d7}");
    }

    #[test]
    fn the_text_of_a_statement_tells_its_unit() {
        assert_eq!(of_statement("An empty event, us"), ("An empty event", Unit::US));
        assert_eq!(of_statement("Share of late pings").1, Unit::Share);
        assert_eq!(of_statement("p50 as a multiple of a bare round trip").1, Unit::Multiple);
        assert_eq!(of_statement("Overlap over shared memory").1, Unit::Plain);
        assert_eq!(of_statement("It holds, mostly"), ("It holds, mostly", Unit::Plain));
    }

    #[test]
    fn columns_have_titles_without_their_unit() {
        assert_eq!(of_column("mean_us"), ("Mean time".into(), Unit::US));
        assert_eq!(of_column("receiver_wait_us"), ("Receiver wait".into(), Unit::US));
        assert_eq!(of_column("work_per_cpu"), ("Work per cpu".into(), Unit::Plain));
    }
}

//! The rows: calls of a participant, or links.

use serde_json::Value;

use super::set_up::LINKS;
use crate::report::{Fields, decimals};
use crate::sample::{Sample, approximate};

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    With,
    Without,
}

impl Tls {
    pub(super) const BOTH: [Self; 2] = [Self::Without, Self::With];

    /// Returns the name, as a value of a column.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::With => "with",
            Self::Without => "without",
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) enum Row {
    Calls(Calls),
    Links(Links),
}

/// Calls of one length.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) peer: &'static str,
    /// Runtime of a peer that has several.
    pub(super) setting: Option<&'static str>,
    pub(super) tls: Tls,
    pub(super) wait: &'static str,
    pub(super) size: usize,
    pub(super) call: Sample,
    /// A raw TCP ping-pong with header and payload of Pronto, without TLS, by threads that wait in the same way.
    pub(super) floor: Sample,
}

/// Links that were made one after another.
#[derive(Clone, Debug)]
pub(super) struct Links {
    pub(super) tls: Tls,
    /// CPU seconds of the dialler and of the acceptor for [`LINKS`] links.
    pub(super) cpu_s: [f64; 2],
    /// A/A of the CPU time of both sides together.
    pub(super) aa: f64,
}

impl Calls {
    pub(super) fn p50(&self) -> f64 {
        approximate(self.call.p50_ns)
    }

    /// Returns whether `other` is about the same calls without TLS.
    fn is_over_tls(&self, other: &Self) -> bool {
        let key = |calls: &Self| (calls.peer, calls.wait, calls.size);
        key(self) == key(other) && self.tls == Tls::With && other.tls == Tls::Without
    }
}

impl Links {
    /// Returns the CPU time of the side that has more of it.
    pub(super) fn most(&self) -> f64 {
        self.cpu_s[0].max(self.cpu_s[1])
    }
}

/// Returns the columns of all rows.
pub(super) fn fields(rows: &[Row]) -> Vec<Fields> {
    let of = |row: &Row| match row {
        Row::Calls(row) => of_calls(row, rows),
        Row::Links(row) => of_links(row, rows),
    };
    rows.iter().map(of).collect()
}

fn of_calls(row: &Calls, rows: &[Row]) -> Fields {
    let plain = rows.iter().find_map(|other| match other {
        Row::Calls(other) if row.is_over_tls(other) => Some(other),
        _ => None,
    });
    Fields::default()
        .with("what", "call")
        .with("peer", row.peer)
        .with("setting", row.setting)
        .with("tls", row.tls.name())
        .with("wait", row.wait)
        .with("size", row.size)
        .with_sample(&row.call)
        .with("floor_ns", row.floor.p50_ns)
        .with("ratio", decimals(row.p50() / approximate(row.floor.p50_ns), 2))
        .with("to_plain", plain.map(|plain| decimals(row.p50() / plain.p50(), 2)))
        .with("links", Value::Null)
        .with("dialler_cpu_s", Value::Null)
        .with("acceptor_cpu_s", Value::Null)
}

fn of_links(row: &Links, rows: &[Row]) -> Fields {
    let plain = rows.iter().find_map(|other| match other {
        Row::Links(other) if row.tls == Tls::With && other.tls == Tls::Without => Some(other),
        _ => None,
    });
    let [dialler, acceptor] = row.cpu_s.map(|seconds| decimals(seconds, 3));
    Fields::default()
        .with("what", "links")
        .with("peer", "pronto")
        .with("setting", Value::Null)
        .with("tls", row.tls.name())
        .with("wait", Value::Null)
        .with("size", Value::Null)
        .with("min_ns", Value::Null)
        .with("p50_ns", Value::Null)
        .with("p99_ns", Value::Null)
        .with("p999_ns", Value::Null)
        .with("mean_ns", Value::Null)
        .with("batch_ns", Value::Null)
        .with("aa", decimals(row.aa, 2))
        .with("floor_ns", Value::Null)
        .with("ratio", Value::Null)
        .with("to_plain", plain.map(|plain| decimals(row.most() / plain.most(), 2)))
        .with("links", LINKS)
        .with("dialler_cpu_s", dialler)
        .with("acceptor_cpu_s", acceptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_have_the_same_columns_and_tls_is_compared_with_the_same_calls() {
        let sample = |p50_ns| Sample { p50_ns, ..Sample::default() };
        let calls = |tls, size, p50_ns| {
            let (call, floor) = (sample(p50_ns), sample(100));
            Row::Calls(Calls { peer: "pronto", setting: None, tls, wait: "spin", size, call, floor })
        };
        let links = |tls, cpu_s| Row::Links(Links { tls, cpu_s, aa: 1.0 });
        let rows = [
            calls(Tls::Without, 32, 200),
            calls(Tls::Without, 4096, 400),
            calls(Tls::With, 4096, 600),
            links(Tls::Without, [0.1, 0.2]),
            links(Tls::With, [0.3, 0.5]),
        ];
        let fields = fields(&rows);
        let columns = |fields: &Fields| {
            let Value::Object(object) = Value::from(fields.clone()) else { panic!("no object") };
            object.into_iter().map(|(column, _)| column).collect::<Vec<_>>()
        };
        assert!(fields.iter().all(|row| columns(row) == columns(&fields[0])));
        let to_plain: Vec<_> = fields.iter().map(|row| row.value("to_plain").unwrap().as_f64()).collect();
        assert_eq!(to_plain, [None, None, Some(1.5), None, Some(2.5)]);
        assert_eq!(fields[2].value("ratio"), Some(&6.0.into()));
    }
}

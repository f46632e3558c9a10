//! The machine-readable report: one JSON object with exactly these keys.

use serde::{Serialize, Serializer};

use super::report::Report;
use crate::account::Step;
use crate::messages::Kind;

#[derive(Serialize)]
struct Object<'a> {
    nodes: u16,
    transport: &'a str,
    messages: u64,
    bytes: u64,
    lost: u64,
    duplicated: u64,
    out_of_order: u64,
    corrupt: u64,
    result_equal: bool,
    reconciled: bool,
    types: Vec<Type>,
    sizes: Sizes,
    lengths: Vec<Step>,
}

#[derive(Serialize)]
struct Type {
    name: &'static str,
    count: u64,
    bytes: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

#[derive(Serialize)]
struct Sizes {
    #[serde(rename = "messages_under_100B")]
    messages_under_100: f64,
    #[serde(rename = "bytes_over_1KiB")]
    bytes_over_1k: f64,
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of = |kind: Kind| {
            let traffic = self.totals.traffic.of(kind);
            let (p50_ns, p99_ns) = (traffic.quantile(0.5), traffic.quantile(0.99));
            Type { name: kind.name(), count: traffic.sent, bytes: traffic.bytes, p50_ns, p99_ns }
        };
        let sizes = self.sizes();
        let object = Object {
            nodes: self.nodes,
            transport: &self.transport,
            messages: self.messages(),
            bytes: self.bytes(),
            lost: self.lost,
            duplicated: self.faults.duplicated,
            out_of_order: self.faults.out_of_order,
            corrupt: self.faults.corrupt,
            result_equal: self.result_equal,
            reconciled: self.reconciled(),
            types: Kind::ALL.into_iter().map(of).collect(),
            sizes: Sizes { messages_under_100: sizes.messages_under_100, bytes_over_1k: sizes.bytes_over_1k },
            lengths: self.lengths().steps(),
        };
        object.serialize(serializer)
    }
}

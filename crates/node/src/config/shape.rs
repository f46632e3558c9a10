//! Checks of a configuration's values before they are deserialized, so that errors name the valid range, not a type of Rust.

use toml::{Table, Value};

use crate::access::RuleError;
use crate::config::ConfigError;
use crate::config::checks::LAST_NODE;

/// Keys of numbers and lists of numbers, with their least and greatest value.
const RANGES: [(&str, i64, i64); 17] = [
    ("node", 1, LAST_NODE as i64),
    ("peer.node", 1, LAST_NODE as i64),
    ("workers", 1, 1_024),
    ("max_futures", 1, 1 << 20),
    ("max_peers", 1, 65_535),
    ("spin_down_us", 1, 1_000_000),
    ("limits.calls", 1, pronto_core::session::MAX_CALLS as i64),
    ("limits.requests", 1, 4_096),
    ("limits.first_requests", 1, 4_096),
    ("limits.max_payload", 4_096, 4 << 20),
    ("limits.send_memory", 1 << 20, 1 << 30),
    ("limits.liveness_ms", 100, 3_600_000),
    ("mesh.idle_ms", 100, 86_400_000),
    // 2^48 bytes are more than any machine has.
    ("limits.receive_budget", 0, 1 << 48),
    ("tcp.busy_poll_us", 0, 1_000),
    ("tcp.busy_poll_packets", 1, 1_024),
    // A smaller buffer could not hold one bulk frame in flight.
    ("tcp.socket_buffer", 64 << 10, 64 << 20),
];

/// Default of the liveness limit, ms.
const LIVENESS_MS: i64 = 3_000;

/// Keys of lists, with an example of each.
const LISTS: [(&str, &str); 11] = [
    ("listen", "listen = [\"shm:/run/pronto/1.sock\", \"tcp:127.0.0.1:7001\"]"),
    ("peer", "[[peer]]"),
    ("peer.address", "address = [\"shm:/run/pronto/2.sock\", \"tcp:127.0.0.1:7002\"]"),
    ("allow", "[[allow]]"),
    ("allow.who", "who = [\"node:2\", \"same-user\"]"),
    ("allow.types", "types = [\"bank.*\"]"),
    ("peer.from", "from = [\"10.0.0.0/8\"]"),
    ("limits.requests", "requests = [1024, 1024]"),
    ("limits.first_requests", "first_requests = [64, 56]"),
    ("limits.max_payload", "max_payload = [65536, 4194304]"),
    ("limits.send_memory", "send_memory = [8388608, 33554432]"),
];

/// The only permitted value of `plaintext`.
const PLAINTEXT: &str = "i understand";

/// Checks that lists are lists, numbers are in their ranges, and `plaintext` has its value. Deserialization finds all other errors.
pub(crate) fn check(config: &Table) -> Result<(), ConfigError> {
    for (key, example) in LISTS {
        if let Some(value) = values(config, key).find(|value| !value.is_array()) {
            return Err(ConfigError::NoList { key, value: written(value), example });
        }
    }
    if values(config, "allow").any(|value| value.as_array().is_some_and(Vec::is_empty)) {
        return Err(RuleError::NoRules.into());
    }
    if let Some(value) = values(config, "plaintext").find(|value| value.as_str() != Some(PLAINTEXT)) {
        return Err(ConfigError::Plaintext(written(value)));
    }
    RANGES.into_iter().try_for_each(|(key, least, most)| numbers_within(config, key, least, most))?;
    let liveness = values(config, "limits.liveness_ms").next().and_then(Value::as_integer);
    numbers_within(config, "limits.heartbeat_ms", 10, liveness.unwrap_or(LIVENESS_MS) - 1)
}

fn numbers_within(config: &Table, key: &'static str, least: i64, most: i64) -> Result<(), ConfigError> {
    for value in values(config, key) {
        let items = value.as_array().map_or_else(|| core::slice::from_ref(value), Vec::as_slice);
        let outside = |number: &i64| !(least..=most).contains(number);
        if let Some(value) = items.iter().filter_map(Value::as_integer).find(outside) {
            return Err(ConfigError::Range { key, value, least, most });
        }
    }
    Ok(())
}

/// Returns the values of a key: one, or one for each table of a list.
fn values<'a>(config: &'a Table, key: &str) -> impl Iterator<Item = &'a Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let found = config.get(first);
    let tables: Vec<&'a Value> = match (rest, found) {
        (None, found) => found.into_iter().collect(),
        (Some(rest), Some(Value::Array(items))) => items.iter().filter_map(|item| item.get(rest)).collect(),
        (Some(rest), found) => found.and_then(|table| table.get(rest)).into_iter().collect(),
    };
    tables.into_iter()
}

/// Formats a value on one line.
fn written(value: &Value) -> String {
    if value.is_table() { "a table".into() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use pronto_core::Nanos;
    use pronto_core::session::Limits;

    use super::*;
    use crate::Config;

    /// Shows: operations.ids, operations.check
    #[test]
    fn numbers_outside_their_range_are_refused_with_the_range() {
        let wrong = |text: &str| Config::parse(text).expect_err("it is wrong").to_string();
        for (text, range) in [
            ("node = 70000", "node = 70000: must be from 1 to 63999"),
            ("node = -1", "node = -1: must be from 1 to 63999"),
            ("node = 1\nworkers = -4", "workers = -4: must be from 1 to 1024"),
            ("node = 1\nspin_down_us = 0", "spin_down_us = 0: must be from 1 to 1000000"),
            ("node = 1\n[limits]\ncalls = 70000", "limits.calls = 70000: must be from 1 to 4096"),
            ("node = 1\n[limits]\nrequests = [64, -5]", "limits.requests = -5: must be from 1 to 4096"),
            (
                "node = 1\n[limits]\nheartbeat_ms = 3000",
                "limits.heartbeat_ms = 3000: must be from 10 to 2999",
            ),
            ("node = 1\n[[peer]]\nnode = 99999", "peer.node = 99999: must be from 1 to 63999"),
            (
                "node = 1\n[tcp]\nbusy_poll_us = 5000000000",
                "tcp.busy_poll_us = 5000000000: must be from 0 to 1000",
            ),
        ] {
            assert_eq!(wrong(text), range);
        }
        assert_eq!(Nanos::from_millis(LIVENESS_MS.unsigned_abs()), Limits::default().liveness);
    }

    #[test]
    fn plaintext_has_one_value() {
        let hint = "write \"i understand\" to permit unencrypted traffic to other hosts, or remove the key";
        for value in ["true", "\"yes\"", "1"] {
            let text = format!("node = 1\nplaintext = {value}");
            let error = Config::parse(&text).expect_err("it is wrong").to_string();
            assert_eq!(error, format!("plaintext = {value}: {hint}"));
        }
        assert!(Config::parse("node = 1\nplaintext = \"i understand\"").is_ok());
    }

    #[test]
    fn values_that_must_be_lists_are_refused_with_an_example() {
        let wrong = |text: &str| Config::parse(text).expect_err("it is wrong").to_string();
        let example = "listen = \"x\": must be a list, as in listen = [\"shm:";
        assert!(wrong("node = 1\nlisten = \"x\"").starts_with(example));
        let peer = wrong("node = 1\n[peer]\nnode = 2");
        assert_eq!(peer, "peer = a table: must be a list, as in [[peer]]");
        let address = wrong("node = 1\n[[peer]]\nnode = 2\naddress = \"shm:@two\"");
        assert!(
            address.starts_with("peer.address = \"shm:@two\": must be a list, as in address = ["),
            "{address}"
        );
    }
}

//! The configuration in `docs/operations.md` has every key of the parser, and shows the true defaults.

use std::collections::BTreeSet;

use pronto_wire::NodeId;
use toml::Table;

use super::Config;
use crate::Builder;

/// Keys without a default, or whose default is an empty list or text.
const NO_DEFAULT: [&str; 4] = ["node", "name", "listen", "peer"];

/// Keys that the document shows as comments, because they have no default or one that is no constant.
const COMMENTED: [&str; 16] = [
    "spin_down_us",
    "plaintext",
    "tcp.busy_poll_packets",
    "tcp.socket_buffer",
    "placement.device",
    "allow",
    "allow.who",
    "allow.types",
    "peer.key",
    "peer.user",
    "trust.certificate",
    "trust.key",
    "trust.authorities",
    "trust.revoked",
    "coschedule.state",
    "coschedule.sensor_program",
];

/// Tables of the file, each with a text that leads to a key in it.
const TABLES: [(&str, &str); 9] = [
    ("", ""),
    ("peer.", "[[peer]]\n"),
    ("limits.", "[limits]\n"),
    ("allow.", "[[allow]]\n"),
    ("mesh.", "[mesh]\n"),
    ("tcp.", "[tcp]\n"),
    ("placement.", "[placement]\n"),
    ("trust.", "[trust]\n"),
    ("coschedule.", "[coschedule]\n"),
];

/// Returns the block of the document that has every key.
fn block() -> &'static str {
    let document = include_str!("../../../../docs/operations.md");
    let (_, rest) = document.split_once("## Configuration").expect("the section exists");
    let (_, rest) = rest.split_once("```toml\n").expect("the section has a block");
    rest.split_once("```").expect("the block ends").0
}

/// Returns the block, with its commented keys set, too. The values of two other keys change, because commented keys refine them.
fn with_comments() -> String {
    let uncommented = |line: &'static str| match line.strip_prefix("# ") {
        Some(key) if key.contains(" = ") || key.starts_with("[[") => key,
        _ => line,
    };
    let text = block().lines().map(uncommented).collect::<Vec<_>>().join("\n");
    text.replace("busy_poll_us = 0", "busy_poll_us = 50").replace("serving = \"off\"", "serving = \"auto\"")
}

/// Returns the keys of a text, such as `tcp.busy_poll_us`.
fn keys(text: &str) -> BTreeSet<String> {
    let file: Table = text.parse().expect("the text is TOML");
    let mut keys = BTreeSet::new();
    for (name, value) in &file {
        keys.insert(name.clone());
        let table = value.as_array().and_then(|items| items.first()).unwrap_or(value).as_table();
        keys.extend(table.into_iter().flat_map(Table::keys).map(|key| format!("{name}.{key}")));
    }
    keys
}

/// Returns the keys that the parser knows. Its error for an unknown key lists them.
fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (prefix, begin) in TABLES {
        let text = format!("{begin}no_such_key = 1\n");
        let error = toml::from_str::<Config>(&text).expect_err("the key is unknown").to_string();
        let (_, list) =
            error.split_once("expected one of ").or_else(|| error.split_once("expected ")).expect(&error);
        let names = list.lines().next().into_iter().flat_map(|line| line.split('`').skip(1).step_by(2));
        known.extend(names.map(|name| format!("{prefix}{name}")));
    }
    known
}

#[test]
fn the_document_has_the_keys_of_the_parser() {
    let known = known();
    assert!(known.len() > 30, "the parser's error lists its keys: {known:?}");
    assert_eq!(keys(&with_comments()), known);
    // Keys of peers and certificates exclude each other, and both exclude plaintext.
    let (tls, keys) = (["plaintext = ", "key = \"ed25519:"], ["plaintext = ", "certificate = "]);
    for (mode, without) in
        [("tls", &tls[..]), ("keys", &[&keys[..], &["authorities = ", "revoked = "]].concat())]
    {
        let text = with_comments().replace("mode = \"none\"", &format!("mode = \"{mode}\""));
        let lines = text.lines().filter(|line| !without.iter().any(|key| line.starts_with(key)));
        Config::parse(&lines.collect::<Vec<_>>().join("\n")).expect("every documented value is valid");
    }
}

#[test]
fn only_keys_without_a_constant_default_are_comments() {
    let shown = keys(block());
    let commented: Vec<_> = keys(&with_comments()).into_iter().filter(|key| !shown.contains(key)).collect();
    let mut expected = COMMENTED;
    expected.sort_unstable();
    assert_eq!(commented, expected);
}

/// Shows: operations.only-node, operations.defaults, operations.no-boost, sources.idle
#[test]
fn the_values_of_all_other_keys_are_the_defaults() {
    let mut config = Config::parse(block()).expect("the document has a valid configuration");
    assert!(NO_DEFAULT.iter().all(|key| keys(block()).contains(*key)));
    (config.name, config.listen, config.peer) = Default::default();
    let built = |config: &Config| format!("{:?}", Builder::from_config(config).expect("it is valid"));
    let default = format!("{:?}", Builder::new(NodeId(1)));
    assert_eq!(built(&config), default, "the document and the builder");
    let shortest = Config::parse("node = 1").expect("one key is enough");
    assert_eq!(built(&shortest), default, "a file with one key and the builder");
}

//! `pronto trust`: makes and shows the certificates and keys by which nodes know each other, one file per subcommand.

mod authority;
mod key;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use pronto_trust::Timestamp;

use super::{Subcommand, run_one_of, with_subcommands};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "trust", describe, run };

/// The subcommands, in the order of the help.
const ALL: &[Subcommand] =
    &[authority::INIT, authority::ISSUE, authority::REVOKE, show::SUBCOMMAND, key::SUBCOMMAND];

fn describe() -> Command {
    let command = Command::new("trust")
        .about("Makes and shows the certificates and keys by which nodes know each other")
        .after_help(
            "With certificates (mode \"tls\"), a private authority signs the certificate of each node and operator: use init, issue\n\
             and revoke. Keep the authority's folder on a machine that runs no node. With keys (mode \"keys\"), each configuration\n\
             lists the public keys of the peers: use key.\n\n\
             Examples:\n  pronto trust init /root/authority --domain example.org\n  \
             pronto trust issue /root/authority --node 2 --out /root/for-node-2\n  \
             pronto trust show /root/for-node-2/node-2.pem",
        );
    with_subcommands(command, ALL)
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    run_one_of(ALL, options)
}

/// The option of a required path.
fn path_argument(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).required(true).value_parser(value_parser!(PathBuf)).help(help)
}

fn path<'a>(options: &'a ArgMatches, name: &str) -> &'a Path {
    options.get_one::<PathBuf>(name).expect("clap asks for it")
}

/// Returns the present time.
fn now() -> anyhow::Result<Timestamp> {
    #[expect(clippy::disallowed_methods, reason = "a program is an edge, and certificates contain times")]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).context("the clock of this host is before 1970")?;
    Ok(Timestamp(since.as_secs()))
}

/// Returns a line of a configuration with the absolute path of a file.
fn toml_line(key: &str, path: &Path) -> anyhow::Result<String> {
    let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    let text = path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))?;
    // The escapes of a JSON string are valid in a TOML string too.
    Ok(format!("{key} = {}\n", serde_json::Value::from(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_found_by_its_name() {
        crate::commands::assert_named(describe(), ALL);
    }
}

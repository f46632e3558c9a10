//! `pronto trust key`: makes the key of a node whose peers know it by its public key.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use pronto_trust::authority::{new_key, save_key};

use super::{path, path_argument, toml_line};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "key", describe, run };

fn describe() -> Command {
    Command::new("key")
        .about("Makes the key of a node whose peers know it by its public key")
        .after_help(
            "Writes the private key, and prints the lines for the node's own configuration and for those of its peers. An existing\n\
             file is not replaced; `pronto trust show FILE` prints its public key.\n\n\
             Example:\n  pronto trust key /etc/pronto/2.key",
        )
        .arg(path_argument("file", "FILE", "New file for the private key"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = path(options, "file");
    let (pem, public) = new_key()?;
    save_key(file, &pem)?;
    let line = toml_line("key", file)?;
    write_stdout(&format!(
        "# In the configuration of this node:\n[trust]\nmode = \"keys\"\n{line}\n\
         # In the configurations of its peers, in the [[peer]] of this node:\nkey = \"{public}\"\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

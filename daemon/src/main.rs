//! `pronto`: runs one subcommand.

#![forbid(unsafe_code)]

mod cli_pages;
mod commands;

use std::process::ExitCode;

use clap::Command;

fn main() -> ExitCode {
    if let Some(code) = cli_pages::serve("pronto", command) {
        return code;
    }
    let matches = command().get_matches();
    let (name, options) = matches.subcommand().expect("clap requires a subcommand");
    let subcommand = commands::find(name).expect("clap accepts only listed subcommands");
    match (subcommand.run)(options) {
        Ok(code) => code,
        // The reader of standard output has closed the pipe, as `head` does.
        Err(error) if commands::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pronto: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    Command::new("pronto")
        .about("Inspects and measures running Pronto nodes, and runs the demo")
        .after_help("Example:\n  pronto ping 1 --at tcp:127.0.0.1:7001")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(commands::ALL.iter().map(|subcommand| (subcommand.describe)()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_subcommand_is_found_by_its_name() {
        for subcommand in commands::ALL {
            let described = (subcommand.describe)();
            assert_eq!(described.get_name(), subcommand.name);
            assert!(commands::find(subcommand.name).is_some());
        }
    }
}

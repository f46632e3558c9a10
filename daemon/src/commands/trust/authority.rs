//! `pronto trust init`, `issue` and `revoke`: the work of a private certificate authority.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use pronto::NodeId;
use pronto_trust::authority::{Authority, AuthorityError, CERTIFICATE, Delivered, KEY, REVOKED, Request};
use pronto_trust::{FIRST_VISITOR, Name, inspect};

use super::{now, path, path_argument, toml_line};
use crate::commands::{Subcommand, write_stdout};

pub(super) const INIT: Subcommand = Subcommand { name: "init", describe: describe_init, run: init };
pub(super) const ISSUE: Subcommand = Subcommand { name: "issue", describe: describe_issue, run: issue };
pub(super) const REVOKE: Subcommand = Subcommand { name: "revoke", describe: describe_revoke, run: revoke };

/// Longest validity: 100 years.
const MAX_DAYS: i64 = 36_500;

fn days(default: &'static str) -> Arg {
    Arg::new("days")
        .long("days")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=MAX_DAYS))
        .default_value(default)
        .help("Validity in days")
}

fn authority_folder() -> Arg {
    path_argument("folder", "DIR", "Folder of the authority")
}

fn describe_init() -> Command {
    Command::new("init")
        .about("Makes a certificate authority")
        .after_help(
            "Writes three files. authority.pem and revoked.pem are public: `issue` copies them to the files of each node. authority.key\n\
             is secret: anyone who has it can be any node, so keep it on a machine that runs no node. No file is replaced.\n\n\
             Example:\n  pronto trust init /root/authority --domain example.org",
        )
        .arg(authority_folder())
        .arg(
            Arg::new("domain")
                .long("domain")
                .value_name("NAME")
                .required(true)
                .help("Domain in the names of nodes and operators. Nodes reject certificates of other domains"),
        )
        .arg(days("3650"))
}

fn init(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let folder = path(options, "folder");
    let domain: &String = options.get_one("domain").expect("clap asks for it");
    let days: u32 = *options.get_one("days").expect("has a default");
    Authority::create(domain, now()?, days)?.save(folder)?;
    write_stdout(&format!(
        "{}: certificate of the authority, for each node\n\
         {}: revoked certificates, none yet, for each node\n\
         {}: key of the authority: keep it secret, no node needs it\n",
        folder.join(CERTIFICATE).display(),
        folder.join(REVOKED).display(),
        folder.join(KEY).display(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn describe_issue() -> Command {
    Command::new("issue")
        .about("Makes a key and a certificate for a node or an operator")
        .after_help(
            "Writes node-2.pem and node-2.key, or operator-alice.pem and operator-alice.key, next to them copies of authority.pem and\n\
             revoked.pem, and prints the [trust] section of a configuration that uses these four files. Copy them to the node's host,\n\
             and correct the paths in the section if they are elsewhere there. Keys and certificates are never replaced: a new\n\
             certificate before the end of the old one needs another --out. DIR/issued keeps a copy of each certificate, to revoke\n\
             it when the node's own file is gone.\n\n\
             Examples:\n  pronto trust issue /root/authority --node 2 --out /root/for-node-2\n  \
             pronto trust issue /root/authority --operator alice --role admin --days 30 > alice.toml\n  \
             pronto status 2 --at tcp:10.0.0.2:7001 --trust alice.toml",
        )
        .arg(authority_folder())
        .arg(
            Arg::new("node")
                .long("node")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..i64::from(FIRST_VISITOR.0)))
                .help("Id of the node"),
        )
        .arg(
            Arg::new("operator")
                .long("operator")
                .value_name("NAME")
                .help("Name of an operator, who uses commands such as `pronto status`"),
        )
        .group(ArgGroup::new("name").args(["node", "operator"]).required(true))
        .arg(
            Arg::new("role")
                .long("role")
                .value_name("ROLE")
                .action(ArgAction::Append)
                .help("A role, for the rules of nodes; may be repeated"),
        )
        .arg(days("365"))
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .default_value(".")
                .help("Folder for the files"),
        )
}

fn issue(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let folder = path(options, "folder");
    let name = match (options.get_one::<u16>("node"), options.get_one::<String>("operator")) {
        (Some(node), _) => Name::Node(NodeId(*node)),
        (None, operator) => Name::Operator(operator.expect("clap asks for one of the two").clone()),
    };
    let roles = options.get_many("role").unwrap_or_default().cloned().collect();
    let days: u32 = *options.get_one("days").expect("has a default");
    let request = Request::for_days(name, roles, now()?, days);
    let authority = Authority::load(folder)?;
    let files = authority.deliver(&authority.issue(&request)?, folder, path(options, "out"))?;
    write_stdout(&section(&files)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the section of a configuration that uses these files.
fn section(files: &Delivered) -> anyhow::Result<String> {
    Ok([
        "[trust]\nmode = \"tls\"\n".to_owned(),
        toml_line("certificate", &files.certificate)?,
        toml_line("key", &files.key)?,
        toml_line("authorities", &files.authorities)?,
        toml_line("revoked", &files.revoked)?,
    ]
    .concat())
}

fn describe_revoke() -> Command {
    Command::new("revoke")
        .about("Adds a certificate to the list of revoked certificates")
        .after_help(
            "Changes revoked.pem in the authority's folder. Nodes reject the certificate when they have a copy of the new list and\n\
             have been reloaded (kill -HUP). If the node's own file is gone, take the copy in DIR/issued. The list is valid as long\n\
             as the authority.\n\n\
             Examples:\n  pronto trust revoke /root/authority /root/for-node-2/node-2.pem\n  \
             pronto trust revoke /root/authority /root/authority/issued/node-2-SERIAL.pem",
        )
        .arg(authority_folder())
        .arg(path_argument("certificate", "CERTIFICATE", "File of the certificate"))
}

fn revoke(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (folder, file) = (path(options, "folder"), path(options, "certificate"));
    let certificate = inspect::first_certificate(file)?;
    let mut authority = Authority::load(folder)?;
    let revoked = match authority.revoke(&certificate, now()?) {
        Ok(()) => {
            authority.save_revoked(folder)?;
            "is revoked"
        }
        Err(AuthorityError::AlreadyRevoked { .. }) => "is revoked already",
        Err(error) => return Err(error.into()),
    };
    let (file, list) = (file.display(), folder.join(REVOKED));
    write_stdout(&format!(
        "{file} {revoked}: copy {} to each node, and reload each node (kill -HUP)\n",
        list.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

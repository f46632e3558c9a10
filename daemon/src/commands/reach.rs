//! Connecting to a node, as a short-lived visitor node: for `ping`, `status` and `waiting`.

use core::time::Duration;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use pronto::admin::FIRST_VISITOR;
use pronto::credentials::Source;
use pronto::{Address, Config, Node, NodeError, NodeId, Peer};

/// Maximum number of visitors that are started, one after the other, because another one has the id. Two of 20 visitors of one node have the same
/// id once in ten times, and a visitor four times in a row practically never.
const MAX_VISITORS: u32 = 4;
/// Interval between two checks whether the node has refused the id of a visitor.
const CHECK: Duration = Duration::from_millis(50);
/// Advice if a node requires TLS and there are no credentials.
const NEEDS_TRUST: &str = "; use --trust FILE or --config FILE";

/// A connected peer, and the visitor node that must outlive its use.
pub(super) struct Reached {
    pub(super) peer: Peer,
    _visitor: Node,
}

/// Adds the options that select a node to a subcommand. `rest` is the usage of its other required arguments.
pub(super) fn with_node_options(command: Command, rest: &str) -> Command {
    let numbers = value_parser!(u16).range(1..=i64::from(FIRST_VISITOR.0 - 1));
    let name = command.get_name().to_owned();
    // The generated usage would show NODE as optional, or as required, for both forms.
    let usage = format!(
        "pronto {name} [OPTIONS] <NODE> {rest}--at <ADDRESS>\n       pronto {name} [OPTIONS] [NODE] {rest}--config <FILE>"
    );
    command
        .override_usage(usage)
        .arg(
            Arg::new("node")
                .value_name("NODE")
                .value_parser(numbers)
                .required_unless_present("config")
                .help("Id of the node; optional with --config"),
        )
        .arg(
            Arg::new("at")
                .long("at")
                .value_name("ADDRESS")
                .value_parser(value_parser!(Address))
                .requires("node")
                .help("Address at which the node listens: shm:PATH, shm:@NAME or tcp:HOST:PORT"),
        )
        .arg(Arg::new("config").long("config").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "Read the address from this configuration file instead of --at, and the credentials ([trust]) as well. Contacts the file's own node, or NODE if it is one of its peers",
        ))
        .arg(
            Arg::new("trust")
                .long("trust")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .requires("at")
                .conflicts_with_all(["config", "plaintext"])
                .help(
                    "Read the credentials for TCP ([trust]) from this file, which `pronto trust issue DIR --operator alice > alice.toml` makes, \
                     as in: --at tcp:10.0.0.2:7001 --trust alice.toml",
                ),
        )
        .group(ArgGroup::new("where").args(["at", "config"]).required(true))
        .arg(
            Arg::new("plaintext").long("plaintext").action(ArgAction::SetTrue).help(
                "Allow unencrypted traffic to another host (not needed with --config if the file sets `plaintext`)",
            ),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..=3600))
                .default_value("5")
                .help("Time limit for connecting to the node"),
        )
}

/// Connects to the node that the options name.
pub(super) fn reach(options: &ArgMatches) -> anyhow::Result<Reached> {
    let target = target(options)?;
    let limit = Duration::from_secs(*options.get_one("timeout").expect("has a default"));
    let (mut left, mut started) = (limit, 0);
    loop {
        let visitor = visitor(&target)?;
        started += 1;
        let failed = loop {
            let span = left.min(CHECK);
            left -= span;
            match visitor.wait_for_peer(target.node, span) {
                Ok(peer) => return Ok(Reached { peer, _visitor: visitor }),
                Err(error @ NodeError::NotUp { .. }) if !left.is_zero() => {
                    if target.addresses.len() == 1 && has_lasting_reason(&visitor) {
                        break Some(error);
                    }
                    if started < MAX_VISITORS && is_taken(&visitor) {
                        break None;
                    }
                }
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = failed {
            return Err(not_reached(error, &target, limit - left));
        }
    }
}

/// Returns whether the node has refused the id of a visitor, because another visitor has it.
fn is_taken(visitor: &Node) -> bool {
    visitor.status().failed_dials.iter().any(|(reason, _)| *reason == "id_taken")
}

/// Returns whether an attempt has failed for a reason that stays for as long as the visitor waits.
fn has_lasting_reason(visitor: &Node) -> bool {
    const LASTING: [&str; 4] = ["not_pronto", "version", "wrong_node", "untrusted"];
    visitor.status().failed_dials.iter().any(|(reason, _)| LASTING.contains(reason))
}

/// Starts a visitor with an id of its own.
fn visitor(target: &Target) -> anyhow::Result<Node> {
    let mut builder = Node::visitor().name("visitor");
    if target.plaintext {
        builder = builder.plaintext_i_understand();
    }
    if let Some((source, owner)) = target.trust.clone() {
        // A certificate names its owner, which need not be the node of the file. A key is that of the file's node.
        builder = match source {
            Source::Certificates { .. } => builder.trust(source),
            Source::Keys { .. } => builder.trust_of(owner, source),
        };
    }
    let node = target.node;
    let builder = target.addresses.iter().fold(builder, |builder, address| builder.peer(node, address));
    builder.start().map_err(|error| match error {
        NodeError::Plaintext { address, .. } => anyhow!(
            "{address} is not a loopback address, so that unencrypted traffic could leave this host: allow it with --plaintext, or with \
             `plaintext = \"i understand\"` in a configuration"
        ),
        error => error.into(),
    })
}

fn not_reached(error: NodeError, target: &Target, waited: Duration) -> anyhow::Error {
    let Target { node, addresses, .. } = target;
    match error {
        // The reason names the address.
        NodeError::NotUp { why: Some(why), .. } => {
            let advice =
                if target.trust.is_none() && why.contains("requires TLS") { NEEDS_TRUST } else { "" };
            let within = match waited.as_secs() {
                0 => String::new(),
                seconds => format!(" within {seconds} s"),
            };
            anyhow!("cannot connect to node {node}{within}: {why}{advice}")
        }
        error => {
            anyhow!(error).context(format!("cannot connect to node {node} at {}", addresses.join(" or ")))
        }
    }
}

/// The selected node, and how to connect to it.
struct Target {
    node: NodeId,
    addresses: Vec<String>,
    /// Whether unencrypted traffic between hosts is allowed.
    plaintext: bool,
    /// Credentials for the visitor, and the node that has them.
    trust: Option<(Source, NodeId)>,
}

fn target(options: &ArgMatches) -> anyhow::Result<Target> {
    let named = options.get_one::<u16>("node").copied();
    if let (Some(node), Some(at)) = (named, options.get_one::<Address>("at")) {
        let (node, plaintext) = (NodeId(node), options.get_flag("plaintext"));
        let trust = options.get_one::<PathBuf>("trust").map(|file| Config::read_trust(file)).transpose()?;
        // A certificate names its owner.
        let trust = trust.map(|source| (source, FIRST_VISITOR));
        return Ok(Target { node, addresses: vec![at.to_string()], plaintext, trust });
    }
    let file: &PathBuf = options.get_one("config").expect("clap asks for one of the two");
    let config = Config::read(file)?;
    let node = named.unwrap_or(config.node);
    let trust = config.trust_source()?.map(|source| (source, NodeId(config.node)));
    let plaintext = config.plaintext.is_some() || options.get_flag("plaintext");
    let addresses = if node == config.node {
        // A node permits most to its own user, whom it knows over shared memory.
        let (shm, others) =
            config.listen.into_iter().partition::<Vec<_>, _>(|address| address.starts_with("shm:"));
        [shm, others].concat()
    } else {
        let peer = config.peer.into_iter().find(|peer| peer.node == node);
        let unknown =
            || format!("{} has no [[peer]] with node = {node}: use --at ADDRESS instead", file.display());
        peer.with_context(unknown)?.address
    };
    if addresses.is_empty() {
        bail!(
            "{} has no address for node {node}, which does not listen: contact one of its peers instead",
            file.display()
        );
    }
    Ok(Target { node: NodeId(node), addresses, plaintext, trust })
}

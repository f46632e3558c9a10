//! `pronto trust show`: describes certificates, revocation lists and keys.

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use pronto_trust::authority::ISSUED;
use pronto_trust::inspect::{self, Certificate, Part, RevocationList};
use pronto_trust::{Name, PublicKey, Timestamp};
use serde_json::{Value, json};

use super::{now, path, path_argument};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "show", describe, run };

fn describe() -> Command {
    Command::new("show")
        .about("Describes the certificates, keys or revocation lists in a file")
        .after_help(
            "Of a private key, only the public half is shown. Nothing is verified: a node also checks the signatures.\n\n\
             For a revocation list, the names come from the folder `issued` next to it, which an authority's folder has.\n\n\
             Examples:\n  pronto trust show /root/for-node-2/node-2.pem\n  \
             pronto trust show --json node-2.pem | jq '.parts[].days_left'",
        )
        .arg(path_argument("file", "FILE", "File of certificates, a revocation list, or a key"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = path(options, "file");
    let (parts, now) = (inspect::file(file)?, now()?);
    let issued = file.with_file_name(ISSUED);
    let text = if options.get_flag("json") {
        let parts: Vec<_> = parts.iter().map(|part| as_json(part, now, &issued)).collect();
        format!("{}\n", json!({ "parts": parts }))
    } else {
        let parts: Vec<_> = parts.iter().map(|part| as_text(part, now, &issued)).collect();
        parts.join("\n")
    };
    write_stdout(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(part: &Part, now: Timestamp, issued: &Path) -> Value {
    match part {
        Part::Certificate(certificate) => certificate_as_json(certificate, now),
        Part::RevocationList(list) => json!({
            "kind": "revocation list",
            "issuer": list.issuer,
            "this_update": list.this_update.0,
            "next_update": list.next_update.map(|time| time.0),
            "revoked": list.revoked,
            "names": names_of(list, issued).iter().map(|name| name.as_ref().map(Name::to_string)).collect::<Vec<_>>(),
        }),
        Part::PrivateKey(key) => {
            json!({ "kind": "private key", "public_key": key.as_ref().map(PublicKey::to_string) })
        }
        Part::PublicKey(key) => json!({ "kind": "public key", "public_key": key.to_string() }),
        _ => Value::Null,
    }
}

fn certificate_as_json(certificate: &Certificate, now: Timestamp) -> Value {
    let (node, operator) = match &certificate.name {
        Ok(Name::Node(node)) => (Some(node.0), None),
        Ok(Name::Operator(operator)) => (None, Some(operator)),
        Err(_) => (None, None),
    };
    json!({
        "kind": "certificate",
        "node": node,
        "operator": operator,
        "fault": certificate.name.as_ref().err().map(ToString::to_string),
        "roles": certificate.roles,
        "uris": certificate.uris,
        "authority": certificate.is_authority,
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "serial": certificate.serial,
        "not_before": certificate.not_before.0,
        "not_after": certificate.not_after.0,
        "days_left": certificate.not_after.days_after(now),
        "fingerprint": certificate.fingerprint,
    })
}

fn as_text(part: &Part, now: Timestamp, issued: &Path) -> String {
    match part {
        Part::Certificate(certificate) => certificate_as_text(certificate, now),
        Part::RevocationList(list) => list_as_text(list, now, issued),
        Part::PrivateKey(Some(key)) => format!("private key, public half: {key}\n"),
        Part::PrivateKey(None) => "private key, neither ed25519 nor p256\n".to_owned(),
        Part::PublicKey(key) => format!("public key: {key}\n"),
        _ => String::new(),
    }
}

fn certificate_as_text(certificate: &Certificate, now: Timestamp) -> String {
    let name = match &certificate.name {
        _ if certificate.is_authority => format!("authority {}", certificate.subject),
        Ok(name) => name.to_string(),
        Err(fault) => format!("not usable by a node: {fault}"),
    };
    let mut text = format!("certificate: {name}\n");
    let mut line = |key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {key:<12} {value}");
    };
    for uri in &certificate.uris {
        line("name", uri);
    }
    if !certificate.roles.is_empty() {
        line("roles", &certificate.roles.join(", "));
    }
    line("valid from", &certificate.not_before.to_string());
    line("valid until", &format!("{} ({})", certificate.not_after, left(certificate.not_after, now)));
    line("issuer", &certificate.issuer);
    line("serial", &certificate.serial);
    line("sha-256", &certificate.fingerprint);
    text
}

fn list_as_text(list: &RevocationList, now: Timestamp, issued: &Path) -> String {
    let mut text = format!("revocation list of {}\n  made         {}\n", list.issuer, list.this_update);
    if let Some(next) = list.next_update {
        let _ = writeln!(text, "  valid until  {next} ({})", left(next, now));
    }
    let _ = writeln!(text, "  revoked      {}", list.revoked.len());
    for (serial, name) in list.revoked.iter().zip(names_of(list, issued)) {
        let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
        let _ = writeln!(text, "  serial       {serial}{name}");
    }
    text
}

/// Returns for each revoked certificate the name in its copy, `NAME-SERIAL.pem`, if the folder has it.
fn names_of(list: &RevocationList, issued: &Path) -> Vec<Option<Name>> {
    let copies: BTreeMap<String, PathBuf> = issued
        .read_dir()
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let (_, serial) = path.file_stem()?.to_str()?.rsplit_once('-')?;
            Some((serial.to_owned(), path))
        })
        .collect();
    let name = |serial: &String| match inspect::file(copies.get(serial)?).ok()?.swap_remove(0) {
        Part::Certificate(copy) if copy.serial == *serial => copy.name.ok(),
        _ => None,
    };
    list.revoked.iter().map(name).collect()
}

/// Returns how many days are left.
fn left(until: Timestamp, now: Timestamp) -> String {
    match until.days_after(now) {
        ..=-1 => "expired".to_owned(),
        1 => "1 day left".to_owned(),
        days => format!("{days} days left"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_left_are_readable() {
        let now = Timestamp(1_000_000);
        assert_eq!(left(Timestamp(now.0 - 1), now), "expired");
        assert_eq!(left(now, now), "0 days left");
        assert_eq!(left(now.plus_days(1), now), "1 day left");
        assert_eq!(left(now.plus_days(300), now), "300 days left");
    }
}

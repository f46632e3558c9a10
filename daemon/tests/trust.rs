//! `pronto trust` as an operator uses it.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto::NodeId;
use pronto_trust::{Credentials, Denied, Name, Source, TrustError, inspect};
use serde_json::Value;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pronto-trust-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Self(folder)
    }

    /// Runs `pronto trust` with these words in the folder.
    fn trust(&self, words: &[&str]) -> Output {
        let program = env!("CARGO_BIN_EXE_pronto");
        Command::new(program).arg("trust").args(words).current_dir(&self.0).output().expect("it runs")
    }

    /// Runs a command that must succeed, and returns its output.
    fn output(&self, words: &[&str]) -> String {
        let output = self.trust(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command that must fail, and returns its error.
    fn error(&self, words: &[&str]) -> String {
        let output = self.trust(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn show(&self, file: &str) -> Value {
        let output: Value = serde_json::from_str(&self.output(&["show", file, "--json"])).expect("JSON");
        output["parts"][0].clone()
    }
}

/// Returns the value of a line of a configuration.
fn value(config: &str, key: &str) -> String {
    let line = config.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
    line.unwrap_or_else(|| panic!("no {key}: {config}")).trim_matches('"').to_owned()
}

fn source(config: &str) -> Source {
    let path = |key| PathBuf::from(value(config, key));
    Source::Certificates {
        certificate: path("certificate"),
        key: path("key"),
        authorities: path("authorities"),
        revoked: Some(path("revoked")),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stored").permissions().mode() & 0o777
}

/// Shows: operations.trust-section
#[test]
fn an_authority_issues_and_revokes_certificates() {
    let folder = Folder::new("authority");
    let made = folder.output(&["init", "ca", "--domain", "example.org"]);
    assert!(made.contains("ca/authority.key: key of the authority: keep it secret"), "{made}");
    assert!(folder.error(&["init", "ca", "--domain", "example.org"]).contains("exists already"));

    let config = folder.output(&["issue", "ca", "--node", "2", "--role", "a", "--role", "b", "--out", "out"]);
    for key in ["certificate", "key", "authorities", "revoked"] {
        let file = PathBuf::from(value(&config, key));
        assert_eq!(file.parent(), Some(&*folder.0.join("out").canonicalize().expect("made")), "{config}");
    }
    assert!(config.starts_with("[trust]\nmode = \"tls\"\ncertificate = \"/"), "{config}");
    assert_eq!(mode(Path::new(&value(&config, "key"))), 0o600);
    let credentials = Credentials::load(&source(&config), NodeId(2)).expect("the printed paths are right");
    assert_eq!(credentials.identity().name, Name::Node(NodeId(2)));
    assert_eq!(credentials.identity().roles, ["a", "b"]);
    assert!(folder.error(&["issue", "ca", "--node", "2", "--out", "out"]).contains("exists already"));
    let other = folder.output(&["issue", "ca", "--operator", "alice", "--days", "30"]);
    assert!(value(&other, "certificate").ends_with("/operator-alice.pem"), "{other}");

    let shown = folder.show("out/node-2.pem");
    assert_eq!((&shown["kind"], &shown["node"]), (&Value::from("certificate"), &Value::from(2)));
    assert_eq!(shown["roles"], serde_json::json!(["a", "b"]));
    assert!((364..=365).contains(&shown["days_left"].as_i64().expect("a number")), "{shown}");
    let text = folder.output(&["show", "operator-alice.pem"]);
    // The second has not yet passed in which the certificate was made, or has.
    let left = ["(29 days left)", "(30 days left)"];
    assert!(text.starts_with("certificate: operator alice\n"), "{text}");
    assert!(left.iter().any(|left| text.contains(left)), "{text}");
    assert!(text.contains("spiffe://example.org/pronto/operator/alice"), "{text}");
    let public = folder.show("out/node-2.key")["public_key"].clone();
    assert!(public.as_str().is_some_and(|key| key.starts_with("p256:")), "{public}");

    let revoked = folder.output(&["revoke", "ca", "out/node-2.pem"]);
    let advice = "copy ca/revoked.pem to each node, and reload each node (kill -HUP)\n";
    assert_eq!(revoked, format!("out/node-2.pem is revoked: {advice}"));
    let list = folder.show("ca/revoked.pem");
    assert_eq!((&list["revoked"][0], &list["names"]), (&shown["serial"], &serde_json::json!(["node 2"])));
    let serial = shown["serial"].as_str().expect("text");
    assert!(folder.output(&["show", "ca/revoked.pem"]).contains(&format!("{serial} (node 2)\n")));
    assert!(Credentials::load(&source(&config), NodeId(2)).is_ok(), "its list is older");
    fs::copy(folder.0.join("ca/revoked.pem"), value(&config, "revoked")).expect("both are ours");
    fs::copy(folder.0.join("ca/revoked.pem"), value(&other, "revoked")).expect("both are ours");
    assert_eq!(folder.show("out/revoked.pem")["names"], serde_json::json!([null]));
    let error = Credentials::load(&source(&config), NodeId(2)).expect_err("revoked");
    assert!(matches!(error, TrustError::Own { reason: Denied::Revoked, .. }), "{error}");
    // The copy that the authority has is of the same certificate.
    let copy = format!("ca/issued/node-2-{serial}.pem");
    assert_eq!(folder.output(&["revoke", "ca", &copy]), format!("{copy} is revoked already: {advice}"));
    assert_eq!(folder.show("ca/revoked.pem"), list);
    let chain = [inspect::first_certificate(Path::new(&value(&config, "certificate"))).expect("stored")];
    let alice = Credentials::load(&source(&other), NodeId(64_000)).expect("not revoked");
    assert_eq!(alice.identify(&chain), Err(Denied::Revoked));
}

#[test]
fn keys_are_made_and_shown() {
    let folder = Folder::new("keys");
    let lines = folder.output(&["key", "2.key"]);
    assert!(lines.contains("[trust]\nmode = \"keys\"\nkey = \"/"), "{lines}");
    let public =
        lines.lines().last().and_then(|line| line.strip_prefix("key = \"ed25519:")).expect("the last line");
    assert_eq!(mode(&folder.0.join("2.key")), 0o600);
    let shown = folder.output(&["show", "2.key"]);
    assert!(shown.contains(public.trim_matches('"')), "{shown}");
    assert!(folder.error(&["key", "2.key"]).contains("exists already"));
    let key = value(&lines, "key").into();
    assert!(Credentials::load(&Source::Keys { key, peers: Vec::new() }, NodeId(2)).is_ok());
    fs::set_permissions(folder.0.join("2.key"), fs::Permissions::from_mode(0o644)).expect("ours");
    assert!(folder.error(&["show", "2.key"]).contains("chmod 600 2.key"));
}

#[test]
fn wrong_command_lines_are_explained() {
    let folder = Folder::new("wrong");
    assert!(folder.error(&["issue", "ca", "--node", "1"]).contains("cannot read ca/authority.key"));
    assert!(folder.error(&["issue", "ca"]).contains("--node <N>|--operator <NAME>"));
    assert!(folder.error(&["issue", "ca", "--node", "64000"]).contains("64000"));
    assert!(folder.error(&["init", "ca", "--domain", "A b"]).contains("invalid domain \"A b\""));
    assert!(folder.error(&["show", "missing"]).contains("cannot read missing"));
}

#[test]
fn wrong_credentials_of_an_operator_are_explained() {
    let folder = Folder::new("operator");
    let error = |words: &[&str]| {
        let output = pronto(&[&["ping", "1"], words].concat());
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let file = |section: &str| {
        let path = folder.0.join("alice.toml");
        fs::write(&path, section).expect("the folder is writable");
        let error = error(&["--at", "tcp:127.0.0.1:1", "--trust", path.to_str().expect("text")]);
        assert!(error.contains("alice.toml: "), "{error}");
        error
    };
    assert!(file("[trust]\nmode = \"keys\"\nkey = \"k\"\n").contains("needs the id of a node"));
    assert!(file("[trust]\nmode = \"tls\"\n").contains("needs trust.certificate too"));
    assert!(file("node = 1\n").contains("unknown field `node`"));
    assert!(error(&["--at", "tcp:127.0.0.1:1", "--trust", "/no/file"]).contains("cannot read /no/file"));
    assert!(error(&["--config", "1.toml", "--trust", "alice.toml"]).contains("cannot be used with"));
}

/// A running `prontod`.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Daemon {
    fn start(config: &Path) -> Self {
        let log = fs::File::create(config.with_extension("log")).expect("the folder is writable");
        let mut program = Command::new(env!("CARGO_BIN_EXE_prontod"));
        Self(program.arg("--config").arg(config).stderr(log).spawn().expect("the program starts"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a process id"));
        kill(pid, signal).expect("the process exists");
    }
}

fn pronto(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pronto")).args(words).output().expect("the program runs")
}

/// Waits until `found` returns a value.
fn eventually<T>(condition: &str, mut found: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "a wait is limited by time, not by a number of attempts")]
    let begun = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {condition}");
    }
}

/// Two daemons with the printed sections. An operator revokes one of them.
///
/// Shows: operations.trust-section, operations.trust-reload, operations.trust-operator, operations.other-hosts
#[test]
fn daemons_link_by_their_certificates_until_one_is_revoked() {
    let folder = Folder::new("daemons");
    folder.output(&["init", "ca", "--domain", "example.org"]);
    // Other tests and processes use ports of 127.0.0.1, where the system may assign this one meanwhile.
    let [.., high, low] = std::process::id().to_be_bytes();
    let own = (Ipv4Addr::new(127, 200, high, low), 0);
    let free = TcpListener::bind(own).and_then(|listener| listener.local_addr()).expect("a port");
    let listen = format!("listen = [\"tcp:{free}\"]\n");
    let peer = format!("[[peer]]\nnode = 1\naddress = [\"tcp:{free}\"]\n");
    let config = |node: u16, before: &str, after: &str| {
        let trust = folder.output(&["issue", "ca", "--node", &node.to_string()]);
        let path = folder.0.join(format!("{node}.toml"));
        fs::write(&path, format!("node = {node}\n{before}{after}{trust}")).expect("the folder is writable");
        path
    };
    let (one, two) = (config(1, &listen, ""), config(2, "", &peer));
    let first = Daemon::start(&one);
    let _second = Daemon::start(&two);
    let of_operator = folder.0.join("alice.toml");
    let alice = folder.output(&["issue", "ca", "--operator", "alice", "--role", "admin"]);
    fs::write(&of_operator, alice).expect("the folder is writable");
    let (address, of_operator) = (format!("tcp:{free}"), of_operator.to_str().expect("text"));
    let status = || {
        let status = pronto(&["status", "1", "--json", "--at", &address, "--trust", of_operator]);
        serde_json::from_slice::<Value>(&status.stdout).ok()
    };
    let peer_2 = || {
        let status = status()?;
        status["peers"].as_array()?.iter().find(|peer| peer["node"] == 2).cloned()
    };
    let linked = eventually("node 2 is linked", || peer_2().filter(|peer| peer["state"] == "up"));
    assert!(linked["choice"].as_str().is_some_and(|choice| choice.contains("certificate")), "{linked}");
    let trust = status().expect("the node replies")["trust"].clone();
    assert!(trust.as_str().is_some_and(|text| text.contains("node 1, 36")), "{trust}");

    let without = pronto(&["ping", "1", "--timeout", "60", "--at", &format!("tcp:{free}")]);
    let reason = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && reason.contains("requires TLS"), "{reason}");
    assert!(reason.contains("use --trust FILE"), "{reason}");
    assert!(!reason.contains("within 60 s"), "it waited although the reason lasts: {reason}");
    // An address of documentation (RFC 5737), where no node is. Nothing would be sent to it without encryption.
    for (trust, is_refused) in [(&["--trust", of_operator][..], false), (&[], true)] {
        let away = pronto(&[&["ping", "1", "--timeout", "1", "--at", "tcp:192.0.2.1:7001"], trust].concat());
        assert_eq!(String::from_utf8_lossy(&away.stderr).contains("--plaintext"), is_refused, "{away:?}");
    }
    // The certificate of a node is good for its operator too.
    for command in ["ping", "status"] {
        let by_config = pronto(&[command, "--config", one.to_str().expect("text")]);
        assert!(by_config.status.success(), "{}", String::from_utf8_lossy(&by_config.stderr));
    }
    let of_other = folder.0.join("bob.toml");
    fs::write(&of_other, folder.output(&["issue", "ca", "--operator", "bob"]))
        .expect("the folder is writable");
    let other = pronto(&["status", "1", "--at", &address, "--trust", of_other.to_str().expect("text")]);
    let reason = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && reason.contains("[[allow]]"), "{reason}");

    folder.output(&["revoke", "ca", "node-2.pem"]);
    fs::copy(folder.0.join("ca/revoked.pem"), folder.0.join("revoked.pem")).expect("both are ours");
    first.signal(Signal::SIGHUP);
    // Node 1 forgets a peer that is not in its configuration.
    eventually("node 2 is down", || peer_2().is_none().then_some(()));
    let log = fs::read_to_string(folder.0.join("1.log")).expect("the daemon has one");
    assert!(log.contains("node 2 is down") && log.contains("(Untrusted)"), "{log}");
    let refused = eventually("node 2 is refused", || {
        let refused = fs::read_to_string(folder.0.join("2.log")).ok()?;
        refused.contains("this node's certificate revoked").then_some(refused)
    });
    assert!(refused.contains("node 1 is up (tcp)"), "{refused}");
}

/// Returns the fenced blocks of the section about TLS in `docs/operations.md`, with its folder and its host replaced.
fn documented(folder: &str, host: &str) -> Vec<String> {
    let document = include_str!("../../docs/operations.md");
    let (_, section) = document.split_once("### TLS\n").expect("the section exists");
    let (section, _) = section.split_once("\n### ").expect("another one follows");
    let block = |text: &str| text.split_once('\n').expect("a language").1.replace("/tmp/pronto", folder);
    section.split("```").skip(1).step_by(2).map(|text| block(text).replace("127.0.0.1", host)).collect()
}

/// Runs the commands of a block, without those that the test replaces.
fn shell(folder: &Folder, block: &str, replaced: &[&str]) {
    let lines = block.lines().filter(|line| !replaced.iter().any(|begin| line.starts_with(begin)));
    let commands = lines.collect::<Vec<_>>().join("\n");
    let programs = Path::new(env!("CARGO_BIN_EXE_pronto")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("set"));
    let mut sh = Command::new("sh");
    let output = sh.args(["-e", "-c", &commands]).env("PATH", path).current_dir(&folder.0).output();
    let output = output.expect("a shell exists");
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Follows the section about TLS: three nodes, an operator with rules, a revocation and a renewal.
///
/// Shows: operations.trust-example, operations.trust-commands, operations.trust-operator, operations.trust-revoke, operations.trust-renew
#[test]
fn the_documented_nodes_link_and_their_certificates_are_revoked_and_renewed() {
    let folder = Folder::new("documented");
    let [.., high, low] = std::process::id().to_be_bytes();
    // Ports of this address are not those of other tests.
    let host = format!("127.201.{high}.{low}");
    let blocks = documented(folder.0.to_str().expect("text"), &host);
    let [authority, one, start, rules, revoke, renew] = &blocks[..] else { panic!("{blocks:#?}") };
    shell(&folder, authority, &["mkdir"]);
    let path = |name: &str| folder.0.join(name);
    fs::write(path("1.toml"), one).expect("the folder is writable");
    shell(&folder, start, &["prontod", "pronto"]);
    let nodes = [1, 2, 3].map(|node| Daemon::start(&path(&format!("{node}.toml"))));
    let (address, alice) = (format!("tcp:{host}:7001"), path("alice.toml"));
    let alice = |words: &[&str]| {
        let visit = ["1", "--at", &address, "--trust", alice.to_str().expect("text")];
        pronto(&[&words[..1], &visit[..], &words[1..]].concat())
    };
    let peer = |node: u16| {
        let status: Value = serde_json::from_slice(&alice(&["status", "--json"]).stdout).ok()?;
        status["peers"].as_array()?.iter().find(|peer| peer["node"] == node && peer["state"] == "up").cloned()
    };
    for node in [2, 3] {
        let peer = eventually("the nodes are linked", || peer(node));
        assert!(peer["choice"].as_str().is_some_and(|text| text.contains("known by its certificate")));
    }

    fs::write(path("1.toml"), format!("{one}{rules}")).expect("the folder is writable");
    nodes[0].signal(Signal::SIGHUP);
    let log = |node: u16| fs::read_to_string(path(&format!("{node}.log"))).expect("the daemon has one");
    eventually("node 1 has read the rules", || log(1).contains("SIGHUP: read").then_some(()));
    for words in [&["ping", "--count", "1"][..], &["status"], &["status", "--recent", "3"]] {
        let output = alice(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let config = pronto(&["ping", "--config", path("1.toml").to_str().expect("text")]);
    assert!(String::from_utf8_lossy(&config.stderr).contains("its [[allow]] rules"), "it has no role");

    shell(&folder, revoke, &["kill"]);
    for node in &nodes {
        node.signal(Signal::SIGHUP);
    }
    eventually("node 3 is refused", || log(3).contains("this node's certificate revoked").then_some(()));
    eventually("its link has ended", || log(1).contains("node 3 is down").then_some(()));
    eventually("node 2 has read the list", || log(2).contains("SIGHUP: read").then_some(()));

    shell(&folder, renew, &["kill"]);
    nodes[1].signal(Signal::SIGHUP);
    eventually("node 2 has read its certificate", || {
        (log(2).matches("SIGHUP: read").count() == 2).then_some(())
    });
    assert!(peer(2).is_some() && !log(1).contains("node 2 is down"), "{}", log(1));
}

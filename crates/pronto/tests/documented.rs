//! The programs in documents are examples that are built, and the examples do what the documents say. That the text of the documents
//! itself compiles is a documentation test of the crate.

use core::time::Duration;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto::{Message, Node};

/// Returns a program without comments, white space and trailing commas, with one spelling of the standard library's paths.
fn normalised(program: &str) -> String {
    let without_comments = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let code: String = program.lines().map(without_comments).collect();
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    code.replace("std::", "core::").replace(",}", "}").replace(";}", "}")
}

/// Asserts that the first program of a document is the example. The first paragraph of imports is left out, because their order differs.
fn assert_same(document: &str, example: &str) {
    let (_, rest) = document.split_once("```rust,no_run\n").expect("the document has a program");
    let (program, _) = rest.split_once("```").expect("the program ends");
    let without_imports = |program: &str| {
        let (_, rest) = program.split_once("\n#[derive").expect("a message type follows the imports");
        normalised(rest)
    };
    assert_eq!(without_imports(program), without_imports(example));
}

#[test]
fn the_programs_in_documents_are_the_examples() {
    assert_same(include_str!("../../../README.md"), include_str!("../examples/adder.rs"));
    assert_same(include_str!("../../../docs/embedding.md"), include_str!("../examples/embedded.rs"));
}

/// Returns the path of an example, or `None` if it is not built.
fn example(name: &str) -> Option<PathBuf> {
    // Next to the folder of this test. cargo builds examples with all tests, but not with this one alone.
    let tests = std::env::current_exe().expect("this program has a path");
    let example = tests.ancestors().nth(2).expect("cargo's folder").join("examples").join(name);
    if !example.is_file() {
        pronto_skip::because("the example is not built: cargo build -p pronto --examples");
        return None;
    }
    Some(example)
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn the_two_processes_of_the_example_add() {
    let Some(example) = example("adder") else { return };
    // The example has a fixed address, so tests of other checkouts take turns.
    let lock = File::create(std::env::temp_dir().join("pronto-adder.lock")).expect("a writable folder");
    let _turn = Flock::lock(lock, FlockArg::LockExclusive).expect("the file system has locks");

    let server = Command::new(&example).arg("serve").stdin(Stdio::null()).spawn();
    let mut server = Killed(server.expect("the example starts"));
    let client = Command::new(&example).stdin(Stdio::null()).output().expect("the example starts");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert_eq!(String::from_utf8_lossy(&client.stdout), "6\n");
    assert!(server.0.try_wait().expect("it is a child").is_none(), "the server runs until it is killed");
}

#[derive(Message)]
#[message(name = "guide.total")]
struct Total {
    total: u64,
}

#[derive(Message)]
#[message(name = "guide.add", reply = Total)]
struct Add {
    number: u64,
}

/// Time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn the_embedded_node_serves_reports_and_stops() {
    let Some(example) = example("embedded") else { return };
    let own = std::process::id();
    let (address, file) =
        (format!("shm:@pronto-embedded-{own}"), std::env::temp_dir().join(format!("{own}.toml")));
    std::fs::write(&file, format!("node = 1\nlisten = [\"{address}\"]\n")).expect("a writable folder");
    let program = Command::new(&example).arg(&file).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut program = Killed(program.expect("the example starts"));
    let (sender, lines) = channel();
    let stderr = program.0.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let expect = |line: &str| assert_eq!(lines.recv_timeout(TIMEOUT).as_deref(), Ok(line));

    // It reports the peers that come up after this.
    expect("started");
    let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the program listens");
    assert_eq!(peer.call(&Add { number: 3 }).expect("a reply").total, 3);
    assert_eq!(peer.call(&Add { number: 4 }).expect("a reply").total, 7);
    expect("node 2 is up over shm");
    drop((peer, client));
    expect("node 2 is down: it shut down");
    let pid = i32::try_from(program.0.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
    expect("stopped");
    assert!(lines.recv_timeout(TIMEOUT).is_err(), "more lines");
    assert!(program.0.wait().expect("it is a child").success());
    std::fs::remove_file(&file).expect("it was written");
}

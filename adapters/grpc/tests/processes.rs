//! The example, as two processes.

use core::time::Duration;
use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, ChildStdout, Command, Stdio};

use pronto::Node;
use pronto_stream::{StreamLimits, Streams};
use tokio::io::AsyncReadExt;

const PROGRAM: &str = env!("CARGO_BIN_EXE_grpc-over-pronto");

/// A server process, which ends with this value.
struct Served {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Served {
    fn start(name: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        Self { child, output }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the output is readable");
        line.trim_end().into()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Shows: adapters.grpc
#[test]
fn a_tonic_service_is_called_by_another_process() {
    let name = format!("pronto-grpc-{}", std::process::id());
    let mut server = Served::start(&name);
    assert_eq!(server.next_line(), "ready");
    let long = "long ".repeat(200_000);
    for text in ["hello", &long[..100_000]] {
        let called = Command::new(PROGRAM).args(["call", &name, text]).output().expect("the client starts");
        let output = String::from_utf8_lossy(&called.stdout).into_owned();
        let errors = String::from_utf8_lossy(&called.stderr).into_owned();
        assert!(called.status.success(), "{errors}");
        assert_eq!(output, format!("health: Serving\necho: {text} (from node 2)\n"));
    }
    // The end of its input ends the server, which has served two connections.
    drop(server.child.stdin.take());
    assert!(server.child.wait().expect("the server ends").success());
}

/// Shows: adapters.stream-peer-down
#[test]
fn a_killed_peer_resets_its_streams() {
    let name = format!("pronto-grpc-killed-{}", std::process::id());
    let mut server = Served::start(&name);
    assert_eq!(server.next_line(), "ready");
    let limit = Duration::from_secs(60);
    let streams = Streams::new(StreamLimits::default());
    let node = streams.start(Node::builder(2).peer(1, &format!("shm:@{name}"))).expect("the node starts");
    let peer = node.wait_for_peer(1, limit).expect("the nodes connect");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("the runtime starts");
    runtime.block_on(async {
        let mut stream = streams.connect(&peer, "grpc").await.expect("the stream opens");
        // The server begins with its settings, then waits for ours.
        stream.read_u8().await.expect("the server has sent something");
        let reads = tokio::spawn(async move {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.expect_err("the peer dies")
        });
        server.child.kill().expect("the server is killed");
        let ended = tokio::time::timeout(limit, reads).await.expect("the read ends").expect("no panic");
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{ended}");
    });
}

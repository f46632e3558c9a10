//! Two nodes with streams between them.

use core::time::Duration;

use pronto::{Limits, Node, Peer, WaitPolicy};
use pronto_stream::{Listener, PeerStream, StreamLimits, Streams};

/// Time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// A server with a listener for `test`, and a client.
pub(crate) struct Pair {
    pub(crate) listener: Listener,
    pub(crate) server_streams: Streams,
    pub(crate) server: Node,
    pub(crate) streams: Streams,
    pub(crate) client: Node,
    pub(crate) peer: Peer,
}

impl Pair {
    pub(crate) async fn new(transport: &str, name: &str, limits: StreamLimits) -> Self {
        Self::within(Limits::default(), transport, name, limits).await
    }

    /// Starts nodes that have few credits, so that most messages of a stream find none.
    pub(crate) async fn tight(transport: &str, name: &str, limits: StreamLimits) -> Self {
        let few = Limits { requests: [2, 2], first_requests: [2, 2], ..Limits::default() };
        Self::within(few, transport, name, limits).await
    }

    async fn within(nodes: Limits, transport: &str, name: &str, limits: StreamLimits) -> Self {
        let address = match transport {
            "shm" => format!("shm:@pronto-streams-{name}-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let server_streams = Streams::new(limits);
        let listener = server_streams.listen("test").expect("the name is free");
        let server = Node::builder(1).wait(WaitPolicy::Block).limits(nodes).listen(&address);
        let server = server_streams.start(server).expect("the server starts");
        let streams = Streams::new(limits);
        let address = server.listening()[0].to_string();
        let client = Node::builder(2).wait(WaitPolicy::Block).limits(nodes).peer(1, &address);
        let client = streams.start(client).expect("the client starts");
        let peer = client.wait_for_peer_async(1, PATIENCE).await.expect("the nodes connect");
        Self { listener, server_streams, server, streams, client, peer }
    }

    /// Returns both ends of a new stream.
    pub(crate) async fn stream(&mut self) -> (PeerStream, PeerStream) {
        let opened = self.streams.connect(&self.peer, "test").await.expect("the stream opens");
        (opened, self.listener.accept().await)
    }
}

/// Runs a test in a runtime, and fails if it hangs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test does not hang") });
}

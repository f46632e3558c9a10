//! A byte stream between two nodes: the server echoes what the client writes.

use core::time::Duration;

use pronto::Node;
use pronto_stream::{StreamLimits, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn core::error::Error>> {
    let address = format!("shm:@pronto-echo-{}", std::process::id());
    let served = Streams::new(StreamLimits::default());
    let mut listener = served.listen("echo").ok_or("the name is taken")?;
    let _server = served.start(Node::builder(1).listen(&address))?;
    tokio::spawn(async move {
        loop {
            let (mut from, mut to) = tokio::io::split(listener.accept().await);
            tokio::spawn(async move {
                tokio::io::copy(&mut from, &mut to).await?;
                to.shutdown().await
            });
        }
    });

    let streams = Streams::new(StreamLimits::default());
    let node = streams.start(Node::builder(2).peer(1, &address))?;
    let peer = node.wait_for_peer_async(1, Duration::from_secs(5)).await?;
    let mut stream = streams.connect(&peer, "echo").await?;
    stream.write_all(b"hello").await?;
    stream.shutdown().await?;
    let mut echoed = String::new();
    stream.read_to_string(&mut echoed).await?;
    println!("the server echoed {echoed}");
    assert_eq!(echoed, "hello");
    Ok(())
}

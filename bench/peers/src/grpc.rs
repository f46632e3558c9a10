//! tonic, gRPC over TCP: `default` as in its examples, `best` in one thread. Both have `TCP_NODELAY`, tonic's default.

use core::net::SocketAddr;
use core::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::{BYTE, WINDOW, check, rounds, runtime, server};

mod generated {
    include!(concat!(env!("OUT_DIR"), "/peers.Echo.rs"));
}

/// A message with a protobuf field of bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

struct EchoServer;

#[tonic::async_trait]
impl generated::echo_server::Echo for EchoServer {
    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Serves until the process ends.
///
/// # Errors
/// If it cannot listen.
pub fn serve(setting: &str) -> anyhow::Result<()> {
    runtime(setting)?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        server::say(&listener.local_addr()?.to_string())?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = generated::echo_server::EchoServer::new(EchoServer);
        Server::builder().add_service(service).serve_with_incoming(incoming).await.context("serving")
    })
}

/// Makes the calls of a round.
///
/// # Errors
/// If a call fails.
pub fn call(setting: &str, address: &str, budget: Duration, size: usize) -> anyhow::Result<()> {
    let address: SocketAddr = address.parse().context("invalid server address")?;
    runtime(setting)?.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).context("the server's address")?;
        let channel = endpoint.connect().await.context("connecting")?;
        let client = generated::echo_client::EchoClient::new(channel);
        let once = async || -> anyhow::Result<()> {
            let answer = client.clone().echo(Payload { bytes: vec![BYTE; size] }).await?;
            check(&answer.get_ref().bytes, size)
        };
        rounds::all(budget, size, once, async |calls| {
            let mut answers = stream::iter(0..calls).map(|_| once()).buffer_unordered(WINDOW);
            while let Some(answer) = answers.next().await {
                answer?;
            }
            Ok(calls)
        })
        .await
    })
}

//! A tonic service over Pronto's shared memory, between two processes.
//!
//! `grpc-over-pronto serve NAME` serves until its input ends. `grpc-over-pronto call NAME TEXT` asks whether the service is healthy, and
//! echoes the text.
#![forbid(unsafe_code)]

use core::error::Error;
use core::time::Duration;

use hyper_util::rt::TokioIo;
use pronto::Node;
use pronto_stream::{PeerInfo, StreamLimits, Streams};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

mod generated {
    #![expect(unreachable_pub, unused_qualifications, reason = "tonic generates this code")]
    #![expect(clippy::allow_attributes_without_reason, clippy::std_instead_of_core, reason = "likewise")]
    include!(concat!(env!("OUT_DIR"), "/example.Echo.rs"));
}

use generated::echo_client::EchoClient;
use generated::echo_server::{Echo, EchoServer};

/// The message of the service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

struct Echoes;

#[tonic::async_trait]
impl Echo for Echoes {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let from = request.extensions().get::<PeerInfo>().map_or(0, |peer| peer.node.0);
        let text = format!("{} (from node {from})", request.into_inner().text);
        Ok(Response::new(Text { text }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", name] => serve(name).await,
        ["call", name, text] => call(name, text).await,
        _ => Err("usage: grpc-over-pronto serve NAME, or grpc-over-pronto call NAME TEXT".into()),
    }
}

async fn serve(name: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let streams = Streams::new(StreamLimits::default());
    let listener = streams.listen("grpc").ok_or("the service has a listener")?;
    let _node = streams.start(Node::builder(1).listen(&format!("shm:@{name}")))?;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<EchoServer<Echoes>>().await;
    println!("ready");
    let input_ends =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    Server::builder()
        .add_service(health)
        .add_service(EchoServer::new(Echoes))
        .serve_with_incoming_shutdown(listener, async { drop(input_ends.await) })
        .await?;
    Ok(())
}

async fn call(name: &str, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let streams = Streams::new(StreamLimits::default());
    let node = streams.start(Node::builder(2).peer(1, &format!("shm:@{name}")))?;
    let peer = node.wait_for_peer_async(1, Duration::from_secs(30)).await?;
    // The address names the service in the requests only; the stream decides where they go.
    let channel = Endpoint::from_static("http://node-1")
        .connect_with_connector(tower::service_fn(move |_| {
            let (streams, peer) = (streams.clone(), peer.clone());
            async move { streams.connect(&peer, "grpc").await.map(TokioIo::new) }
        }))
        .await?;
    let asked = HealthCheckRequest { service: "example.Echo".into() };
    let health = HealthClient::new(channel.clone()).check(asked).await?.into_inner();
    println!("health: {:?}", health.status());
    let echoed = EchoClient::new(channel).echo(Text { text: text.into() }).await?.into_inner();
    println!("echo: {}", echoed.text);
    Ok(())
}

//! tonic, gRPC over TCP: `default` as in its examples, `best` in one thread. Both have `TCP_NODELAY`, tonic's default. With
//! `-tls:FOLDER` after the setting, connections use TLS by rustls and ring, and both sides have certificates, which are in that folder.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::Path;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::certificates::{self, Side};
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

/// Returns the runtime's setting, and the folder of the certificates if connections use TLS.
fn parts(setting: &str) -> (&str, Option<&Path>) {
    setting
        .split_once("-tls:")
        .map_or((setting, None), |(runtime, folder)| (runtime, Some(Path::new(folder))))
}

/// Returns the certificate of the authority, and the identity of this side.
fn trust(folder: &Path, side: Side) -> anyhow::Result<(Certificate, Identity)> {
    let files = certificates::read(folder, side)?;
    Ok((Certificate::from_pem(files.authority), Identity::from_pem(files.certificate, files.key)))
}

/// Serves until the process ends.
///
/// # Errors
/// If it cannot listen.
pub fn serve(setting: &str) -> anyhow::Result<()> {
    let (setting, folder) = parts(setting);
    runtime(setting)?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        server::say(&listener.local_addr()?.to_string())?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = generated::echo_server::EchoServer::new(EchoServer);
        let mut server = Server::builder();
        if let Some(folder) = folder {
            let (authority, identity) = trust(folder, Side::Server)?;
            let tls = ServerTlsConfig::new().identity(identity).client_ca_root(authority);
            server = server.tls_config(tls).context("the server's certificates")?;
        }
        server.add_service(service).serve_with_incoming(incoming).await.context("serving")
    })
}

/// Makes the calls of a round.
///
/// # Errors
/// If a call fails.
pub fn call(setting: &str, address: &str, budget: Duration, size: usize) -> anyhow::Result<()> {
    let address: SocketAddr = address.parse().context("invalid server address")?;
    let (setting, folder) = parts(setting);
    runtime(setting)?.block_on(async {
        let scheme = if folder.is_some() { "https" } else { "http" };
        let mut endpoint =
            Endpoint::from_shared(format!("{scheme}://{address}")).context("the server's address")?;
        if let Some(folder) = folder {
            let (authority, identity) = trust(folder, Side::Client)?;
            let tls = ClientTlsConfig::new().domain_name(certificates::NAME);
            let tls = tls.ca_certificate(authority).identity(identity);
            endpoint = endpoint.tls_config(tls).context("the caller's certificates")?;
        }
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

//! tarpc over TCP: `default` as in its examples, with the bincode codec; `best` in one thread and with `TCP_NODELAY`.

use core::net::SocketAddr;
use core::time::Duration;

use anyhow::Context as _;
use futures::{Stream, StreamExt as _, stream};
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{ClientMessage, Response, client, context, serde_transport};
use tokio::net::{TcpListener, TcpStream};

use crate::{BYTE, SIZES, WINDOW, check, rounds, runtime, server};

#[tarpc::service]
trait Echo {
    async fn echo(bytes: [u8; 32]) -> [u8; 32];
    async fn echo_long(bytes: Vec<u8>) -> Vec<u8>;
}

#[derive(Clone)]
struct EchoServer;

impl Echo for EchoServer {
    async fn echo(self, _: context::Context, bytes: [u8; 32]) -> [u8; 32] {
        bytes
    }

    async fn echo_long(self, _: context::Context, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }
}

/// Serves one connection.
///
/// # Errors
/// If it cannot listen.
pub fn serve(setting: &str) -> anyhow::Result<()> {
    runtime(setting)?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        server::say(&listener.local_addr()?.to_string())?;
        let (stream, _) = listener.accept().await.context("accepting")?;
        stream.set_nodelay(setting == "best")?;
        let transport = serde_transport::Transport::from((stream, Bincode::default()));
        let requests = BaseChannel::with_defaults(transport).execute(EchoServer.serve());
        run(setting, requests).await;
        Ok(())
    })
}

/// Handles requests: `default` spawns a task for each, as in the examples; `best` handles all of them in one task.
async fn run(setting: &str, requests: impl Stream<Item = impl Future<Output = ()> + Send + 'static>) {
    if setting == "best" {
        requests.for_each_concurrent(None, |request| request).await;
    } else {
        requests.for_each(async |request| drop(tokio::spawn(request))).await;
    }
}

/// Makes the calls of a round.
///
/// # Errors
/// If a call fails.
pub fn call(setting: &str, address: &str, budget: Duration, size: usize) -> anyhow::Result<()> {
    let address: SocketAddr = address.parse().context("the server's address")?;
    runtime(setting)?.block_on(async {
        let stream = TcpStream::connect(address).await.context("connecting")?;
        stream.set_nodelay(setting == "best")?;
        let transport: serde_transport::Transport<_, Response<_>, ClientMessage<_>, _> =
            (stream, Bincode::default()).into();
        let echo = EchoClient::new(client::Config::default(), transport).spawn();
        let once = async || -> anyhow::Result<()> {
            if size == SIZES[0] {
                return check(&echo.echo(context::current(), [BYTE; 32]).await?, size);
            }
            check(&echo.echo_long(context::current(), vec![BYTE; size]).await?, size)
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

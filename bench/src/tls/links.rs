//! Links between two processes that are made one after another, and the CPU time that each side spends on them.
//!
//! A link is what nodes make of two TCP connections, without their greeting: both connections are authenticated and encrypted if
//! there are certificates, and both become queue pairs.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Context as _;
use pronto::NodeId;
use pronto::credentials::Credentials;
use pronto_core::fabric::ConnectionLimits;
use pronto_fabric_tcp::{Handshake, Listener, Options, ReceivePool, Tls};

use super::certificates::source;
use crate::child::{self, Child};
use crate::echo::{CLIENT, SERVER};
use crate::placement::{Cpu, CpuPair, alone};
use crate::side::{Arguments, Side, settle};
use crate::traffic::cost::Cost;

/// The child that accepts links.
pub(crate) const SIDE: Side =
    Side { name: "serve-links", arguments: &["cpu"], more: Some("certificates"), run: serve };

/// CPU time of both processes for a number of links, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) dialler_ns: u64,
    pub(crate) acceptor_ns: u64,
}

/// A child that accepts links, and this process, which dials them.
#[derive(Debug)]
pub(crate) struct Links {
    child: Child,
    address: SocketAddr,
    options: Options,
    pool: Arc<ReceivePool>,
    caller: Cpu,
}

impl Links {
    /// Starts the child. Links use TLS if there is a folder of certificates.
    pub(crate) fn spawn(certificates: Option<&Path>, cpus: CpuPair) -> anyhow::Result<Self> {
        let cpu = cpus.server.0.to_string();
        let arguments = [Path::new(&cpu)].into_iter().chain(certificates);
        let mut child = Child::spawn(&SIDE, arguments)?;
        let address = child.hear()?.parse().context("the address of the acceptor")?;
        let options = options(certificates, CLIENT)?;
        Ok(Self { child, address, options, pool: ReceivePool::new(POOL)?, caller: cpus.caller })
    }

    /// Makes `count` links, each after the one before was dropped, and returns the CPU time of both processes.
    pub(crate) fn make(&mut self, count: u32) -> anyhow::Result<Spent> {
        self.child.tell(&count.to_string())?;
        let before = Cost::of_this_process()?;
        alone(self.caller, || {
            for _ in 0..count {
                let handshake =
                    Handshake::dial(self.address, PATIENCE, self.options.clone()).context("dialling")?;
                anyhow::ensure!(
                    handshake.peer_certificates().is_some() == self.options.tls.is_some(),
                    "a link uses TLS where it should not, or the other way round"
                );
                drop(handshake.establish([LIMITS; 2], &self.pool).context("making a link")?);
            }
            Ok(())
        })?;
        let dialler_ns = Cost::of_this_process()?.since(before).cpu_ns;
        let acceptor_ns = self.child.hear()?.parse().context("the CPU time of the acceptor")?;
        Ok(Spent { dialler_ns, acceptor_ns })
    }
}

/// Returns the options of one side.
fn options(certificates: Option<&Path>, node: u16) -> anyhow::Result<Options> {
    let tls = |folder: &Path| -> anyhow::Result<_> {
        let loaded =
            Credentials::load(&source(folder, node), NodeId(node)).context("loading certificates")?;
        Ok(Arc::new(Tls::new(loaded.client(), loaded.server())))
    };
    Ok(Options { tls: certificates.map(tls).transpose()?, ..Options::default() })
}

/// Accepts the number of links that the parent asks for, and reports the CPU time, until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    settle(arguments.cpu("cpu")?)?;
    let options = options(arguments.more("certificates").next().map(Path::new), SERVER)?;
    let listener = Listener::bind("127.0.0.1:0", options).context("listening for links")?;
    let pool = ReceivePool::new(POOL)?;
    child::say(&listener.local_addr()?.to_string())?;
    while let Some(line) = child::listen()? {
        let count = line.parse().context("the number of links")?;
        let before = Cost::of_this_process()?;
        accept(&listener, &pool, count)?;
        child::say(&Cost::of_this_process()?.since(before).cpu_ns.to_string())?;
    }
    Ok(())
}

/// Accepts `count` links, each of which is dropped when the next one is there.
fn accept(listener: &Listener, pool: &Arc<ReceivePool>, count: u32) -> anyhow::Result<()> {
    let (accepted, handshakes) = mpsc::channel::<Handshake>();
    thread::scope(|scope| {
        // The handshake of a link waits for its second connection, which is accepted here.
        let establishing = scope.spawn(move || -> anyhow::Result<()> {
            let mut last = None;
            for handshake in handshakes {
                last = Some(handshake.establish([LIMITS.mirrored(); 2], pool).context("accepting a link")?);
            }
            drop(last);
            Ok(())
        });
        for _ in 0..count * CONNECTIONS {
            if let Some(handshake) = listener.accept()?.begin(PATIENCE).context("accepting a connection")? {
                // A failed send means that the other thread has failed, which is reported below.
                let _ = accepted.send(handshake);
            }
        }
        drop(accepted);
        establishing.join().expect("the thread does not panic")
    })
}

/// Connections of a link.
const CONNECTIONS: u32 = 2;
/// Longer than one handshake takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
/// Budget of the receive pool of a process, bytes.
const POOL: usize = 8 << 20;
/// Sizes of the queue pairs. Their memory is virtual until messages use it, so they hardly matter here.
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 64 << 10,
    max_receive_payload: 64 << 10,
    send_memory: 1 << 20,
};

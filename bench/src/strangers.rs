//! Connections of strangers to a listener: the child that makes them, and a bare listener of its own, which closes what it accepts.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use anyhow::Context as _;
use pronto::credentials::rustls::ClientConnection;
use pronto::credentials::{Credentials, server_name};
use pronto::{Epoch, NodeId};
use pronto_core::session::{Identity, Limits, greet};

use crate::child::{self, Child};
use crate::clock;
use crate::echo::{CLIENT, SERVER};
use crate::placement::{Cpu, pin};
use crate::side::{Arguments, Side};
use crate::tls::certificates::{Certificates, source};

/// The child that makes connections.
pub(crate) const SIDE: Side =
    Side { name: "make-connections", arguments: &["cpu"], more: None, run: connect };

/// The child.
#[derive(Debug)]
pub(crate) struct Strangers {
    child: Child,
    /// Address of its bare listener.
    pub(crate) bare: SocketAddr,
}

impl Strangers {
    /// Starts the child, whose bare listener runs on `cpu`.
    pub(crate) fn spawn(cpu: Cpu) -> anyhow::Result<Self> {
        let mut child = Child::spawn(&SIDE, [cpu.0.to_string()])?;
        let bare = child.hear()?.parse().context("the address of the bare listener")?;
        Ok(Self { child, bare })
    }

    /// Makes `count` connections to `target`, evenly over `span`, while `work` runs.
    pub(crate) fn with_connections<R>(
        &mut self,
        target: SocketAddr,
        count: u32,
        span: Duration,
        work: impl FnOnce() -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        self.child.tell(&format!("{target} {count} {}", span.as_micros()))?;
        let result = work()?;
        self.child.expect("made")?;
        Ok(result)
    }
}

fn connect(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let cpu = arguments.cpu("cpu")?;
    let bare = TcpListener::bind("127.0.0.1:0").context("a bare listener")?;
    child::say(&bare.local_addr()?.to_string())?;
    thread::Builder::new().name("bare".into()).spawn(move || {
        // If this is refused, it runs where the system likes.
        let _anywhere = pin(cpu);
        bare.incoming().for_each(drop);
    })?;
    let kinds = kinds()?;
    while let Some(line) = child::listen()? {
        let words: Vec<_> = line.split(' ').collect();
        let [target, count, micros] = words[..] else { anyhow::bail!("a target, a count and a time") };
        let (target, count): (SocketAddr, u32) = (target.parse()?, count.parse()?);
        make(target, count, Duration::from_micros(micros.parse()?), &kinds)?;
        child::say("made")?;
    }
    Ok(())
}

/// Makes connections evenly over a time. Each sends its first bytes and stays open until [`HELD`] later ones are.
fn make(target: SocketAddr, count: u32, span: Duration, kinds: &[Vec<u8>]) -> anyhow::Result<()> {
    let begun = clock::now();
    let mut held = VecDeque::<TcpStream>::new();
    for number in 0..count {
        #[expect(
            clippy::disallowed_methods,
            reason = "connections are made at times that were decided before"
        )]
        thread::sleep((span / count * number).saturating_sub(begun.elapsed()));
        let mut stream = TcpStream::connect(target).context("a connection of a stranger")?;
        // Fails if the listener has closed the connection already.
        let _refused = stream.write_all(&kinds[number as usize % kinds.len()]);
        held.push_back(stream);
        if held.len() > HELD
            && let Some(oldest) = held.pop_front()
        {
            let _closed = oldest.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Returns the first bytes of each kind of connection.
fn kinds() -> anyhow::Result<Vec<Vec<u8>>> {
    let hello = client_hello()?;
    Ok(vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"pronto".to_vec(),
        [&b"pronto\x032"[..], &[7; 16]].concat(),
        [&b"pronto\x031"[..], &u32::MAX.to_le_bytes()].concat(),
        greeting(1_000)?,
        greeting(CLIENT)?,
        greeting(SERVER)?,
        hello.clone(),
        hello[..hello.len() / 2].to_vec(),
        [&b"pronto\x033"[..], &[22, 3, 1, 0, 200], &[7; 200]].concat(),
    ])
}

/// Returns the first bytes of a connection that asks for a link as a node.
fn greeting(node: u16) -> anyhow::Result<Vec<u8>> {
    let me = Identity { node: NodeId(node), epoch: Epoch(9), name: String::new(), types: Vec::new() };
    let blob = greet(&me, &Limits::default(), NodeId(SERVER), None).encode();
    Ok([b"pronto\x031", &u32::try_from(blob.len())?.to_le_bytes()[..], &blob].concat())
}

/// Returns the first bytes of a TLS handshake that begins well, for which a node computes most.
fn client_hello() -> anyhow::Result<Vec<u8>> {
    let certificates = Certificates::create(&[CLIENT])?;
    let loaded = Credentials::load(&source(certificates.folder(), CLIENT), NodeId(CLIENT))?;
    let mut tls = ClientConnection::new(loaded.client(), server_name())?;
    let mut bytes = b"pronto\x033".to_vec();
    tls.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// Number of connections that stay open.
const HELD: usize = 80;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn every_kind_of_connection_is_made_in_time_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (target, kinds) = (listener.local_addr().unwrap(), kinds().unwrap());
        let count = u32::try_from(kinds.len()).unwrap();
        let expected = kinds.clone();
        let accepting = thread::spawn(move || {
            for kind in &expected {
                let mut bytes = vec![0; kind.len()];
                listener.accept().unwrap().0.read_exact(&mut bytes).unwrap();
                assert_eq!(&bytes, kind);
            }
        });
        make(target, count, Duration::from_millis(50), &kinds).unwrap();
        accepting.join().unwrap();
    }
}

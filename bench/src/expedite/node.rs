//! A handler in a Pronto node: an inline handler on the serving thread, which sleeps between messages.

use anyhow::Context as _;
use core::time::Duration;
use pronto::{Boost, Message, Node, Peer, WaitPolicy};

use super::handler::REFUSED;
use super::{BYTES, Setting, Transport, Work};
use crate::child;
use crate::clock;
use crate::params::Choice as _;

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
/// Longer than a start takes in the lab with a background.
const START: Duration = Duration::from_secs(60);

#[derive(Message)]
#[message(name = "expedite.ask", reply = Received)]
struct Ask {
    padding: Vec<u8>,
}

/// Time at which the handler began, by [`clock::shared_ns`].
#[derive(Message)]
#[message(name = "expedite.received")]
struct Received {
    at: u64,
}

/// Sender's end of the connection.
pub(crate) struct Caller {
    peer: Peer,
    _node: Node,
}

impl Caller {
    /// Starts a node in this process, and connects it to the handler.
    pub(super) fn meet(address: &str) -> anyhow::Result<Self> {
        let node = Node::builder(CLIENT).wait(WaitPolicy::Block).peer(SERVER, address).start()?;
        let peer = node.wait_for_peer(SERVER, START).context("meeting the handler")?;
        Ok(Self { peer, _node: node })
    }

    /// Sends a message. Returns the time at which the handler received it.
    pub(super) fn ask(&self) -> anyhow::Result<u64> {
        // Four bytes of a vector are its count.
        let ask = Ask { padding: vec![0; BYTES - size_of::<u32>()] };
        Ok(self.peer.call(&ask).context("calling the handler")?.at)
    }
}

/// Serves until the parent ends this process.
pub(super) fn serve(work: &Work) -> anyhow::Result<()> {
    let address = match work.transport {
        Transport::Shm => format!("shm:@pronto-expedite-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let boost = match work.setting {
        Setting::Off => Boost::None,
        Setting::Module => Boost::Module,
        Setting::Fifo => Boost::Fifo,
        Setting::Deadline => Boost::Deadline,
        Setting::Slice => Boost::Slice,
        Setting::Scx => Boost::Scx,
    };
    let node = Node::builder(SERVER)
        .wait(WaitPolicy::Block)
        .boost(boost)
        .listen(&address)
        .handle_inline(|_, ask: Ask| {
            drop(ask);
            Received { at: clock::shared_ns() }
        })
        .start()
        .context("starting the handler")?;
    let got = node.status().boost;
    let wanted = if work.setting == Setting::Off { "none" } else { work.setting.name() };
    if !got.starts_with(wanted) {
        child::say(&format!("{REFUSED}{got}"))?;
        return Ok(());
    }
    child::announce(&node)?;
    child::park()
}

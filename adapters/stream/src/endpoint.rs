//! The streams of one node: its handlers, its limits, and what happens to streams when a link or a peer goes.

use core::fmt;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::Wake;

use pronto::rpc::Message;
use pronto::{Builder, CallError, Event, Events, InlineContext, Node, NodeError, NodeId, Peer};

use crate::error::{ConnectError, Refusal, StreamError};
use crate::frames::{Credit, Data, Finish, Open, OpenResult, Opened, Reset, Side, StreamId};
use crate::listener::{Backlog, Listener};
use crate::poster::Poster;
use crate::state::Shared;
use crate::stream::PeerStream;
use crate::table::{Key, Table};

/// Limits of the streams of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of streams with one peer, whichever side opened them. The default is 256.
    pub streams_per_peer: usize,
    /// Bytes of one stream that this node holds before the program reads them, at least 1. The default is 256 KiB. A peer that sends more
    /// loses its stream.
    pub window: u32,
    /// Maximum number of bytes of one message, at least 1. The default is 32 KiB. Longer writes are cut into pieces.
    pub piece: u32,
    /// Maximum number of connections of a listener that the program has not accepted yet. The default is 64.
    pub backlog: usize,
    /// Time limit of [`Streams::connect`]. The default is 10 seconds.
    pub connect_timeout: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            streams_per_peer: 256,
            window: 256 << 10,
            piece: 32 << 10,
            backlog: 64,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// The streams of one node. Clones are handles to the same streams.
#[derive(Clone)]
pub struct Streams {
    core: Arc<Core>,
}

impl Streams {
    /// Returns the streams of a node that [`Streams::start`] starts.
    pub fn new(limits: StreamLimits) -> Self {
        let limits = StreamLimits { window: limits.window.max(1), piece: limits.piece.max(1), ..limits };
        let core = Core {
            limits,
            table: Table::default(),
            poster: Arc::default(),
            listeners: Mutex::default(),
            events: Mutex::new(None),
        };
        Self { core: Arc::new(core) }
    }

    /// Starts a node that has these streams. Streams belong to one node.
    ///
    /// # Errors
    /// Those of [`Builder::start`].
    pub fn start(&self, builder: Builder) -> Result<Node, NodeError> {
        let [data, finish, reset, credit] = [(); 4].map(|()| Arc::clone(&self.core));
        let open = Arc::clone(&self.core);
        let node = builder
            .handle_async(move |context, request: Open| {
                let outcome = Core::accept(&open, context.peer(), &request);
                core::future::ready(outcome)
            })
            .on_inline(move |from, message: Data| {
                let handle = |shared: &Shared| shared.handle_data(message.offset, &message.bytes);
                data.handle(from, message.stream, handle);
            })
            .on_inline(move |from, message: Finish| {
                finish.handle(from, message.stream, |shared| shared.handle_finish(message.offset));
            })
            .on_inline(move |from, message: Reset| reset.handle_reset(from.source(), message.stream))
            .on_inline(move |from, message: Credit| {
                let stream = credit.table.find(Key::of_peers(from.source(), message.stream));
                stream.inspect(|shared| shared.handle_credit(message.until));
            })
            .start()?;
        self.core.attach(&node);
        Ok(node)
    }

    /// Listens for streams under the name of a service. Returns `None` if another listener has that name.
    pub fn listen(&self, service: &str) -> Option<Listener> {
        let backlog = Arc::new(Backlog::new(self.core.limits.backlog));
        let mut listeners = self.core.listeners.lock().expect("no holder panics");
        if listeners.contains_key(service) {
            return None;
        }
        listeners.insert(service.into(), Arc::clone(&backlog));
        drop(listeners);
        Some(Listener::new(Arc::clone(&self.core), service.into(), backlog))
    }

    /// Opens a stream to the listener that `peer` has for a service. Dropping the future resets the stream.
    ///
    /// # Errors
    /// A [`ConnectError`], which says whether this node, the peer or the way to it refused.
    pub async fn connect(&self, peer: &Peer, service: &str) -> Result<PeerStream, ConnectError> {
        let core = &self.core;
        if core.events.lock().expect("no holder panics").is_none() {
            return Err(ConnectError::NotAttached);
        }
        let number = core.table.next_number();
        let mut stream = Core::stream(core, peer.clone(), StreamId { number, sender: Side::Opener }, 0)
            .map_err(|_| ConnectError::TooManyStreams(peer.node()))?;
        let open = Open { number, service: service.into(), window: core.limits.window };
        match peer.call_async_within(&open, core.limits.connect_timeout).await {
            Ok(opened) => {
                stream.shared().handle_credit(opened.window.into());
                // If the link was lost meanwhile, the peer has dropped its side, or does when it gets the reset.
                stream.shared().broken().map_or(Ok(stream), |broken| Err(ConnectError::Ended(broken)))
            }
            Err(error) => {
                let refusal = match &error {
                    CallError::Handler(value) => value.decode::<Refusal>().ok(),
                    _ => None,
                };
                if refusal.is_some() || matches!(error, CallError::Rejected(_)) {
                    stream.forget();
                }
                Err(refusal.map_or(ConnectError::Call(error), ConnectError::Refused))
            }
        }
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("limits", &self.core.limits).finish_non_exhaustive()
    }
}

/// The parts that all streams of a node share.
pub(crate) struct Core {
    pub(crate) limits: StreamLimits,
    pub(crate) table: Table,
    pub(crate) poster: Arc<Poster>,
    pub(crate) listeners: Mutex<HashMap<Box<str>, Arc<Backlog>>>,
    /// The events of links and peers, while the node runs.
    events: Mutex<Option<Events>>,
}

impl Core {
    /// Returns a new stream, which is in the table until it is dropped.
    fn stream(core: &Arc<Self>, peer: Peer, id: StreamId, edge: u64) -> Result<PeerStream, Refusal> {
        let shared = Arc::new(Shared::new(core.limits.window, edge));
        let key = Key::of_ours(peer.node(), id);
        core.table.add(key, Arc::clone(&shared), core.limits.streams_per_peer)?;
        Ok(PeerStream::new(Arc::clone(core), shared, peer, id))
    }

    fn accept(core: &Arc<Self>, peer: Peer, open: &Open) -> OpenResult {
        let listeners = core.listeners.lock().expect("no holder panics");
        let backlog = listeners.get(open.service.as_str()).cloned().ok_or(Refusal::NoListener)?;
        drop(listeners);
        let id = StreamId { number: open.number, sender: Side::Acceptor };
        let stream = Self::stream(core, peer.clone(), id, open.window.into())?;
        if !peer.is_up() {
            // The event may have come before the stream was in the table.
            stream.shared().handle_end(StreamError::PeerDown(peer.node()));
        }
        backlog.add(stream).map_err(|(refusal, mut stream)| {
            stream.forget();
            refusal
        })?;
        Ok(Opened { window: core.limits.window })
    }

    /// Passes a message to its stream. If there is no such stream, or the message breaks the protocol, the peer gets a reset.
    fn handle(
        &self,
        from: &InlineContext<'_>,
        stream: StreamId,
        handle: impl FnOnce(&Shared) -> Result<(), StreamError>,
    ) {
        let found = self.table.find(Key::of_peers(from.source(), stream));
        if found.is_none_or(|shared| handle(&shared).is_err()) {
            let ours = StreamId { number: stream.number, sender: stream.sender.other() };
            // Without room, the reset follows when this side drops the stream, or answers the next message.
            let _refused = from.try_notify(&Reset { stream: ours });
        }
    }

    fn handle_reset(&self, peer: NodeId, stream: StreamId) {
        let key = Key::of_peers(peer, stream);
        match self.table.find(key) {
            Some(shared) => shared.handle_end(StreamError::Reset),
            None => self.table.note_cancelled(key),
        }
    }

    fn attach(self: &Arc<Self>, node: &Node) {
        *self.events.lock().expect("no holder panics") = Some(node.events());
        // A peer may have opened a stream and gone down before this node was watched.
        for peer in self.table.peers() {
            if node.peer(peer).is_none_or(|peer| !peer.is_up()) {
                self.end_all(peer, &StreamError::PeerDown(peer));
            }
        }
        self.handle_events(&Waker::from(Arc::new(Watch { core: Arc::downgrade(self) })));
    }

    /// Handles all events so far, and has `waker` called for the next one. The lock is held meanwhile: when the thread of an event
    /// returns, the streams have ended, so that a resumed link finds none.
    fn handle_events(&self, waker: &Waker) {
        let mut held = self.events.lock().expect("no holder panics");
        while let Some(events) = held.as_mut() {
            let Poll::Ready(next) = events.poll_next_event(&mut Context::from_waker(waker)) else { return };
            match next {
                // Nothing was in flight when the link ended.
                Some(Ok(Event::PeerUp(_) | Event::LinkPaused { .. } | Event::PauseEnded { .. })) => {}
                Some(Ok(Event::PeerDown { peer, .. })) => {
                    self.end_all(peer, &StreamError::PeerDown(peer));
                    self.table.forget_cancelled(peer);
                }
                Some(Ok(Event::LinkLost { peer, .. } | Event::LinkResumed { peer, .. })) => {
                    self.end_all(peer, &StreamError::LinkLost(peer));
                }
                // It is unknown which links were lost.
                Some(Err(_missed)) => {
                    self.table
                        .peers()
                        .into_iter()
                        .for_each(|peer| self.end_all(peer, &StreamError::LinkLost(peer)));
                }
                None => {
                    *held = None;
                    self.table
                        .peers()
                        .into_iter()
                        .for_each(|peer| self.end_all(peer, &StreamError::NodeEnded));
                }
            }
        }
    }

    fn end_all(&self, peer: NodeId, error: &StreamError) {
        self.table.of_peer(peer).iter().for_each(|shared| shared.handle_end(error.clone()));
    }
}

/// The waker that handles events on the thread that reports them, so that the streams need no thread or task of their own.
struct Watch {
    core: Weak<Core>,
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        if let Some(core) = self.core.upgrade() {
            core.handle_events(&Waker::from(self));
        }
    }
}

const _: () =
    assert!(matches!(<Open as Message>::CLASS, pronto::Class::Bulk), "a reset must not pass its data");

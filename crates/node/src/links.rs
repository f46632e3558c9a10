//! Links: listened for, dialled, greeted, installed in their sessions, and watched.

use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::fabric::ConnectionLimits;
use pronto_core::session::{Agreement, DownCause, Links as SessionLinks, agree, greet};
use pronto_core::{Clock, Nanos};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_wire::greeting::{MAX_GREETING, RDMA};
use pronto_wire::{Class, Greeting, GreetingFault, NodeId, Refusal, SessionId};
use thiserror::Error;

use crate::address::Address;
use crate::attempts::{Attempt, Attempts, Canceller};
use crate::config::{ESTABLISH, HANDSHAKE};
use crate::error::NodeError;
use crate::host::{NodeHost, NodeSession, poll_timeout};
use crate::queue_pair::AnyQueuePair;
use crate::rdma::{self, Rdma};
use crate::sink::WaitingSink;
use crate::{serving, system};

/// Handshakes under way at a time, accepted ones; more wait in the listener's backlog.
const MAX_HANDSHAKES: usize = 32;
/// Pauses between attempts to dial: doubled from the first up to the last.
const FIRST_PAUSE: Nanos = Nanos::from_millis(5);
const LAST_PAUSE: Nanos = Nanos::from_millis(500);

/// Why a link does not go over RDMA where we would.
const NOT_OFFERED: &str = "the peer has no RDMA port at its end";

/// What links are made from.
#[derive(Debug)]
pub(crate) struct LinkOptions {
    pub(crate) listen: Vec<Address>,
    pub(crate) peers: Vec<(NodeId, Vec<Address>)>,
    pub(crate) plaintext: bool,
    pub(crate) rdma: Rdma,
}

/// Everything that makes links, while the node runs.
#[derive(Debug)]
pub(crate) struct LinkMaker {
    shared: Arc<Shared>,
    tcp_listeners: Vec<Arc<tcp::Listener>>,
    listening: Vec<Address>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: Arc<NodeHost>,
    /// Readable once the node stops.
    stop: EventFd,
    handshakes: AtomicUsize,
    attempts: Arc<Attempts>,
    lifelines: Mutex<Vec<(NodeId, SessionId, Lifeline)>>,
    tcp: tcp::Options,
    devices: rdma::Devices,
    rdma: Rdma,
}

/// Tells that a peer has gone, where nobody who only polls would see it.
#[derive(Debug)]
enum Lifeline {
    /// Its process has ended: the session ends.
    Process(shm::Lifeline),
    /// The link's other end has: whoever drives the link finds it lost.
    Link(rdma::Lifeline),
}

impl Lifeline {
    fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Process(line) => line.descriptors().map(|fd| fd.as_raw_fd()).collect(),
            Self::Link(line) => line.descriptors().map(|fd| fd.as_raw_fd()).collect(),
        }
    }

    fn is_cut(&self) -> bool {
        match self {
            Self::Process(line) => line.is_cut().unwrap_or(true),
            Self::Link(line) => line.look(),
        }
    }
}

/// A link, and what tells of its end.
type Made = (SessionLinks<AnyQueuePair>, Option<Lifeline>);

/// What a greeting that was accepted leads to.
#[derive(Debug)]
struct Accepted {
    session: Arc<NodeSession>,
    agreement: Agreement,
    /// The greeting to answer with.
    reply: Vec<u8>,
    attempt: Attempt,
}

/// Why there is no link this time.
#[derive(Debug, Error)]
pub(crate) enum NoLink {
    #[error("shm: {0}")]
    Shm(#[from] shm::SetupError),
    #[error("tcp: {0}")]
    Tcp(#[from] tcp::SetupError),
    #[error("greeting: {0}")]
    Greeting(#[from] GreetingFault),
    #[error("refused here: {0}")]
    Refused(Refusal),
    #[error("refused node {} here: {refusal}", node.map_or_else(|| "?".into(), |node| node.to_string()))]
    RefusedNode { refusal: Refusal, node: Option<NodeId> },
    #[error("node {found} answered where node {expected} was expected")]
    OtherNode { expected: NodeId, found: NodeId },
    #[error("a newer attempt of the same node took its place")]
    Superseded,
    #[error("no link over RDMA, which the configuration requires: {0}")]
    Rdma(String),
}

impl LinkMaker {
    pub(crate) fn start(host: &Arc<NodeHost>, options: LinkOptions) -> Result<Self, NodeError> {
        let system = |errno: Errno| NodeError::System { what: "an eventfd", errno };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let plaintext =
            if options.plaintext { tcp::Plaintext::IUnderstand } else { tcp::Plaintext::LoopbackOnly };
        let tcp_options = tcp::Options { plaintext, ..tcp::Options::default() };
        let shared = Arc::new(Shared {
            host: Arc::clone(host),
            stop: EventFd::from_flags(flags).map_err(system)?,
            handshakes: AtomicUsize::new(0),
            attempts: Attempts::new(host),
            lifelines: Mutex::default(),
            tcp: tcp_options,
            devices: rdma::Devices::new(options.rdma),
            rdma: options.rdma,
        });
        let mut maker =
            Self { shared, tcp_listeners: Vec::new(), listening: Vec::new(), threads: Vec::new() };
        for address in options.listen {
            maker.listen(address)?;
        }
        let shared = Arc::clone(&maker.shared);
        maker.spawn("pronto-links", move || shared.keep(&options.peers))?;
        Ok(maker)
    }

    /// Where the node listens, with the ports that the system chose.
    pub(crate) fn listening(&self) -> &[Address] {
        &self.listening
    }

    fn listen(&mut self, address: Address) -> Result<(), NodeError> {
        let shared = Arc::clone(&self.shared);
        match &address {
            Address::Shm(path) => {
                let listener = shm::Listener::bind(path)
                    .map_err(|cause| NodeError::ListenShm { address: address.clone(), cause })?;
                self.spawn("pronto-listen-shm", move || shared.accept_shm(&listener))?;
                self.listening.push(address);
            }
            Address::Tcp(socket) => {
                let failed = |cause| NodeError::ListenTcp { address: address.clone(), cause };
                let listener = Arc::new(tcp::Listener::bind(socket, self.shared.tcp).map_err(failed)?);
                self.listening.push(Address::Tcp(listener.local_addr().map_err(failed)?));
                self.tcp_listeners.push(Arc::clone(&listener));
                self.shared.host.refusals.watch(&listener);
                self.spawn("pronto-listen-tcp", move || shared.accept_tcp(&listener))?;
            }
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        self.threads
            .push(thread.map_err(|error| NodeError::System { what: "a thread", errno: errno(error) })?);
        Ok(())
    }

    /// Ends all threads.
    pub(crate) fn stop(&mut self) {
        let _full = self.shared.stop.write(1);
        for listener in &self.tcp_listeners {
            listener.close();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a links thread panicked");
            }
        }
    }
}

impl Shared {
    fn accept_shm(self: &Arc<Self>, listener: &shm::Listener) {
        loop {
            let mut fds = [
                PollFd::new(listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
            ];
            let _interrupted = poll(&mut fds, PollTimeout::NONE);
            if self.host.is_stopping() {
                return;
            }
            if fds[0].any() == Some(true) {
                match listener.accept() {
                    Ok(handshake) => self.in_thread(move |shared| shared.answer_shm(handshake)),
                    Err(error) => self.accept_failed(&error),
                }
            }
        }
    }

    fn accept_tcp(self: &Arc<Self>, listener: &tcp::Listener) {
        loop {
            match listener.accept() {
                Ok(incoming) => self.in_thread(move |shared| match incoming.begin(HANDSHAKE)? {
                    Some(handshake) => shared.answer_tcp(handshake),
                    None => Ok(()),
                }),
                Err(tcp::SetupError::Closed) => return,
                Err(_) if self.host.is_stopping() => return,
                Err(error) => self.accept_failed(&error),
            }
        }
    }

    /// Nothing to accept with, most likely no descriptors: others need a moment to give some back.
    fn accept_failed(&self, error: &dyn core::error::Error) {
        tracing::warn!(%error, "accept");
        pause(Duration::from_millis(10));
    }

    /// A handshake in a thread of its own, a bounded number at a time.
    fn in_thread(self: &Arc<Self>, run: impl FnOnce(&Arc<Self>) -> Result<(), NoLink> + Send + 'static) {
        if self.handshakes.fetch_add(1, Ordering::Relaxed) >= MAX_HANDSHAKES {
            self.handshakes.fetch_sub(1, Ordering::Relaxed);
            self.host.refusals.count_crowded();
            tracing::warn!("too many handshakes at a time; one is dropped");
            return;
        }
        let shared = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("pronto-handshake".into()).spawn(move || {
            if let Err(error) = run(&shared) {
                shared.host.refusals.count(&error);
                if shared.host.refusals.is_news(&error) {
                    tracing::info!(%error, "no link to a connection that was accepted; told again when it is another reason");
                }
            }
            shared.handshakes.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.handshakes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn answer_shm(self: &Arc<Self>, mut handshake: shm::Handshake) -> Result<(), NoLink> {
        if !handshake.peer().same_user() {
            handshake.send(&Refusal::NotPermitted.encode())?;
            return Err(NoLink::Refused(Refusal::NotPermitted));
        }
        let theirs = handshake.receive(MAX_GREETING)?;
        let canceller = Canceller::Shm(handshake.canceller()?);
        let Accepted { session, mut agreement, reply, attempt } =
            match self.receive_greeting(&theirs, canceller, false) {
                Ok(accepted) => accepted,
                Err(refusal) => {
                    handshake.send(&refusal.encode())?;
                    return Err(NoLink::RefusedNode { refusal, node: node_of(&theirs) });
                }
            };
        agreement.resumable = false;
        agreement.local = true;
        let made = handshake.send(&reply).map_err(NoLink::from);
        let made = attempt.settle(made.and_then(|()| self.establish_shm(handshake, agreement)))?;
        self.install(&session, made);
        Ok(())
    }

    fn answer_tcp(self: &Arc<Self>, mut handshake: tcp::Handshake) -> Result<(), NoLink> {
        let theirs = handshake.receive(MAX_GREETING)?;
        let canceller = Canceller::Tcp(handshake.canceller()?);
        let device = self.device_for(&handshake)?;
        let Accepted { session, mut agreement, reply, attempt } =
            match self.receive_greeting(&theirs, canceller, device.is_ok()) {
                Ok(accepted) => accepted,
                Err(refusal) => {
                    handshake.send(&refusal.encode())?;
                    return Err(NoLink::RefusedNode { refusal, node: node_of(&theirs) });
                }
            };
        agreement.local = handshake.peer_addr().ip().is_loopback();
        let made = handshake.send(&reply).map_err(NoLink::from).and_then(|()| {
            let tried = match (device, agreement.features & RDMA != 0) {
                (Ok(device), true) => {
                    device.answer(&mut handshake, connections(&agreement))?.map(|link| (link, device))
                }
                (Ok(_), false) => Err(NOT_OFFERED.into()),
                (Err(why), _) => Err(why),
            };
            self.establish_between_hosts(handshake, agreement, tried)
        });
        self.install(&session, attempt.settle(made)?);
        Ok(())
    }

    fn establish_shm(&self, handshake: shm::Handshake, agreement: Agreement) -> Result<Made, NoLink> {
        let link = handshake.within(ESTABLISH)?.establish(connections(&agreement))?;
        let pairs = [AnyQueuePair::Shm(link.control), AnyQueuePair::Shm(link.bulk)];
        self.host.note_choice(agreement.peer, "shm: the same host, by its address".into());
        Ok((SessionLinks { pairs, agreement }, Some(Lifeline::Process(link.lifeline))))
    }

    /// The device that may carry a link over this connection, or why there is none.
    fn device_for(&self, handshake: &tcp::Handshake) -> Result<Result<rdma::Device, String>, NoLink> {
        if handshake.peer_addr().ip().to_canonical().is_loopback() {
            return Ok(Err("the same host".into()));
        }
        Ok(self.devices.reaching(handshake.local_addr()?.ip()))
    }

    /// A link over RDMA, if that was tried and worked, else over TCP.
    fn establish_between_hosts(
        &self,
        handshake: tcp::Handshake,
        agreement: Agreement,
        tried: Result<(rdma::Link, rdma::Device), String>,
    ) -> Result<Made, NoLink> {
        let peer = agreement.peer;
        let why = match tried {
            Ok((link, device)) => {
                let streams = handshake.within(ESTABLISH).establish_streams()?;
                let (pairs, line) = link.finish(streams).map_err(NoLink::Rdma)?;
                self.host.note_choice(peer, format!("verbs: {} reaches it", device.name()));
                return Ok((SessionLinks { pairs, agreement }, Some(Lifeline::Link(line))));
            }
            Err(why) => why,
        };
        if self.rdma == Rdma::Require && !agreement.local {
            let failure = NoLink::Rdma(why);
            // The accepting side has nobody else who tells.
            self.host.note_failure(peer, failure.to_string());
            return Err(failure);
        }
        self.host.note_choice(peer, format!("tcp: {why}"));
        Ok((self.establish_tcp(handshake, agreement)?, None))
    }

    fn establish_tcp(
        &self,
        handshake: tcp::Handshake,
        agreement: Agreement,
    ) -> Result<SessionLinks<AnyQueuePair>, NoLink> {
        let handshake = handshake.within(ESTABLISH);
        let mut link = handshake.establish(connections(&agreement), &self.host.receive_pool)?;
        for pair in [&mut link.control, &mut link.bulk] {
            pair.on_blocked(serving::waker(&self.host));
        }
        let pairs = [AnyQueuePair::Tcp(link.control), AnyQueuePair::Tcp(link.bulk)];
        Ok(SessionLinks { pairs, agreement })
    }

    fn install(&self, session: &Arc<NodeSession>, (links, lifeline): Made) {
        let (peer, id) = (links.agreement.peer, links.agreement.session);
        let mut sink = WaitingSink { host: &self.host, session };
        self.host.forget_failure(peer);
        session.install(links, &mut sink, &*self.host);
        self.host.changed();
        if let Some(lifeline) = lifeline {
            self.lifelines.lock().expect("no holder panics").push((peer, id, lifeline));
            self.host.wake_keeper();
        }
    }

    /// The accepting side's view of a greeting: what was agreed, and the greeting to answer with.
    fn receive_greeting(
        &self,
        bytes: &[u8],
        canceller: Canceller,
        has_rdma: bool,
    ) -> Result<Accepted, Refusal> {
        let host = &self.host;
        let theirs = Greeting::decode(bytes).map_err(|_| Refusal::Malformed)?;
        if host.draining.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        if theirs.node == host.identity.node {
            return Err(Refusal::SameId);
        }
        if theirs.windows.iter().any(|window| window.replies > pronto_core::session::MAX_CALLS) {
            return Err(Refusal::Malformed);
        }
        let (attempts, peer) = (&self.attempts, theirs.node);
        let ((session, agreement, reply), attempt) =
            attempts.accept(peer, canceller, || self.judge(theirs, has_rdma))?;
        Ok(Accepted { session, agreement, reply, attempt })
    }

    /// Whether there may be a link with a node that greets so, when none of its attempts goes first; and what to answer.
    fn judge(
        &self,
        theirs: Greeting,
        has_rdma: bool,
    ) -> Result<(Arc<NodeSession>, Agreement, Vec<u8>), Refusal> {
        let host = &self.host;
        let known = host.known_session(theirs.node);
        let held = known.as_ref().and_then(|session| session.info(&**host));
        let same_life = held.is_some_and(|held| held.epoch == theirs.epoch);
        let resumes =
            same_life && theirs.session.is_some() && theirs.session == held.map(|held| held.session);
        if known.is_some_and(|session| session.is_linked(&**host)) && !resumes {
            return Err(if same_life { Refusal::Duplicate } else { Refusal::IdTaken });
        }
        let id = if resumes { theirs.session } else { None };
        let id = id.unwrap_or_else(|| SessionId(system::random().max(1)));
        let target = theirs.node;
        let agreement = agree(&host.identity, &host.limits, theirs, id, held.map(|held| held.session))?;
        let features = if has_rdma { RDMA } else { 0 };
        let reply = Greeting { features, ..greet(&host.identity, &host.limits, target, Some(id)) }.encode();
        // Only now: strangers whose greetings do not fit leave nothing behind.
        let session = host.session(target).ok_or(Refusal::TooManyPeers)?;
        Ok((session, agreement, reply))
    }

    /// The dialling side's view of the answer.
    fn receive_answer(
        &self,
        bytes: &[u8],
        peer: NodeId,
        held: Option<SessionId>,
    ) -> Result<Agreement, NoLink> {
        let theirs = Greeting::decode(bytes)?;
        if theirs.node != peer {
            return Err(NoLink::OtherNode { expected: peer, found: theirs.node });
        }
        let session = theirs.session.ok_or(NoLink::Refused(Refusal::Malformed))?;
        agree(&self.host.identity, &self.host.limits, theirs, session, held).map_err(NoLink::Refused)
    }

    /// Dials what is not linked, watches peer processes, until the node stops.
    fn keep(self: &Arc<Self>, peers: &[(NodeId, Vec<Address>)]) {
        // Peers that the node was told of keep their places, also while they are down.
        let _kept: Vec<_> = peers.iter().filter_map(|(peer, _)| self.host.session(*peer)).collect();
        let mut pauses: HashMap<NodeId, (Nanos, Nanos)> = HashMap::new();
        while !self.host.is_stopping() {
            self.bury_the_dead();
            let now = self.host.now();
            let mut next = Nanos::NEVER;
            // A node that takes its leave makes no new links.
            let peers = if self.host.is_draining() { &[] } else { peers };
            for (peer, addresses) in peers {
                let Some(session) = self.host.session(*peer) else { continue };
                if session.is_linked(&*self.host) {
                    pauses.remove(peer);
                    continue;
                }
                let (due, pause) = pauses.entry(*peer).or_insert((now, FIRST_PAUSE));
                if now >= *due {
                    if !self.attempts.may_dial(*peer, &session) {
                        // An attempt is under way, or has succeeded; its end wakes this thread.
                        continue;
                    }
                    *due = now + *pause;
                    *pause = Nanos((pause.0 * 2).min(LAST_PAUSE.0));
                    self.dial(*peer, addresses.clone(), session);
                }
                next = next.min(*due);
            }
            self.rest(next);
        }
    }

    /// Sleeps until something changed, a peer process ended, or it is time to dial.
    fn rest(&self, next: Nanos) {
        let lifelines = self.lifelines.lock().expect("no holder panics");
        let mut descriptors: Vec<_> = lifelines.iter().flat_map(|(_, _, line)| line.descriptors()).collect();
        self.devices.with_events(|events| descriptors.extend(events.iter().map(AsRawFd::as_raw_fd)));
        // The lock is given back before sleeping: lifelines and devices are dropped by this thread only.
        let mut fds: Vec<_> = [self.stop.as_fd(), self.host.keeper.as_fd()]
            .into_iter()
            .chain(descriptors.iter().map(|fd| system::borrow(*fd)))
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        drop(lifelines);
        let timeout = if next == Nanos::NEVER {
            PollTimeout::NONE
        } else {
            poll_timeout(Duration::from_nanos(next.since(self.host.now()).0.max(1_000_000)))
        };
        let _interrupted = poll(&mut fds, timeout);
        let _count = self.host.keeper.read();
        self.devices.take_events();
        self.host.flight.tell(&self.host);
    }

    /// Ends the sessions of peers whose processes have ended, and has links looked at whose other end has.
    fn bury_the_dead(&self) {
        let mut lifelines = self.lifelines.lock().expect("no holder panics");
        let (dead, alive) = lifelines.drain(..).partition(|(_, _, line)| line.is_cut());
        *lifelines = alive;
        drop(lifelines);
        let dead: Vec<(NodeId, SessionId, Lifeline)> = dead;
        for (peer, id, line) in dead {
            if let Lifeline::Link(_) = line {
                self.devices.forget_absent();
                self.host.serving.wake();
                continue;
            }
            let Some(session) = self.host.session(peer) else { continue };
            if session.info(&*self.host).is_some_and(|info| info.session == id) {
                let mut sink = WaitingSink { host: &self.host, session: &session };
                session.take_down(DownCause::Died, &mut sink, &*self.host);
            }
        }
    }

    fn dial(self: &Arc<Self>, peer: NodeId, addresses: Vec<Address>, session: Arc<NodeSession>) {
        let shared = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("pronto-dial".into()).spawn(move || {
            for address in &addresses {
                if shared.host.is_draining() {
                    break;
                }
                match shared.dial_one(peer, address, &session) {
                    Ok(()) => break,
                    Err(error) => {
                        shared.host.failed_dials.count(&error);
                        // The other side dials, too, and was quicker: nothing that anybody has to do something about.
                        let quicker =
                            matches!(error, NoLink::Greeting(GreetingFault::Refused(Refusal::Duplicate)));
                        if shared.host.note_failure(peer, format!("{address}: {error}")) && !quicker {
                            tracing::info!(node = %peer, %address, %error, "not reached; tried again until it is");
                        }
                    }
                }
            }
            shared.attempts.has_dialled(peer);
        });
        if spawned.is_err() {
            self.attempts.has_dialled(peer);
        }
    }

    fn dial_one(&self, peer: NodeId, address: &Address, session: &Arc<NodeSession>) -> Result<(), NoLink> {
        let host = &self.host;
        let held = session.info(&**host).map(|info| info.session);
        // In this order. With a link there is nothing to dial for, and a greeting that names the session of a link that
        // lives would cost that link: the other side takes it for the successor of one that was lost.
        if session.is_linked(&**host) {
            return Ok(());
        }
        let greeting = greet(&host.identity, &host.limits, peer, held);
        match address {
            Address::Shm(path) => {
                let mut handshake = shm::Handshake::dial(path, HANDSHAKE)?;
                handshake.send(&greeting.encode())?;
                let mut agreement = self.receive_answer(&handshake.receive(MAX_GREETING)?, peer, held)?;
                agreement.resumable = false;
                agreement.local = true;
                self.install(session, self.establish_shm(handshake, agreement)?);
            }
            Address::Tcp(socket) => {
                let mut handshake = tcp::Handshake::dial(*socket, HANDSHAKE, self.tcp)?;
                let device = self.device_for(&handshake)?;
                let features = if device.is_ok() { RDMA } else { 0 };
                handshake.send(&Greeting { features, ..greeting }.encode())?;
                let mut agreement = self.receive_answer(&handshake.receive(MAX_GREETING)?, peer, held)?;
                agreement.local = handshake.peer_addr().ip().is_loopback();
                let tried = match (device, agreement.features & RDMA != 0) {
                    (Ok(device), true) => {
                        device.dial(&mut handshake, connections(&agreement))?.map(|link| (link, device))
                    }
                    (Ok(_), false) => Err(NOT_OFFERED.into()),
                    (Err(why), _) => Err(why),
                };
                self.install(session, self.establish_between_hosts(handshake, agreement, tried)?);
            }
        }
        Ok(())
    }
}

/// The node that a greeting says it is from.
fn node_of(greeting: &[u8]) -> Option<NodeId> {
    Greeting::decode(greeting).ok().map(|greeting| greeting.node)
}

fn connections(agreement: &Agreement) -> [ConnectionLimits; 2] {
    Class::ALL.map(|class| agreement.connection(class))
}

fn pause(span: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the operating system has to recover, and nothing tells when"
    )]
    sleep(span);
}

//! Two nodes in one thread: the caller's wait carries the callee along.
//!
//! Everything of a call is there but waiting: encoding, the session, the provider, dispatch, the handler, and the way back.
//! A wait begins by asking its executor how long it may poll ([`Executor::spin_time`]). By then the request has been posted;
//! the caller's host makes the callee's turn there, so that the first look finds the answer.

use core::time::Duration;
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use pronto_core::fabric::{ConnectionLimits, QueuePair};
use pronto_core::session::{Answer, Event, Identity, Inbound, Limits, Links, Session, Sink, agree, greet};
use pronto_core::{Channel, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_shm::ShmQueuePair;
use pronto_fabric_tcp::{Handshake, Listener, Options, ReceivePool, TcpQueuePair};
use pronto_rpc::handler::Incoming;
use pronto_rpc::host::MayWait;
use pronto_rpc::{Host, Peer, Route};
use pronto_sync::atomic::AtomicU32;
use pronto_wire::{Class, Epoch, NodeId, SessionId, TypeEntry, TypeId};

use crate::message::{Ask32, Ask200, Echo32, Echo200};

/// Requests that are open at once where calls are pipelined.
const WINDOW: usize = 32;

/// How often a callee looks for what has been sent before it counts as lost. Over TCP the kernel hands it over at once, as a
/// rule within the sender's system call.
const LOOKS: u32 = 1_000_000;

/// Of the payloads that are received over TCP, bytes.
const POOL: usize = 8 << 20;

const PATIENCE: Duration = Duration::from_secs(20);

/// A caller, and the callee that its waits carry along.
pub(crate) struct Pair<Q: QueuePair + 'static> {
    peer: Peer<Still<Q>>,
    host: Arc<Still<Q>>,
}

/// A host whose clock stands and on which nobody sleeps.
pub(crate) struct Still<Q: QueuePair + 'static> {
    callee: Option<Callee<Q>>,
}

/// The other node: its session with the caller, and its handlers by the number of their type.
struct Callee<Q: QueuePair + 'static> {
    /// The caller's session with it.
    caller: Arc<Session<Q>>,
    session: Arc<Session<Q>>,
    host: Arc<Still<Q>>,
    routes: Vec<Route<Still<Q>>>,
}

/// Two nodes over shared memory.
///
/// # Errors
/// If there is no memory.
pub(crate) fn shm() -> anyhow::Result<Pair<ShmQueuePair>> {
    Pair::new(|connections| {
        let (near, far) = pronto_fabric_shm::Link::pair(connections).context("a link over shared memory")?;
        Ok(([near.control, near.bulk], [far.control, far.bulk]))
    })
}

/// Two nodes over TCP on the loopback interface.
///
/// # Errors
/// If the kernel has no socket or no memory.
pub(crate) fn tcp() -> anyhow::Result<Pair<TcpQueuePair>> {
    let listener = Listener::bind("127.0.0.1:0", Options::default()).context("listening")?;
    let address = listener.local_addr().context("the port")?;
    Pair::new(|limits| {
        // The only moment with other threads: the sides of a handshake wait for each other, and for the listener, which
        // takes in both connections of a link.
        std::thread::scope(|threads| {
            let (accepted_by, accepted) = mpsc::channel();
            let listening = threads.spawn(move || -> anyhow::Result<()> {
                for _ in Class::ALL {
                    if let Some(handshake) = listener.accept()?.begin(PATIENCE)? {
                        accepted_by.send(handshake)?;
                    }
                }
                Ok(())
            });
            let far = threads.spawn(move || -> anyhow::Result<_> {
                Ok(accepted.recv()?.establish(limits.map(mirrored), &ReceivePool::new(POOL)?)?)
            });
            let near = Handshake::dial(address, PATIENCE, Options::default())?;
            let near = near.establish(limits, &ReceivePool::new(POOL)?)?;
            let far = far.join().expect("it does not panic")?;
            listening.join().expect("it does not panic")?;
            Ok(([near.control, near.bulk], [far.control, far.bulk]))
        })
    })
}

/// The limits of a connection as its other end sees them.
fn mirrored(limits: ConnectionLimits) -> ConnectionLimits {
    ConnectionLimits {
        send_depth: limits.receive_depth,
        receive_depth: limits.send_depth,
        max_send_payload: limits.max_receive_payload,
        max_receive_payload: limits.max_send_payload,
        send_memory: limits.send_memory,
    }
}

/// A handler as the greeting names it.
fn entry<Q: QueuePair + 'static>((number, route): (u16, &Route<Still<Q>>)) -> TypeEntry {
    let key = route.key;
    TypeEntry { name: key.name, layout: key.layout, service: key.service, type_id: TypeId(number) }
}

impl<Q: QueuePair + 'static> Pair<Q> {
    /// Lets two sessions agree over queue pairs that `link` makes, control before bulk.
    fn new(
        link: impl FnOnce([ConnectionLimits; 2]) -> anyhow::Result<([Q; 2], [Q; 2])>,
    ) -> anyhow::Result<Self> {
        let routes = vec![
            Route::inline(|_, ask: Ask32| Echo32 { bytes: ask.bytes }),
            Route::inline(|_, ask: Ask200| Echo200 { bytes: ask.bytes }),
        ];
        let types = (0..).zip(&routes).map(entry).collect();
        let limits = Limits::default();
        let identity =
            |node, types| Identity { node: NodeId(node), epoch: Epoch(1), name: String::new(), types };
        let (near, far) = (identity(1, Vec::new()), identity(2, types));
        let id = SessionId(1);
        let agreements = (
            agree(&near, &limits, greet(&far, &limits, near.node, Some(id)), id, None),
            agree(&far, &limits, greet(&near, &limits, far.node, Some(id)), id, None),
        );
        let agreements =
            (agreements.0.context("the caller agrees")?, agreements.1.context("the callee agrees")?);
        let (near_pairs, far_pairs) = link(Class::ALL.map(|class| agreements.0.connection(class)))?;
        let caller = Arc::new(Session::new(far.node, limits));
        let session = Arc::new(Session::new(near.node, limits));
        let host = Arc::new(Still { callee: None });
        session.install(Links { pairs: far_pairs, agreement: agreements.1 }, &mut Nobody, &*host);
        let callee = Callee { caller: Arc::clone(&caller), session, host, routes };
        let host = Arc::new(Still { callee: Some(callee) });
        caller.install(Links { pairs: near_pairs, agreement: agreements.0 }, &mut Nobody, &*host);
        Ok(Self { peer: Peer::new(caller, Arc::clone(&host)), host })
    }

    /// One call with 32 bytes each way.
    ///
    /// # Errors
    /// If it fails, or brings back something else.
    pub(crate) fn call_32(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask32 { bytes: [byte; 32] })?;
        anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from what was sent");
        Ok(())
    }

    /// One call with 200 bytes each way.
    ///
    /// # Errors
    /// As [`Self::call_32`].
    pub(crate) fn call_200(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask200 { bytes: [byte; 200] })?;
        anyhow::ensure!(echo.bytes == [byte; 200], "an echo differs from what was sent");
        Ok(())
    }

    /// As many calls as are open at once where calls are pipelined: all requests, one turn of the callee, all answers.
    ///
    /// # Errors
    /// As [`Self::call_32`].
    pub(crate) fn window_32(&self, byte: u8) -> anyhow::Result<()> {
        let ask = Ask32 { bytes: [byte; 32] };
        let mut open: [_; WINDOW] = core::array::from_fn(|_| self.peer.start(&ask));
        for pending in &mut open {
            let pending = pending.as_mut().map_err(|error| anyhow::anyhow!("{error}"))?;
            let mut answer = pending.poll();
            if answer.is_none() {
                self.host.carry(LOOKS);
                answer = pending.poll();
            }
            let echo = answer.context("the callee has answered")??;
            anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from what was sent");
        }
        Ok(())
    }

    /// A turn of the caller's session when nothing has come.
    pub(crate) fn idle_turn(&self) {
        let session = self.peer.session();
        let progress = session.turn(1, || false, &mut Nobody, &*self.host);
        assert_eq!(progress.map(|progress| progress.moved), Some(0), "nothing has been sent");
    }

    /// A piece of the send ring taken, and given back unused.
    pub(crate) fn loan(&self) {
        drop(self.peer.session().loan(Class::Bulk, 4096, 0).expect("the ring is empty"));
    }
}

impl<Q: QueuePair + 'static> Still<Q> {
    /// Makes the callee's turns until it has run a handler, at most so many.
    fn carry(&self, turns: u32) {
        let Some(Callee { caller, session, host, routes }) = &self.callee else { return };
        // A waiter's first look is in vain, and sees to sends that are done.
        caller.turn(1, || false, &mut Nobody, self);
        let mut sink = Handlers { session, host, routes, run: 0 };
        for _ in 0..turns {
            session.turn(1, || false, &mut sink, &**host);
            if sink.run != 0 {
                return;
            }
        }
    }
}

/// Runs handlers where the messages are taken in.
struct Handlers<'a, Q: QueuePair + 'static> {
    session: &'a Arc<Session<Q>>,
    host: &'a Arc<Still<Q>>,
    routes: &'a [Route<Still<Q>>],
    run: u32,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for Handlers<'_, Q> {
    fn request(&mut self, inbound: Inbound<Q::Lease>) -> Answer {
        self.run += 1;
        let route = &self.routes[usize::from(inbound.type_id.0)];
        let incoming = Incoming::new(&inbound, self.session, self.host, Nanos::NEVER);
        route.run(&incoming, &inbound.payload)
    }

    fn event(&mut self, _: Event) {}
}

/// Takes what no scenario sends.
struct Nobody;

impl<L> Sink<L> for Nobody {
    fn request(&mut self, _: Inbound<L>) -> Answer {
        Answer::Done
    }

    fn event(&mut self, _: Event) {}
}

impl<Q: QueuePair + 'static> core::fmt::Debug for Still<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Still").finish_non_exhaustive()
    }
}

impl<Q: QueuePair + 'static> Clock for Still<Q> {
    /// Read by a poller that has looked in vain for a while: the callee has more to do than was thought.
    fn now(&self) -> Nanos {
        self.carry(1);
        Nanos(1)
    }
}

impl<Q: QueuePair + 'static> Executor for Still<Q> {
    fn spin_time(&self, _: WaitPolicy) -> Nanos {
        self.carry(LOOKS);
        Nanos::NEVER
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {}

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn sleep_on_channels(&self, _: [Option<Channel>; 2], _: Nanos) {}

    fn give_back(&self, _: [Option<Channel>; 2]) {}
}

impl<Q: QueuePair + 'static> Host for Still<Q> {
    type Qp = Q;

    fn waiting_sink<'a>(self: &'a Arc<Self>, _: &'a Arc<Session<Q>>) -> impl Sink<Q::Lease> {
        Nobody
    }

    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::Spin
    }

    fn may_wait(&self) -> MayWait {
        MayWait::Freely
    }

    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        Some(wait())
    }

    fn expects_answers(&self) {}

    fn pause(&self) {}
}

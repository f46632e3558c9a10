//! Loom models of whole waits: threads call [`Session::wait`] for their calls, while the peer replies. Loom checks all orders of the operations
//! on the session's memory, as weakly ordered as the memory model allows. A wait that misses its reply deadlocks, which loom reports.
//!
//! The connection and the peer are made of one lock, so that the model's steps are those of the session.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;
use pronto_sync::ARMED;
use pronto_sync::atomic::AtomicU32;
use pronto_wire::{
    Acks, Class, Epoch, Header, InlinePayload, Kind, LayoutHash, NameHash, NodeId, ServiceId, TypeEntry,
    TypeId,
};

use super::*;
use crate::executor::{ASLEEP, Channel, Channels, Circumstances, WaitPolicy};
use crate::fabric::{
    Arrived, Capabilities, Completion, CompletionChannel, ConnectionLimits, DoorbellEvent, FabricError,
    Grant, GrantError, GrantId, HeapSendMemory, InlineMessage, Interest, MessageSlot, OneSided, OutOfBounds,
    Payload, PollOutcome, PostError, Region, Rights, SendMemory, SendWork,
};
use crate::session::greeting::{Identity, introduce};
use crate::session::inbound::Inbound;
use crate::session::link::{Event, Links};
use crate::session::{CallSpec, Limits, OutgoingPayload, TypeKey};
use crate::time::Clock;
use crate::wait::loom_tests::preemptions;

/// The defect of a model that loom must refute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Words are woken without effect.
    NoThreadWakes,
    /// Messages give no event, although the connection is armed.
    NoEvent,
}

/// Messages that have arrived for the caller's node, and its arming.
#[derive(Debug, Default)]
struct Wire {
    inbox: VecDeque<InlineMessage>,
    armed: bool,
    event: bool,
}

/// The connections of both classes and the threads' sleeping places.
#[derive(Debug)]
struct World {
    wires: [Mutex<Wire>; 2],
    /// Threads that sleep in the channels.
    event: Condvar,
    words: Mutex<()>,
    woken: Condvar,
    defect: Defect,
}

impl World {
    fn new(defect: Defect) -> Self {
        let wires = [Mutex::default(), Mutex::default()];
        Self { wires, event: Condvar::new(), words: Mutex::new(()), woken: Condvar::new(), defect }
    }

    fn wire(&self, class: Class) -> MutexGuard<'_, Wire> {
        self.wires[class.index()].lock().expect("no thread panics while it holds this")
    }

    /// Sends a reply to the caller's node.
    fn replies(&self, call: CallId) {
        let header = Header { kind: Kind::Reply { call }, acks: Acks::default() }.emit();
        let mut wire = self.wire(Class::Control);
        wire.inbox.push_back(InlineMessage { header, payload: InlinePayload::EMPTY });
        if wire.armed && self.defect != Defect::NoEvent {
            (wire.armed, wire.event) = (false, true);
            self.event.notify_all();
        }
    }
}

/// A payload that does not exist: all messages are inline.
#[derive(Debug)]
enum NoLease {}

impl Payload for NoLease {
    fn len(&self) -> usize {
        match *self {}
    }

    fn copy_to(&self, _: usize, _: &mut [u8]) -> Result<(), OutOfBounds> {
        match *self {}
    }

    fn as_private(&self) -> Option<&[u8]> {
        match *self {}
    }
}

/// One of the caller's connections.
#[derive(Debug)]
struct Pair {
    class: Class,
    world: Arc<World>,
    capabilities: Capabilities,
    memory: Arc<HeapSendMemory>,
}

impl Pair {
    fn new(class: Class, limits: ConnectionLimits, world: &Arc<World>) -> Self {
        let capabilities = Capabilities {
            provider: "loom",
            max_payload: limits.max_send_payload,
            receive_depth: limits.receive_depth,
            send_depth: limits.send_depth,
            polls_without_syscalls: true,
            visible_when_posted: true,
            by_reference: false,
            copies: 40,
            pins_memory: false,
            ready_when_touched: true,
            one_sided: OneSided::None,
        };
        let memory = Arc::new(HeapSendMemory::new(limits.send_memory as usize));
        Self { class, world: Arc::clone(world), capabilities, memory }
    }
}

impl QueuePair for Pair {
    type Lease = NoLease;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        Arc::clone(&self.memory) as _
    }

    fn prepare(&mut self, _: Range<usize>) -> Result<(), FabricError> {
        Ok(())
    }

    fn retire(&mut self, _: Range<usize>) -> Result<(), FabricError> {
        Ok(())
    }

    fn post(&mut self, _: SendWork<'_>) -> Result<(), PostError> {
        Ok(())
    }

    fn ring_doorbell(&mut self, _: DoorbellEvent) -> Result<(), FabricError> {
        Ok(())
    }

    fn poll_send(&mut self) -> Option<Completion> {
        None
    }

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<NoLease>, FabricError> {
        let Some(message) = self.world.wire(self.class).inbox.pop_front() else {
            return Ok(PollOutcome::Nothing);
        };
        *slot.inline = message;
        Ok(PollOutcome::Inline)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        let mut wire = self.world.wire(self.class);
        wire.armed = events != Armed::Nothing;
        wire.event &= wire.armed;
        Ok(())
    }

    fn channel(&self) -> Option<CompletionChannel> {
        Some(CompletionChannel { fd: 0, interest: Interest::READABLE, caller_epoll: None })
    }

    fn grant(&mut self, _: &Region, _: Range<u64>, _: Rights) -> Result<Grant, GrantError> {
        unreachable!("no memory is granted in this model")
    }

    fn revoke(&mut self, _: GrantId) -> Result<(), GrantError> {
        unreachable!("no memory is granted in this model")
    }

    fn close(&mut self) {}
}

/// A thread of the caller's node.
struct Caller<'a>(&'a World);

impl Clock for Caller<'_> {
    fn now(&self) -> Nanos {
        Nanos(1)
    }
}

impl Executor for Caller<'_> {
    fn circumstances(&self, _: WaitPolicy) -> Circumstances {
        ASLEEP
    }

    fn sleep(&self, word: &AtomicU32, _: Nanos) {
        let mut words = self.0.words.lock().expect("no thread panics while it holds this");
        while word.load(pronto_sync::atomic::Ordering::Relaxed) == ARMED {
            words = self.0.woken.wait(words).expect("no thread panics while it holds this");
        }
    }

    fn wake(&self, _: &AtomicU32) {
        let _words = self.0.words.lock().expect("no thread panics while it holds this");
        if self.0.defect != Defect::NoThreadWakes {
            self.0.woken.notify_all();
        }
    }

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn back_off(&self, _: Nanos) {
        thread::yield_now();
    }

    fn sleep_on_channels(&self, channels: &Channels, _: Nanos) -> [bool; 2] {
        let [Some(Channel { .. }), _] = channels.each else { return [false; 2] };
        // No message of class bulk arrives.
        let mut wire = self.0.wire(Class::Control);
        while !wire.event {
            wire = self.0.event.wait(wire).expect("no thread panics while it holds this");
        }
        [true, false]
    }
}

struct Nobody;

impl Sink<NoLease> for Nobody {
    fn request(&mut self, _: Inbound<'_, Arrived<NoLease>>) {
        unreachable!("the peer sends no request");
    }

    fn event(&mut self, _: Event) {}
}

const TYPE: TypeEntry =
    TypeEntry { service: ServiceId(0), name: NameHash(1), layout: LayoutHash(1), type_id: TypeId(0) };

/// Returns a session with a link to the peer.
fn session(world: &Arc<World>) -> Session<Pair> {
    let limits = Limits {
        calls: 2,
        requests: [2, 2],
        max_payload: [64, 64],
        send_memory: [64 << 10, 64 << 10],
        ..Limits::default()
    };
    let identity = |node, types| Identity {
        node: NodeId(node),
        epoch: Epoch(1),
        name: alloc::string::String::new(),
        types,
    };
    let [agreement, _] = introduce(&identity(1, Vec::new()), &identity(2, [TYPE].into()), &limits)
        .expect("the greetings agree");
    let pairs = Class::ALL.map(|class| Pair::new(class, agreement.connection(class), world));
    let session = Session::new(NodeId(2), limits);
    session.install(Links { pairs, agreement }, &mut Nobody, &Caller(world));
    session
}

/// The variable by which a test starts itself with a defect.
const DEFECT: &str = "PRONTO_LOOM_DEFECT";

/// As many threads as `waiters` wait for a call each, and the peer replies to the last call first.
fn model(waiters: usize) {
    let defect = match std::env::var(DEFECT).as_deref() {
        Ok("words") => Defect::NoThreadWakes,
        Ok("events") => Defect::NoEvent,
        _ => Defect::None,
    };
    if defect != Defect::None {
        // Unwinding would drop guards, whose steps loom refuses after a deadlock.
        std::panic::set_hook(std::boxed::Box::new(|panic| {
            std::eprintln!("{panic}");
            std::process::exit(101);
        }));
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions(model.preemption_bound));
    model.max_branches = 20_000;
    model.check(move || {
        let world = Arc::new(World::new(defect));
        let session = Arc::new(session(&world));
        let key = TypeKey { service: TYPE.service, name: TYPE.name, layout: TYPE.layout };
        let spec = CallSpec { key, class: Class::Control, timeout: Nanos::NEVER };
        let calls: Vec<CallId> = (0..waiters)
            .map(|_| {
                let payload = OutgoingPayload::inline(&[]).expect("an empty payload is inline");
                session.call(&spec, payload, &Caller(&world)).expect("there is room")
            })
            .collect();
        let threads: Vec<_> = calls
            .iter()
            .map(|&call| {
                let (world, session) = (Arc::clone(&world), Arc::clone(&session));
                thread::spawn(move || {
                    let end =
                        session.wait(call, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &Caller(&world));
                    assert!(matches!(end, WaitOutcome::Ended(End::Reply(_))), "{end:?}");
                })
            })
            .collect();
        for call in calls.iter().rev() {
            world.replies(*call);
        }
        for thread in threads {
            thread.join().expect("the wait ends");
        }
        assert_eq!(session.open_calls(), 0, "all slots are free");
    });
}

/// Asserts that loom finds a deadlock in the model of two waits if it has a defect.
fn assert_refuted(defect: &str) {
    let program = std::env::current_exe().expect("the test has a program");
    let test = concat!(module_path!(), "::loom_two_waits_get_their_replies");
    let test = test.split_once("::").expect("the path begins with the crate").1;
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", test, "--nocapture"]).env(DEFECT, defect).output();
    let output = output.expect("the test starts");
    let printed = std::string::String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains("deadlock"), "{}: {printed}", output.status);
}

#[test]
fn loom_a_wait_gets_its_reply() {
    model(1);
}

#[test]
fn loom_two_waits_get_their_replies() {
    model(2);
}

#[test]
fn loom_refutes_messages_without_an_event() {
    assert_refuted("events");
}

#[test]
fn loom_refutes_words_that_wake_no_thread() {
    assert_refuted("words");
}

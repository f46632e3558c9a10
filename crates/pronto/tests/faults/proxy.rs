//! A TCP proxy that the test controls: it forwards connections to a node, and can cut them or go silent.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// First bytes that an acceptor sends on the first connection of a link when it has the second one.
const READY: &[u8] = b"pronto\x03r";

/// Proxy that forwards its connections to a node.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    forwarded: Vec<TcpStream>,
    /// Nothing is forwarded, and no connection is closed.
    dead: bool,
    /// New connections are closed immediately.
    closed: bool,
    bytes: usize,
    /// Number of further connections at which everything is cut, the last of them before it is forwarded.
    break_in: Option<usize>,
    /// The next ready message of a node is dropped.
    lose_ready: bool,
    /// Approximate number of bytes that each connection forwards in a direction; further bytes wait.
    most: Option<usize>,
    /// Nothing is forwarded after the next ready message of a node.
    go_silent_when_ready: bool,
    /// Bytes of the first dialler that were forwarded.
    first_bytes: Vec<u8>,
    dialled: bool,
}

impl Proxy {
    /// Starts a proxy to `tcp:ADDRESS`.
    pub(crate) fn to(node: &str) -> Self {
        let target: SocketAddr = node.strip_prefix("tcp:").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let forwarder = Arc::clone(&shared);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                forwarder.forward(near, target);
            }
        });
        Self { address, shared }
    }

    /// Returns the address to dial.
    pub(crate) fn address(&self) -> String {
        format!("tcp:{}", self.address)
    }

    /// Cuts every connection once, when `count` more connections have arrived.
    pub(crate) fn break_at_connection(&self, count: usize) {
        self.shared.state.lock().unwrap().break_in = Some(count);
    }

    /// Drops the next ready message of a node.
    pub(crate) fn lose_ready(&self) {
        self.shared.state.lock().unwrap().lose_ready = true;
    }

    /// Forwards about `most` bytes of each connection in each direction and holds the rest back, so that long messages do not arrive.
    pub(crate) fn hold_back_beyond(&self, most: usize) {
        self.shared.state.lock().unwrap().most = Some(most);
    }

    /// Goes silent after the next ready message of a node, once: one end then has another link, over which nothing arrives.
    pub(crate) fn go_silent_when_ready(&self) {
        self.shared.state.lock().unwrap().go_silent_when_ready = true;
    }

    /// Returns whether all requested failures have happened.
    pub(crate) fn has_failed(&self) -> bool {
        let state = self.shared.state.lock().unwrap();
        state.break_in.is_none() && !state.lose_ready && !state.go_silent_when_ready
    }

    /// Cuts every connection, as if a cable were pulled out and put back. Returns their number.
    pub(crate) fn cut(&self) -> usize {
        self.shared.state.lock().unwrap().cut()
    }

    /// Forwards nothing until [`Proxy::recover`], and closes no connection.
    pub(crate) fn go_silent(&self) {
        self.shared.state.lock().unwrap().dead = true;
    }

    /// Cuts every connection, and closes new ones.
    pub(crate) fn close(&self) {
        self.shared.state.lock().unwrap().closed = true;
        self.cut();
    }

    /// Ends all failures.
    pub(crate) fn recover(&self) {
        let mut state = self.shared.state.lock().unwrap();
        (state.dead, state.closed, state.most) = (false, false, None);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns the bytes that the first dialler has sent so far.
    pub(crate) fn first_bytes(&self) -> Vec<u8> {
        self.shared.state.lock().unwrap().first_bytes.clone()
    }

    /// Returns the number of bytes forwarded so far.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.state.lock().unwrap().bytes
    }
}

impl State {
    fn cut(&mut self) -> usize {
        let forwarded: Vec<_> = self.forwarded.drain(..).collect();
        for stream in &forwarded {
            // Fails for connections that have already ended.
            let _gone = stream.shutdown(Shutdown::Both);
        }
        forwarded.len() / 2
    }
}

impl Shared {
    fn forward(self: &Arc<Self>, near: TcpStream, target: SocketAddr) {
        let mut state = self.state.lock().unwrap();
        if state.closed {
            return;
        }
        state.break_in = state.break_in.map(|count| count - 1);
        if state.break_in == Some(0) {
            state.break_in = None;
            state.cut();
            return;
        }
        let Ok(far) = TcpStream::connect(target) else { return };
        let is_first = !core::mem::replace(&mut state.dialled, true);
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
            state.forwarded.push(stream.try_clone().unwrap());
        }
        drop(state);
        let (back, forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        for (from, to, record) in [(near, far, is_first), (back, forth, false)] {
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.copy(from, to, record));
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, record: bool) {
        let mut bytes = vec![0; 64 << 10];
        let mut forwarded = 0;
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut state = self.state.lock().unwrap();
            forwarded += count;
            while state.dead || state.most.is_some_and(|most| forwarded > most) {
                state = self.changed.wait(state).unwrap();
            }
            state.bytes += count;
            if state.lose_ready && bytes.starts_with(READY) {
                state.lose_ready = false;
                continue;
            }
            if state.go_silent_when_ready && bytes.starts_with(READY) {
                (state.go_silent_when_ready, state.dead) = (false, true);
            }
            if record {
                state.first_bytes.extend_from_slice(&bytes[..count]);
            }
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // Ends the other direction, too.
        let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

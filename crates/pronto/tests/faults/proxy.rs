//! A wire that the test owns: carries TCP connections to a node, and can be cut or go dead.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What an acceptor says on the first connection of a link when it has the second.
const READY: &[u8] = b"pronto\x03r";

/// Carries every connection to it on to a node.
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
    eager: Vec<TcpStream>,
    /// Nothing is carried, and nobody is told.
    dead: bool,
    /// Connections come and are closed at once.
    closed: bool,
    bytes: usize,
    /// Everything breaks when so many connections more have come, the last of them before it is carried.
    breaks_in: Option<usize>,
    /// The next word of a node that a link is ready is not carried.
    loses_ready: bool,
    /// Bytes that each connection carries in a direction, about; more of them wait.
    most: Option<usize>,
    /// Nothing is carried any more after the next word of a node that a link is ready.
    dies_when_ready: bool,
    /// What the first dialler said, as far as it was carried.
    first_words: Vec<u8>,
    dialled: bool,
}

impl Proxy {
    /// A wire to `tcp:ADDRESS`.
    pub(crate) fn to(node: &str) -> Self {
        let target: SocketAddr = node.strip_prefix("tcp:").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let carrier = Arc::clone(&shared);
        // Ends with the process.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                carrier.carry(near, target);
            }
        });
        Self { address, shared }
    }

    /// Where to dial.
    pub(crate) fn address(&self) -> String {
        format!("tcp:{}", self.address)
    }

    /// Breaks every connection when so many more have come, once.
    pub(crate) fn breaks_at_connection(&self, count: usize) {
        self.shared.state.lock().unwrap().breaks_in = Some(count);
    }

    /// Does not carry a node's word that a link is ready, once.
    pub(crate) fn loses_ready(&self) {
        self.shared.state.lock().unwrap().loses_ready = true;
    }

    /// Carries about `most` bytes of each connection in each direction, and holds the others back: long messages do not arrive.
    pub(crate) fn holds_back_beyond(&self, most: usize) {
        self.shared.state.lock().unwrap().most = Some(most);
    }

    /// Goes dead when it has carried a node's word that a link is ready, once: one end has another link, over which nothing comes.
    pub(crate) fn dies_when_ready(&self) {
        self.shared.state.lock().unwrap().dies_when_ready = true;
    }

    /// Whether what should break or get lost has done so.
    pub(crate) fn has_failed(&self) -> bool {
        let state = self.shared.state.lock().unwrap();
        state.breaks_in.is_none() && !state.loses_ready && !state.dies_when_ready
    }

    /// Breaks every connection, as a cable that is pulled out and put back. Returns how many broke.
    pub(crate) fn cut(&self) -> usize {
        self.shared.state.lock().unwrap().cut()
    }

    /// Carries nothing more until further notice, and tells nobody.
    pub(crate) fn goes_dead(&self) {
        self.shared.state.lock().unwrap().dead = true;
    }

    /// Breaks every connection, and those that come.
    pub(crate) fn closes(&self) {
        self.shared.state.lock().unwrap().closed = true;
        self.cut();
    }

    /// All is well again.
    pub(crate) fn recovers(&self) {
        let mut state = self.shared.state.lock().unwrap();
        (state.dead, state.closed, state.most) = (false, false, None);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// What the first dialler has said so far.
    pub(crate) fn first_words(&self) -> Vec<u8> {
        self.shared.state.lock().unwrap().first_words.clone()
    }

    /// Bytes carried so far.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.state.lock().unwrap().bytes
    }
}

impl State {
    fn cut(&mut self) -> usize {
        let eager: Vec<_> = self.eager.drain(..).collect();
        for stream in &eager {
            // Those that ended by themselves are cut already.
            let _gone = stream.shutdown(Shutdown::Both);
        }
        eager.len() / 2
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, near: TcpStream, target: SocketAddr) {
        let mut state = self.state.lock().unwrap();
        if state.closed {
            return;
        }
        state.breaks_in = state.breaks_in.map(|count| count - 1);
        if state.breaks_in == Some(0) {
            state.breaks_in = None;
            state.cut();
            return;
        }
        let Ok(far) = TcpStream::connect(target) else { return };
        let is_first = !core::mem::replace(&mut state.dialled, true);
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
            state.eager.push(stream.try_clone().unwrap());
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
        let mut eager = 0;
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut state = self.state.lock().unwrap();
            eager += count;
            while state.dead || state.most.is_some_and(|most| eager > most) {
                state = self.changed.wait(state).unwrap();
            }
            state.bytes += count;
            if state.loses_ready && bytes.starts_with(READY) {
                state.loses_ready = false;
                continue;
            }
            if state.dies_when_ready && bytes.starts_with(READY) {
                (state.dies_when_ready, state.dead) = (false, true);
            }
            if record {
                state.first_words.extend_from_slice(&bytes[..count]);
            }
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other direction ends with this one.
        let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

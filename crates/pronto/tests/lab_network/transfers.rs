//! Long messages into posted buffers. The client sends them, and the server sends the same bytes back.

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use pronto::{Node, Peer, Region};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ledger::{AFTER_REFUSAL, fill};
use crate::rig::{TIMEOUT, pause, until};

/// Lengths in bytes: below the limit for eager messages over TCP, and in several chunks.
const LENGTHS: [usize; 3] = [96 << 10, 20_000, 50_001];
/// Time limit of a message. It expires only if a message is lost.
const FAR: Duration = Duration::from_secs(40);
const FORTH: u64 = 1;
const BACK: u64 = 2;

/// Returns bytes that depend on their positions. No chunk or frame is as long as the period.
fn pattern() -> Vec<u8> {
    let once: Vec<u8> = (0..10_007_u64).map(|at| fill(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8)).collect();
    once.repeat(2 + LENGTHS[0] / once.len())
}

/// Sends each message of a peer back, until the process ends.
pub(crate) fn echo(node: &Node, peer: u16) {
    let region = node.region(LENGTHS[0]).unwrap();
    loop {
        let Ok(peer) = node.wait_for_peer(peer, TIMEOUT) else { continue };
        let Ok(mut receive) = peer.post(FORTH, &region, 0..LENGTHS[0] as u64) else {
            pause(AFTER_REFUSAL);
            continue;
        };
        if let Ok(len) = receive.wait(10 * TIMEOUT) {
            // The client notices if this does not arrive.
            let _sent = peer.send(BACK, &region, 0..len, FAR);
        }
    }
}

/// A thread that transfers messages one after the other.
pub(crate) struct Transfers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    end: Receiver<()>,
}

impl Transfers {
    pub(crate) fn start(node: &Node, peer: &Peer) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (send, end) = channel();
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&done));
        let peer = peer.clone();
        let [from, to] = [(); 2].map(|()| node.region(LENGTHS[0]).unwrap());
        let buffers = Buffers { pattern: pattern(), from, to };
        std::thread::spawn(move || {
            // SYNC: a stop flag; orders nothing.
            while !ends.load(Ordering::Relaxed) {
                buffers.transfer(&peer, counts.load(Ordering::Relaxed));
                counts.fetch_add(1, Ordering::Relaxed);
            }
            let _driver_failed = send.send(());
        });
        Self { stop, done, end }
    }

    /// Waits until one more message is there and back.
    pub(crate) fn wait_for_more(&self) {
        let done = || self.done.load(Ordering::Relaxed);
        let before = done();
        until("a long message arrives", || done() > before);
    }

    /// Stops the thread.
    ///
    /// # Panics
    /// If a message was lost or damaged.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end.recv_timeout(2 * TIMEOUT).expect("a transfer has failed");
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The buffers of a thread.
struct Buffers {
    pattern: Vec<u8>,
    from: Region,
    to: Region,
}

impl Buffers {
    fn transfer(&self, peer: &Peer, number: u64) {
        let len = LENGTHS[usize::try_from(number % 3).unwrap()];
        let at = usize::try_from(number % 10_000).unwrap();
        let sent = &self.pattern[at..at + len];
        self.from.write(0, sent).unwrap();
        let mut receive = peer.post(BACK, &self.to, 0..LENGTHS[0] as u64).unwrap();
        assert_eq!(
            peer.send(FORTH, &self.from, 0..len as u64, FAR),
            Ok(()),
            "message {number} is lost on the way there"
        );
        assert_eq!(receive.wait(FAR), Ok(len as u64), "message {number} is lost on the way back");
        let mut received = vec![0; len];
        self.to.read(0, &mut received).unwrap();
        assert!(received == sent, "message {number} is damaged");
    }
}

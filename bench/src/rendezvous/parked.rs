//! Bytes in the kernel of a message in flight over TCP, sampled from its sockets.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::sync::mpsc;

use anyhow::Context as _;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::placement::{Cpu, pin};

/// Samples made while something ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Largest number of bytes in a sample, of both directions and both ends.
    pub(crate) most: u64,
    /// Number of samples.
    pub(crate) samples: u64,
}

/// Samples all sockets with this port at one end, from `cpu`, while `run` runs.
pub(crate) fn watch<T>(
    port: u16,
    cpu: Cpu,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Seen)> {
    let stop = AtomicBool::new(false);
    let (first, sampled) = mpsc::channel();
    std::thread::scope(|scope| {
        let stop = &stop;
        let watcher = scope.spawn(move || {
            pin(cpu)?;
            let mut sockets = File::open(SOCKETS).with_context(|| format!("opening {SOCKETS}"))?;
            let (mut seen, mut text) = (Seen::default(), String::new());
            while !stop.load(Ordering::Acquire) {
                text.clear();
                sockets
                    .rewind()
                    .and_then(|()| sockets.read_to_string(&mut text))
                    .context("reading sockets")?;
                seen = Seen { most: seen.most.max(queued(&text, port)), samples: seen.samples + 1 };
                if seen.samples == 1 {
                    // Fails only if the caller has stopped waiting.
                    let _ = first.send(());
                }
            }
            anyhow::Ok(seen)
        });
        // A failed watcher reports its error at the end.
        let _ = sampled.recv();
        let result = run();
        stop.store(true, Ordering::Release);
        let seen = watcher.join().expect("it does not panic")?;
        Ok((result?, seen))
    })
}

/// Returns the bytes in the queues of the sockets with this port: sent and not acknowledged, arrived and not read. Bytes that have
/// arrived and are not acknowledged count twice, so the sum is an upper bound.
fn queued(text: &str, port: u16) -> u64 {
    let port = format!("{port:04X}");
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        let [_, local, remote, state, queues] = words[..] else { return None };
        let ends = |address: &str| address.rsplit_once(':').is_some_and(|(_, at)| at == port);
        if state == LISTENS || !(ends(local) || ends(remote)) {
            return None;
        }
        let (unsent, unread) = queues.split_once(':')?;
        Some(u64::from_str_radix(unsent, 16).ok()? + u64::from_str_radix(unread, 16).ok()?)
    };
    text.lines().filter_map(of_line).sum()
}

/// List of all IPv4 sockets in this network namespace: proc_pid_net(5).
const SOCKETS: &str = "/proc/self/net/tcp";
/// State of a listening socket, whose queue counts connections.
const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::placement::Placement;

    #[test]
    fn queues_of_one_port_are_added_up() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
            0: 0100007F:1B59 00000000:0000 0A 00000000:00000003 00:00000000\n   \
            1: 0100007F:1B59 0100007F:C001 01 00000000:00000010 00:00000000\n   \
            2: 0100007F:C001 0100007F:1B59 01 00000100:00000000 00:00000000\n   \
            3: 0100007F:C002 0100007F:1B5A 01 00000200:00000000 00:00000000\n";
        assert_eq!(queued(text, 7001), 0x110);
        assert_eq!(queued(text, 1), 0);
    }

    #[test]
    fn unread_bytes_are_sampled() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sender = TcpStream::connect(address).unwrap();
        let (_receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5_000]).unwrap();
        let cpu = Placement::choose().unwrap().caller();
        let mut ran = false;
        let ((), seen) = watch(address.port(), cpu, || {
            // The first sample may be late.
            crate::clock::pause(core::time::Duration::from_millis(50));
            ran = true;
            Ok(())
        })
        .unwrap();
        assert!(ran && seen.samples > 0 && seen.most >= 5_000, "{seen:?}");
    }
}

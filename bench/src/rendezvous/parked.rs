//! What lies in the kernel of a message that is on its way over TCP: read from its sockets while it travels.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::sync::mpsc;

use anyhow::Context as _;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::placement::{Cpu, pin};

/// What was seen while something ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The most bytes at one look, of both directions and both ends.
    pub(crate) most: u64,
    /// Looks.
    pub(crate) looks: u64,
}

/// Looks at all sockets with this port at one end, from `cpu`, for as long as `run` takes.
///
/// # Errors
/// If the kernel does not tell, and what `run` gives back.
pub(crate) fn watch<T>(
    port: u16,
    cpu: Cpu,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Seen)> {
    let stop = AtomicBool::new(false);
    let (looks, looked) = mpsc::channel();
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
                seen = Seen { most: seen.most.max(queued(&text, port)), looks: seen.looks + 1 };
                if seen.looks == 1 {
                    // Nobody waits for it any more only if this was to end before.
                    let _told = looks.send(());
                }
            }
            anyhow::Ok(seen)
        });
        // A watcher that has failed says so at the end.
        let _looks = looked.recv();
        let result = run();
        stop.store(true, Ordering::Release);
        let seen = watcher.join().expect("it does not panic")?;
        Ok((result?, seen))
    })
}

/// Bytes in the queues of the sockets with this port: sent and not acknowledged, arrived and not taken. What has arrived and is
/// not acknowledged yet counts twice, so this is rather too much than too little.
fn queued(text: &str, port: u16) -> u64 {
    let port = format!("{port:04X}");
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        let [_, local, remote, state, queues] = words[..] else { return None };
        let ends = |address: &str| address.rsplit_once(':').is_some_and(|(_, at)| at == port);
        if state == LISTENS || !(ends(local) || ends(remote)) {
            return None;
        }
        let (unsent, untaken) = queues.split_once(':')?;
        Some(u64::from_str_radix(unsent, 16).ok()? + u64::from_str_radix(untaken, 16).ok()?)
    };
    text.lines().filter_map(of_line).sum()
}

/// All sockets of IPv4 in this network namespace: proc_pid_net(5).
const SOCKETS: &str = "/proc/self/net/tcp";
/// The state of a socket that listens; its queue counts connections.
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
    fn bytes_that_nobody_takes_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sender = TcpStream::connect(address).unwrap();
        let (_receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5_000]).unwrap();
        let cpu = Placement::choose().unwrap().caller();
        let mut looked = false;
        let ((), seen) = watch(address.port(), cpu, || {
            // The first look may come late.
            crate::clock::pause(core::time::Duration::from_millis(50));
            looked = true;
            Ok(())
        })
        .unwrap();
        assert!(looked && seen.looks > 0 && seen.most >= 5_000, "{seen:?}");
    }
}

//! The signals of a daemon: one makes the node read its credentials and rules again, the others stop it after its open calls.

use core::time::Duration;
use std::path::Path;

use anyhow::Context as _;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use pronto::{Config, Node};

/// Blocks the signals to which the node reacts, for the calling thread and those that it starts. Returns them.
pub(crate) fn block_signals() -> anyhow::Result<SigSet> {
    let stop = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&stop), None).context("signal mask")?;
    Ok(stop)
}

/// Waits for one of the signals. SIGHUP makes the node read its credentials and rules again, from `config`. The others let the node's open calls and running handlers end, for at most `limit`, and stops the node.
pub(crate) fn run_until_signal(
    node: Node,
    stop: &SigSet,
    config: &Path,
    limit: Duration,
) -> anyhow::Result<()> {
    let signal = loop {
        match stop.wait().context("waiting for a signal")? {
            Signal::SIGHUP => reload(&node, config),
            signal => break signal,
        }
    };
    eprintln!("prontod: {signal}: draining");
    let id = node.id();
    node.drain(limit)?;
    eprintln!("prontod: node {id} has stopped");
    Ok(())
}

/// Applies the credentials and rules in the file.
fn reload(node: &Node, config: &Path) {
    let read = Config::read(config).map_err(anyhow::Error::from);
    match read.and_then(|config| Ok(node.reload(&config)?)) {
        Ok(0) => eprintln!("prontod: SIGHUP: read credentials and rules again"),
        Ok(ended) => eprintln!(
            "prontod: SIGHUP: read credentials and rules again; ended {ended} links of peers that the node no longer trusts"
        ),
        Err(error) => eprintln!("prontod: SIGHUP: nothing has changed: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use nix::sys::pthread::{pthread_kill, pthread_self};
    use pronto::{CallError, Message};

    use super::*;

    #[derive(Message, Debug, PartialEq)]
    #[message(name = "stopping.done")]
    struct Done {}

    /// A request whose handler waits until the test lets it go.
    #[derive(Message, Debug)]
    #[message(name = "stopping.work", reply = Done)]
    struct Work {}

    /// A request that is replied to as long as the node takes requests.
    #[derive(Message, Debug)]
    #[message(name = "stopping.probe", reply = Done)]
    struct Probe {}

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Shows: operations.signal
    #[test]
    fn a_signal_lets_open_calls_end_and_refuses_others() {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let (go, gate) = channel::<()>();
            let (entered, enters) = channel();
            let (gate, entered) = (Mutex::new(gate), Mutex::new(entered));
            let address = format!("shm:@pronto-test-stopping-{signal}-{}", std::process::id());
            let node = Node::builder(1)
                .listen(&address)
                .handle(move |_, _: Work| {
                    entered.lock().expect("no holder panics").send(()).expect("the test lasts");
                    gate.lock().expect("no holder panics").recv().expect("the test lets it go");
                    Done {}
                })
                .handle_inline(|_, _: Probe| Done {})
                .start()
                .expect("the node starts");
            let caller = Node::builder(2).peer(1, &address).start().expect("the node starts");
            let peer = caller.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
            let (send_thread, thread) = channel();
            let daemon = std::thread::spawn(move || {
                let stop = block_signals().expect("signals can be blocked");
                send_thread.send(pthread_self()).expect("the test lasts");
                run_until_signal(node, &stop, Path::new("/nowhere"), TIMEOUT)
            });
            let mut open = peer.start_within(&Work {}, TIMEOUT).expect("there is room");
            enters.recv_timeout(TIMEOUT).expect("the handler runs");
            let thread = thread.recv_timeout(TIMEOUT).expect("the thread runs");
            pthread_kill(thread, signal).expect("the thread exists");
            // The node refuses further calls once it has handled the signal.
            let refused = loop {
                match peer.call_within(&Probe {}, TIMEOUT) {
                    Ok(Done {}) => std::thread::yield_now(),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, CallError::Rejected(_)), "{refused:?}");
            assert!(open.poll().is_none(), "{signal} has ended the call");
            go.send(()).expect("the handler waits");
            assert_eq!(open.wait().expect("a reply"), Done {}, "{signal}");
            daemon.join().expect("no panic").expect("the node was drained");
        }
    }
}

//! The program of `docs/embedding.md`: a service with a configuration file, events of peers, and an orderly end.

use core::time::Duration;
use std::path::Path;
use std::sync::Mutex;

use nix::sys::signal::{SigSet, Signal};
use pronto::{Config, Event, Events, Message, Node};

#[derive(Message)]
#[message(name = "guide.total")]
struct Total {
    total: u64,
}

#[derive(Message)]
#[message(name = "guide.add", reply = Total)]
struct Add {
    number: u64,
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: embedded CONFIGURATION")?;
    // Blocked before any thread starts, so that only this thread receives them.
    let stop = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    stop.thread_block()?;

    let config = Config::read(Path::new(&file))?;
    let sum = Mutex::new(0);
    let node = Node::from_config(&config)?
        .handle_inline(move |_, add: Add| {
            let mut sum = sum.lock().expect("no handler panics");
            *sum += add.number;
            Total { total: *sum }
        })
        .start()?;
    let events = node.events();
    let reporter = std::thread::spawn(move || report(&events));
    eprintln!("started");

    stop.wait()?;
    node.drain(Duration::from_secs(10))?;
    reporter.join().map_err(|_| "the reporter panicked")?;
    eprintln!("stopped");
    Ok(())
}

/// Prints events until the node ends.
fn report(events: &Events) {
    while let Some(event) = events.next_within(Duration::MAX) {
        match event {
            Ok(Event::PeerUp(info)) => eprintln!("node {} is up over {}", info.peer, info.provider),
            Ok(Event::PeerDown { peer, cause, .. }) => eprintln!("node {peer} is down: {cause}"),
            Ok(Event::LinkLost { peer, error }) => eprintln!("node {peer} has lost its link: {error}"),
            Ok(Event::LinkPaused { .. } | Event::PauseEnded { .. }) => {}
            Ok(Event::LinkResumed { peer, .. }) => eprintln!("node {peer} has a link again"),
            Err(missed) => eprintln!("{missed}"),
        }
    }
}

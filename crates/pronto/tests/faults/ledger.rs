//! A ledger over real processes: the server writes each id that it executes to a log that outlives it, while it is killed, stopped
//! and cut off at random. At the end every call's outcome is held against the log.
//!
//! A test goes on for `PRONTO_SOAK_SECONDS` if that is set, in runs of [`LONG_RUN`] with a fresh seed each, and with full windows in
//! every second run. `PRONTO_LEDGER_SEED` sets the seed of the first run. A seed fixes the calls and the faults, but not how
//! processes are scheduled.

mod again;
mod books;
mod caller;
mod server;

use core::fmt;
use core::hash::BuildHasher;
use core::time::Duration;
use std::fs::File;
use std::hash::RandomState;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use pronto::{Event, Events, Node, Peer, WaitPolicy};
use pronto_sync::atomic::Ordering;

use self::books::{Line, compare};
use self::caller::{Caller, LONGEST_CALL, Mix, Progress, Random};
use self::server::{LIVENESS, Windows};
use crate::child::Child;
use crate::proxy::Proxy;
use crate::rig::{SOON, Watch, address, assert_all_back, beside_others, free_address, lasts, until};

pub(crate) use self::server::serves;

const THREADS: usize = 4;
/// One of two runs that fit about 10 s, which every test run has time for.
const SHORT_RUN: Duration = Duration::from_secs(4);
/// One run of a soak. The books of a run are in memory.
const LONG_RUN: Duration = Duration::from_secs(20);
/// Replies that come between two faults, so that each fault meets a session in use.
const BETWEEN: u64 = 30;
/// Mismatches that are printed, at most.
const PRINTED: usize = 20;

/// What happens to the server, or to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL and a restart.
    Kill,
    /// SIGSTOP, and SIGKILL when a call is open: that call is under way.
    StopAndKill,
    /// SIGSTOP for less than the liveness limit.
    StopShortly,
    /// SIGSTOP for about the liveness limit, or until the session has ended and longer.
    StopForLong,
    /// A broken wire, which another link replaces.
    Cut,
    /// A broken wire, and SIGKILL soon after: before, while or after the session resumes.
    CutAndKill,
    /// A broken wire, and SIGSTOP soon after, for as long as in `StopForLong`.
    CutAndStop,
    /// A broken wire, and another one that goes dead as soon as one end has its link.
    CutAndSilence,
}

const ANYWHERE: [Fault; 4] = [Fault::Kill, Fault::StopAndKill, Fault::StopShortly, Fault::StopForLong];
const ON_A_WIRE: [Fault; 5] =
    [Fault::Cut, Fault::Cut, Fault::CutAndKill, Fault::CutAndStop, Fault::CutAndSilence];

/// Faults and events that happened in a run.
#[derive(Debug, Default)]
struct Happened {
    kills: u64,
    stops: u64,
    cuts: u64,
    downs: u64,
    resumed: u64,
    /// Milliseconds since the run began, and what happened then.
    times: Vec<(u128, String)>,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, stops, cuts, downs, resumed, .. } = self;
        write!(f, "kills={kills} stops={stops} cuts={cuts} downs={downs} resumed={resumed}")
    }
}

/// One run: a server process, and the node that calls it.
struct Run {
    listen: String,
    log: File,
    windows: Windows,
    wire: Option<Proxy>,
    server: Child,
    node: Node,
    events: Events,
    random: Random,
    clock: Arc<Watch>,
    callers: Vec<Arc<Progress>>,
    happened: Happened,
}

fn start_server(listen: &str, log: &File, windows: Windows) -> Child {
    // The child opens the file anew: its position is its own, and the file is there as long as this process.
    let path = format!("/proc/{}/fd/{}", std::process::id(), log.as_raw_fd());
    let server = Child::start("ledger", &[listen, &path, windows.name()]);
    server.hears("listening ");
    server
}

impl Run {
    fn start(transport: &str, windows: Windows, seed: u64) -> (Self, Peer) {
        let log = File::from(memfd_create("pronto-ledger", MFdFlags::MFD_CLOEXEC).unwrap());
        let is_wire = transport == "tcp";
        let listen = if is_wire { free_address() } else { address(transport, &format!("ledger-{seed:x}")) };
        let server = start_server(&listen, &log, windows);
        let wire = is_wire.then(|| Proxy::to(&listen));
        let dialled = wire.as_ref().map_or_else(|| listen.clone(), Proxy::address);
        let builder = Node::builder(2).wait(WaitPolicy::Block).limits(windows.limits()).peer(1, &dialled);
        let node = builder.start().unwrap();
        let peer = node.wait_for_peer(1, SOON).unwrap();
        let (events, random, clock) = (node.events(), Random(seed), Arc::new(Watch::start()));
        let (callers, happened) = (Vec::new(), Happened::default());
        let run = Self { listen, log, windows, wire, server, node, events, random, clock, callers, happened };
        (run, peer)
    }

    /// Starts the calling threads. Each sends its lines when it ends.
    fn call(&mut self, peer: &Peer, mix: Mix) -> Receiver<(usize, Vec<Line>)> {
        let (send, lines) = channel();
        for thread in 0..THREADS {
            let progress = Arc::<Progress>::default();
            let random = Random(self.random.next());
            let caller = Caller::new(thread, peer, mix, random, &self.clock, &progress);
            let send = send.clone();
            // Not scoped: a thread that hangs must not keep the test from failing.
            std::thread::spawn(move || {
                let _driver_failed = send.send((thread, caller.run()));
            });
            self.callers.push(progress);
        }
        lines
    }

    fn replies(&self) -> u64 {
        self.callers.iter().map(|caller| caller.replies.load(Ordering::Relaxed)).sum()
    }

    fn notes(&mut self, what: String) {
        self.happened.times.push((self.clock.passed().as_millis(), what));
    }

    /// Counts what the client's node has reported.
    fn takes_events(&mut self) {
        while let Some(event) = self.events.try_next() {
            let event = event.expect("the driver reads events often enough to miss none");
            match event {
                Event::PeerDown { .. } => self.happened.downs += 1,
                Event::LinkResumed { .. } => self.happened.resumed += 1,
                Event::PeerUp(_) | Event::LinkLost { .. } => {}
            }
            self.notes(format!("{event:?}"));
        }
    }

    fn waits_for_load(&mut self) {
        let before = self.replies();
        until("calls are answered", || self.replies() > before + BETWEEN);
        lasts(Duration::from_millis(self.random.below(200)));
        self.takes_events();
    }

    /// Waits until the client's node has reported the end of the session.
    fn waits_for_down(&mut self, before: u64) {
        until("the session ends", || {
            self.takes_events();
            self.happened.downs > before
        });
    }

    fn kills(&mut self) {
        let before = self.happened.downs;
        self.notes("SIGKILL".into());
        self.server.kill();
        self.happened.kills += 1;
        lasts(Duration::from_millis(self.random.below(2) * self.random.below(300)));
        self.server = start_server(&self.listen, &self.log, self.windows);
        self.waits_for_down(before);
    }

    fn stops(&mut self, span: Duration) {
        self.notes(format!("SIGSTOP for {span:?}"));
        self.server.signal(Signal::SIGSTOP);
        lasts(span);
        self.server.signal(Signal::SIGCONT);
        self.happened.stops += 1;
    }

    /// Stops the server around the liveness limit, where the session may end or not, or until it has ended.
    fn stops_for_long(&mut self) {
        let span = LIVENESS + Duration::from_millis(self.random.below(900)) - Duration::from_millis(200);
        if self.random.below(2) == 0 {
            self.stops(span);
            return;
        }
        let before = self.happened.downs;
        self.notes("SIGSTOP until the session has ended".into());
        self.server.signal(Signal::SIGSTOP);
        // How long that takes depends on the load: a node that was late itself waits longer for its peers.
        self.waits_for_down(before);
        lasts(span - LIVENESS / 2);
        self.server.signal(Signal::SIGCONT);
        self.happened.stops += 1;
    }

    fn cuts(&mut self) {
        self.notes("cut".into());
        let broke = self.wire.as_ref().map_or(0, Proxy::cut);
        self.happened.cuts += u64::from(broke > 0);
    }

    fn silences(&mut self) {
        let before = self.happened.downs;
        if let Some(wire) = &self.wire {
            wire.dies_when_ready();
        }
        self.cuts();
        let died = || self.wire.as_ref().is_some_and(Proxy::has_failed);
        until("the wire is dead", died);
        self.waits_for_down(before);
        self.wire.iter().for_each(Proxy::recovers);
    }

    /// At most as long as it takes to resume, and rather less.
    fn for_a_moment(&mut self) -> Duration {
        Duration::from_millis(self.random.below(2) * self.random.below(60))
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.kills(),
            Fault::StopAndKill => {
                self.notes("SIGSTOP".into());
                self.server.signal(Signal::SIGSTOP);
                let is_open = || self.node.status().peers.iter().any(|peer| peer.open_calls > 0);
                until("a call is open", is_open);
                self.kills();
            }
            Fault::StopShortly => {
                let span = Duration::from_millis(20 + self.random.below(350));
                self.stops(span);
            }
            Fault::StopForLong => self.stops_for_long(),
            Fault::Cut => {
                let before = (self.happened.resumed, self.happened.downs);
                self.cuts();
                until("the session goes on or ends", || {
                    self.takes_events();
                    (self.happened.resumed, self.happened.downs) != before
                });
            }
            Fault::CutAndKill => {
                self.cuts();
                lasts(self.for_a_moment());
                self.kills();
            }
            Fault::CutAndStop => {
                self.cuts();
                lasts(self.for_a_moment());
                self.stops_for_long();
            }
            Fault::CutAndSilence => self.silences(),
        }
    }

    /// Causes each fault at least once in an order of the seed, and goes on until the time is up.
    fn faults(&mut self, span: Duration) {
        let watch = Watch::start();
        while self.happened.kills == 0 || watch.passed() < span {
            let mut faults = ANYWHERE.to_vec();
            faults.extend(self.wire.iter().flat_map(|_| ON_A_WIRE));
            while !faults.is_empty() {
                let next = usize::try_from(self.random.below(faults.len() as u64)).unwrap();
                self.waits_for_load();
                self.fault(faults.swap_remove(next));
            }
        }
        self.waits_for_load();
    }

    /// Stops the callers and takes their lines.
    ///
    /// # Panics
    /// If a caller hangs, or has panicked.
    fn ends(&mut self, lines: &Receiver<(usize, Vec<Line>)>) -> Vec<Vec<Line>> {
        self.callers.iter().for_each(|caller| caller.stop.store(true, Ordering::Relaxed));
        let mut books = vec![Vec::new(); THREADS];
        for _ in 0..THREADS {
            match lines.recv_timeout(LONGEST_CALL) {
                Ok((thread, lines)) => books[thread] = lines,
                Err(RecvTimeoutError::Timeout) => panic!("a caller hangs: {:?}", self.callers),
                Err(RecvTimeoutError::Disconnected) => panic!("a caller has failed: {:?}", self.callers),
            }
        }
        for (caller, lines) in self.callers.iter().zip(&books) {
            let [begun, ended] = [&caller.begun, &caller.ended].map(|count| count.load(Ordering::Relaxed));
            assert_eq!((begun, ended), (lines.len() as u64, lines.len() as u64), "each call ended once");
        }
        self.takes_events();
        books
    }

    /// What happened around a call, for the reader of a mismatch.
    fn around(&self, span: [u32; 2]) -> String {
        let near = |time: u128| time + 1_500 > span[0].into() && time < u128::from(span[1]) + 500;
        let times = self.happened.times.iter().filter(|(time, _)| near(*time));
        times.map(|(time, what)| format!("\n    {time} ms: {what}")).collect()
    }
}

/// One run, from its seed to its verdict.
fn run(transport: &str, windows: Windows, mix: Mix, seed: u64, span: Duration) {
    let (mut run, peer) = Run::start(transport, windows, seed);
    let lines = run.call(&peer, mix);
    // Printed first: a run that does not come to its summary has its seed here.
    eprintln!("ledger: seed={seed:#x} transport={transport} windows={} begins", windows.name());
    run.faults(span);
    let books = run.ends(&lines);
    assert_all_back(&run.node, &peer);
    // With the server no late execution can come.
    run.server.kill();
    let (totals, mismatches) = compare(&books, &mut run.log);
    let windows_name = windows.name();
    let count = mismatches.len();
    eprintln!(
        "ledger: seed={seed:#x} transport={transport} windows={windows_name} {totals} {} mismatches={count}",
        run.happened
    );
    for mismatch in mismatches.iter().take(PRINTED) {
        eprintln!("ledger: mismatch: {mismatch}{}", run.around(mismatch.line.span));
    }
    assert_eq!(count, 0, "calls whose outcome does not fit the log");
    let Happened { kills, stops, cuts, downs, resumed, .. } = run.happened;
    assert!(kills >= 2 && stops >= 2, "the server was killed and stopped");
    assert!(downs >= kills, "each death ended a session");
    assert!(totals.maybe_down > 0, "a death met calls under way");
    assert!(totals.replies > 0 && totals.yes > 0 && totals.no > 0, "all kinds of ends");
    assert!(transport != "tcp" || (cuts > 0 && resumed > 0), "the wire broke, and a session went on");
    let no_room: u64 = run.callers.iter().map(|caller| caller.no_room.load(Ordering::Relaxed)).sum();
    assert!(windows == Windows::Wide || no_room > 0, "the windows were full");
}

/// Runs of one transport, until the time is up.
fn ledger(transport: &str) {
    let _beside = beside_others();
    let soak =
        std::env::var("PRONTO_SOAK_SECONDS").ok().map(|text| Duration::from_secs(text.parse().unwrap()));
    let given = std::env::var("PRONTO_LEDGER_SEED").ok().map(|text| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .expect("PRONTO_LEDGER_SEED is a hexadecimal number")
    });
    let fresh = || if soak.is_some() { RandomState::new().hash_one(transport) } else { 1 };
    let mut seed = given.unwrap_or_else(fresh);
    let watch = Watch::start();
    for windows in [Windows::Wide, Windows::Full, Windows::Wide, Windows::Single].into_iter().cycle() {
        // A session that ends while a crossed call waits to be sent again breaks the rules, rarely: `again.rs` has that alone.
        let (mix, length) =
            if soak.is_some() { (Mix::Crossed, LONG_RUN) } else { (Mix::Straight, SHORT_RUN) };
        run(transport, windows, mix, seed, length);
        seed = Random(seed).next();
        let is_over = soak.map_or(windows != Windows::Wide, |span| watch.passed() >= span);
        if is_over {
            return;
        }
    }
}

#[test]
fn outcomes_of_calls_over_shared_memory_fit_the_log() {
    ledger("shm");
}

#[test]
fn outcomes_of_calls_over_tcp_fit_the_log() {
    ledger("tcp");
}

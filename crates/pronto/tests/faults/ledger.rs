//! A ledger over real processes. The server writes each id that it executes to a log that outlives it, while the test kills, stops
//! and disconnects it at random. At the end the outcome of every call is compared with the log.
//!
//! If `PRONTO_SOAK_SECONDS` is set, a test runs for this time, in runs of [`LONG_RUN`] with a fresh seed each, and with full windows
//! in every second run. `PRONTO_LEDGER_SEED` sets the seed of the first run. A seed fixes the calls and the faults, but not the
//! scheduling of processes.

mod again;
mod books;
mod caller;
mod server;
mod windows;

use core::fmt;
use core::hash::BuildHasher;
use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::hash::RandomState;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use pronto::{Event, Events, Node, Peer, WaitPolicy};
use pronto_sync::atomic::Ordering;

use self::books::{Line, compare};
use self::caller::{Caller, LONGEST_CALL, Mix, Progress, Random};
use self::server::handlers;
use self::windows::{LIVENESS, Windows};
use crate::child::{Child, command, report};
use crate::proxy::Proxy;
use crate::rig::{
    TIMEOUT, Watch, address, assert_all_released, free_address, pause, server, shared_run, until,
};
use crate::secured::{Authorized, stored};

const THREADS: usize = 4;
/// Length of one of two runs, which together take about 10 s in every test run.
const SHORT_RUN: Duration = Duration::from_secs(4);
/// Length of one run of a soak. The lines of a run are kept in memory.
const LONG_RUN: Duration = Duration::from_secs(20);
/// Pause of a caller after a call that was refused.
const AFTER_REFUSAL: Duration = Duration::from_micros(500);
/// Replies between two faults, so that each fault affects a session in use.
const BETWEEN: u64 = 30;
/// Maximum number of mismatches that are printed.
const PRINTED: usize = 20;

/// A fault of the server or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL and a restart.
    Kill,
    /// SIGSTOP, then SIGKILL when a call is open, so that the call is in flight.
    StopAndKill,
    /// SIGSTOP for less than the liveness limit.
    StopShortly,
    /// SIGSTOP for about the liveness limit, or until after the session has ended.
    StopForLong,
    /// A broken connection, which another link replaces.
    Cut,
    /// A broken connection, then SIGKILL before, while or after the session resumes.
    CutAndKill,
    /// A broken connection, then SIGSTOP for as long as in `StopForLong`.
    CutAndStop,
    /// A broken connection, then a new one that goes silent as soon as one end has its link.
    CutAndSilence,
}

const ANYWHERE: [Fault; 4] = [Fault::Kill, Fault::StopAndKill, Fault::StopShortly, Fault::StopForLong];
const ON_A_WIRE: [Fault; 5] =
    [Fault::Cut, Fault::Cut, Fault::CutAndKill, Fault::CutAndStop, Fault::CutAndSilence];

/// Faults and events of a run.
#[derive(Debug, Default)]
struct Occurred {
    kills: u64,
    stops: u64,
    cuts: u64,
    downs: u64,
    resumed: u64,
    /// Events with their times in milliseconds since the run began.
    times: Vec<(u128, String)>,
}

impl fmt::Display for Occurred {
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
    /// Credentials of both nodes, if the transport is TLS.
    world: Option<Authorized>,
    wire: Option<Proxy>,
    server: Child,
    node: Node,
    events: Events,
    random: Random,
    clock: Arc<Watch>,
    callers: Vec<Arc<Progress>>,
    occurred: Occurred,
}

fn start_server(listen: &str, log: &File, windows: Windows, world: Option<&Authorized>) -> Child {
    // The child opens the file again to get its own position. The file exists as long as this process.
    let path = format!("/proc/{}/fd/{}", std::process::id(), log.as_raw_fd());
    let folder = world.map_or_else(|| NO_FOLDER.into(), |world| world.folder.display().to_string());
    let server = Child::start("ledger", &[listen, &path, windows.name(), &folder]);
    server.expect_line("listening ");
    server
}

/// In place of the folder with credentials, if there is none.
const NO_FOLDER: &str = "-";

/// Runs the server in a child process: `LISTEN LOG WINDOWS FOLDER`.
pub(crate) fn serve(arguments: &[&str]) {
    let log = OpenOptions::new().append(true).open(arguments[1]).unwrap();
    let limits = Windows::parse(arguments[2]).limits();
    let mut builder = server(1, arguments[0]).limits(limits);
    if arguments[3] != NO_FOLDER {
        builder = builder.trust(stored(Path::new(arguments[3]), 1));
    }
    let node = handlers(builder, log).start().unwrap();
    report(&format!("listening {}", node.listening()[0]));
    while !command().is_empty() {}
}

impl Run {
    fn start(transport: &str, windows: Windows, seed: u64) -> (Self, Peer) {
        let log = File::from(memfd_create("pronto-ledger", MFdFlags::MFD_CLOEXEC).unwrap());
        let is_wire = transport != "shm";
        let world = (transport == "tls").then(Authorized::new);
        if let Some(world) = &world {
            [1, 2].into_iter().for_each(|node| world.store(node));
        }
        let listen = if is_wire { free_address() } else { address(transport, &format!("ledger-{seed:x}")) };
        let server = start_server(&listen, &log, windows, world.as_ref());
        let wire = is_wire.then(|| Proxy::to(&listen));
        let dialled = wire.as_ref().map_or_else(|| listen.clone(), Proxy::address);
        let mut builder = Node::builder(2).wait(WaitPolicy::Block).limits(windows.limits()).peer(1, &dialled);
        if let Some(world) = &world {
            builder = builder.trust(stored(&world.folder, 2));
        }
        let node = builder.start().unwrap();
        let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
        let (events, random, clock) = (node.events(), Random(seed), Arc::new(Watch::start()));
        let (callers, occurred) = (Vec::new(), Occurred::default());
        let run = Self {
            listen,
            log,
            windows,
            world,
            wire,
            server,
            node,
            events,
            random,
            clock,
            callers,
            occurred,
        };
        (run, peer)
    }

    /// Starts the calling threads. Each sends its lines when it ends.
    fn call(&mut self, peer: &Peer, mix: Mix) -> Receiver<(usize, Vec<Line>)> {
        let (send, lines) = channel();
        for thread in 0..THREADS {
            let progress = Arc::<Progress>::default();
            let random = Random(self.random.next());
            let caller = Caller::new(thread, peer, mix, random, &self.clock, &progress, AFTER_REFUSAL);
            let send = send.clone();
            // Not scoped: a hanging thread must not prevent the test from failing.
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

    fn note(&mut self, text: String) {
        self.occurred.times.push((self.clock.passed().as_millis(), text));
    }

    /// Counts the events that the client's node has reported.
    fn count_events(&mut self) {
        while let Some(event) = self.events.try_next() {
            let event = event.expect("the driver reads events often enough to miss none");
            match event {
                Event::PeerDown { .. } => self.occurred.downs += 1,
                Event::LinkResumed { .. } => self.occurred.resumed += 1,
                Event::PeerUp(_)
                | Event::LinkLost { .. }
                | Event::LinkPaused { .. }
                | Event::PauseEnded { .. } => {}
            }
            self.note(format!("{event:?}"));
        }
    }

    fn wait_for_load(&mut self) {
        let before = self.replies();
        until("calls succeed", || self.replies() > before + BETWEEN);
        pause(Duration::from_millis(self.random.below(200)));
        self.count_events();
    }

    /// Waits until the client's node has reported the end of the session.
    fn wait_for_down(&mut self, before: u64) {
        until("the session ends", || {
            self.count_events();
            self.occurred.downs > before
        });
    }

    fn kill_server(&mut self) {
        let before = self.occurred.downs;
        self.note("SIGKILL".into());
        self.server.kill();
        self.occurred.kills += 1;
        pause(Duration::from_millis(self.random.below(2) * self.random.below(300)));
        self.server = start_server(&self.listen, &self.log, self.windows, self.world.as_ref());
        self.wait_for_down(before);
    }

    fn stop_server(&mut self, span: Duration) {
        self.note(format!("SIGSTOP for {span:?}"));
        self.server.signal(Signal::SIGSTOP);
        pause(span);
        self.server.signal(Signal::SIGCONT);
        self.occurred.stops += 1;
    }

    /// Stops the server around the liveness limit, where the session may end or not, or until it has ended.
    fn stop_for_long(&mut self) {
        let span = LIVENESS + Duration::from_millis(self.random.below(900)) - Duration::from_millis(200);
        if self.random.below(2) == 0 {
            self.stop_server(span);
            return;
        }
        let before = self.occurred.downs;
        self.note("SIGSTOP until the session has ended".into());
        self.server.signal(Signal::SIGSTOP);
        // The time depends on the load: a node that was late itself waits longer for its peers.
        self.wait_for_down(before);
        pause(span - LIVENESS / 2);
        self.server.signal(Signal::SIGCONT);
        self.occurred.stops += 1;
    }

    fn cut_wire(&mut self) {
        self.note("cut".into());
        let broken = self.wire.as_ref().map_or(0, Proxy::cut);
        self.occurred.cuts += u64::from(broken > 0);
    }

    fn silence(&mut self) {
        let before = self.occurred.downs;
        if let Some(wire) = &self.wire {
            wire.go_silent_when_ready();
        }
        self.cut_wire();
        let died = || self.wire.as_ref().is_some_and(Proxy::has_failed);
        until("the connection is silent", died);
        self.wait_for_down(before);
        self.wire.iter().for_each(Proxy::recover);
    }

    /// Returns a random time, at most about the time that a resumption takes.
    fn short_time(&mut self) -> Duration {
        Duration::from_millis(self.random.below(2) * self.random.below(60))
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.kill_server(),
            Fault::StopAndKill => {
                self.note("SIGSTOP".into());
                self.server.signal(Signal::SIGSTOP);
                let is_open = || self.node.status().peers.iter().any(|peer| peer.open_calls > 0);
                until("a call is open", is_open);
                self.kill_server();
            }
            Fault::StopShortly => {
                let span = Duration::from_millis(20 + self.random.below(350));
                self.stop_server(span);
            }
            Fault::StopForLong => self.stop_for_long(),
            Fault::Cut => {
                let before = (self.occurred.resumed, self.occurred.downs);
                self.cut_wire();
                until("the session resumes or ends", || {
                    self.count_events();
                    (self.occurred.resumed, self.occurred.downs) != before
                });
            }
            Fault::CutAndKill => {
                self.cut_wire();
                pause(self.short_time());
                self.kill_server();
            }
            Fault::CutAndStop => {
                self.cut_wire();
                pause(self.short_time());
                self.stop_for_long();
            }
            Fault::CutAndSilence => self.silence(),
        }
    }

    /// Causes each fault at least once, in an order given by the seed, and repeats this until the time has passed.
    fn faults(&mut self, span: Duration) {
        let watch = Watch::start();
        while self.occurred.kills == 0 || watch.passed() < span {
            let mut faults = ANYWHERE.to_vec();
            faults.extend(self.wire.iter().flat_map(|_| ON_A_WIRE));
            if self.world.is_some() {
                // The wire reads from the bytes when one end has its link, and cannot read these.
                faults.retain(|fault| *fault != Fault::CutAndSilence);
            }
            while !faults.is_empty() {
                let next = usize::try_from(self.random.below(faults.len() as u64)).unwrap();
                self.wait_for_load();
                self.fault(faults.swap_remove(next));
            }
        }
        self.wait_for_load();
    }

    /// Stops the callers and returns their lines.
    ///
    /// # Panics
    /// If a caller hangs, or has panicked.
    fn finish(&mut self, lines: &Receiver<(usize, Vec<Line>)>) -> Vec<Vec<Line>> {
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
            assert_eq!((begun, ended), (lines.len() as u64, lines.len() as u64), "each call must end once");
        }
        self.count_events();
        books
    }

    /// Returns the events around a call, for the report of a mismatch.
    fn around(&self, span: [u32; 2]) -> String {
        let near = |time: u128| time + 1_500 > span[0].into() && time < u128::from(span[1]) + 500;
        let times = self.occurred.times.iter().filter(|(time, _)| near(*time));
        times.map(|(time, text)| format!("\n    {time} ms: {text}")).collect()
    }
}

/// Executes one run and checks its outcome.
fn run(transport: &str, windows: Windows, mix: Mix, seed: u64, span: Duration) {
    let (mut run, peer) = Run::start(transport, windows, seed);
    let lines = run.call(&peer, mix);
    // Printed first, so that the seed is known even if the run does not reach its summary.
    eprintln!("ledger: seed={seed:#x} transport={transport} windows={} begins", windows.name());
    run.faults(span);
    let books = run.finish(&lines);
    assert_all_released(&run.node, &peer);
    // After the server has ended, there are no late executions.
    run.server.kill();
    let (totals, mismatches) = compare(&books, &mut run.log);
    let windows_name = windows.name();
    let count = mismatches.len();
    eprintln!(
        "ledger: seed={seed:#x} transport={transport} windows={windows_name} {totals} {} mismatches={count}",
        run.occurred
    );
    for mismatch in mismatches.iter().take(PRINTED) {
        eprintln!("ledger: mismatch: {mismatch}{}", run.around(mismatch.line.span));
    }
    assert_eq!(count, 0, "some outcomes do not match the log");
    let Occurred { kills, stops, cuts, downs, resumed, .. } = run.occurred;
    assert!(kills >= 2 && stops >= 2, "the server must be killed and stopped");
    assert!(downs >= kills, "each death must end a session");
    assert!(totals.maybe_down > 0, "a death must meet calls in flight");
    assert!(totals.replies > 0 && totals.yes > 0 && totals.no > 0, "all kinds of ends must occur");
    assert!(
        transport == "shm" || (cuts > 0 && resumed > 0),
        "the connection must break, and a session must resume"
    );
    let no_room: u64 = run.callers.iter().map(|caller| caller.no_room.load(Ordering::Relaxed)).sum();
    assert!(windows == Windows::Wide || no_room > 0, "the windows must be full");
}

/// Executes runs over one transport until the time has passed.
fn ledger(transport: &str) {
    let _shared = shared_run();
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
        // Crossed calls run only in a soak: if a session ends while a crossed call waits to be sent again, the rules are broken, rarely.
        // `again.rs` tests that case alone.
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

/// Shows: calls.ends-maybe, calls.executed
#[test]
fn outcomes_of_calls_over_shared_memory_match_the_log() {
    ledger("shm");
}

/// Shows: calls.ends-maybe, calls.executed
#[test]
fn outcomes_of_calls_over_tcp_match_the_log() {
    ledger("tcp");
}

/// Shows: operations.trust-resume
#[test]
fn outcomes_of_calls_over_tls_match_the_log() {
    ledger("tls");
}

//! A program that uses Pronto and coschedules itself: it is raised because its peer has messages, which the headers of the peer say.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pronto::{Message, Node, Peer, Pressure, WaitPolicy};
use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::group::Members;
use pronto_coschedule::own::OwnMessages;
use pronto_coschedule::service::running;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::status::{ProcessStatus, Status};
use pronto_coschedule::{Coscheduler, Service};
use pronto_expedite::schedule;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The address and the folder of a child process.
const LISTEN: &str = "PRONTO_OWN_LISTEN";
const STATE: &str = "PRONTO_OWN_STATE";

#[derive(Message, Debug)]
#[message(name = "own.next", reply = Next)]
struct Next {
    number: u64,
}

/// The program, in a process of its own.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Program {
    /// Starts the program; returns its address, too.
    fn start(listen: &str, state: &Path) -> (Self, String) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_program", "--nocapture", "--test-threads=1"])
            .env(LISTEN, listen)
            .env(STATE, state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut program = Self(child.unwrap());
        let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.ok()?.strip_prefix("@listening ")?.to_owned()));
        (program, address.expect("the program listens"))
    }

    fn nice(&self) -> i32 {
        schedule::nice(self.0.id().cast_signed()).unwrap()
    }
}

fn settings(policy: Policy, state: PathBuf) -> Settings {
    Settings {
        policy,
        period: Duration::from_millis(2),
        past: Past::Fixed(Share::HALF),
        most: Weight::hundredths(200),
        sensor: Default::default(),
        actuator: Choice::Only(ActuatorKind::Nice),
        groups: vec![Group { name: "this program".to_owned(), members: Members::Own }],
        state,
    }
}

/// The program. The parent has no address for it, so this does nothing there.
#[test]
fn run_program() {
    let (Ok(listen), Ok(state)) = (std::env::var(LISTEN), std::env::var(STATE)) else { return };
    let node = Node::builder(1)
        .wait(WaitPolicy::Block)
        .listen(&listen)
        .carry_pressure()
        .handle_inline(|_, next: Next| Next { number: next.number + 1 })
        .start()
        .unwrap();
    println!("\n@listening {}", node.listening()[0]);
    let (mut service, _restored) = Service::begin(settings(Policy::Carried, state.into())).unwrap();
    loop {
        let local = u32::try_from(node.messages()).unwrap();
        let of_peers = node.take_pressure().messages();
        service.coscheduler().receive_own(OwnMessages { local, of_peers });
        assert_eq!(service.work(), Vec::<String>::new());
        node.set_pressure(Pressure::of(service.coscheduler().own_messages()));
        std::thread::park_timeout(service.pause());
    }
}

/// Held by each test, as one of them reads the sockets of this process.
static ALONE: Mutex<()> = Mutex::new(());

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pronto-own-{}-{name}", std::process::id()))
}

/// Returns whether this user may lower nice values.
fn may_lower_nice() -> bool {
    let lowered = std::thread::spawn(|| schedule::set_nice(schedule::CALLER, -1).is_ok()).join();
    let may = lowered.expect("no panic");
    if !may {
        pronto_skip::because("this user may not lower nice values");
    }
    may
}

/// Calls the program until `holds`.
fn call_until(peer: &Peer, condition: &str, mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a wait is limited by time, not by a number of attempts")]
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never: {condition}");
        assert_eq!(peer.call(&Next { number: 6 }).unwrap().number, 7);
    }
}

/// Returns the status that the program has written last.
fn status(state: &Path) -> Option<Status> {
    Some(running(state).into_iter().next()?.coscheduler)
}

/// The largest pressure that a header can have is forged by a node without any messages. It raises the program only up to its bound.
///
/// Shows: operations.coschedule-headers, operations.coschedule-forged
#[test]
fn pressure_in_headers_raises_the_addressed_process_up_to_its_bound() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_lower_nice() {
        return;
    }
    for (transport, listen) in
        [("shm", format!("shm:@pronto-own-{}", std::process::id())), ("tcp", "tcp:127.0.0.1:0".to_owned())]
    {
        let state = folder(transport);
        let (program, address) = Program::start(&listen, &state);
        let node =
            Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).carry_pressure().start().unwrap();
        let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
        call_until(&peer, "the program has a status", || status(&state).is_some());
        assert_eq!(program.nice(), 0, "{transport}: calls alone leave it");
        node.set_pressure(Pressure::MOST);
        call_until(&peer, "the program is raised", || program.nice() < 0);
        let mut shown: Option<ProcessStatus> = None;
        call_until(&peer, "the status shows it", || {
            // A weight of 200 hundredths is three nice values. 64 messages would be 420.
            assert!(program.nice() >= -3, "{transport}: {}", program.nice());
            shown = status(&state).and_then(|status| status.processes.into_iter().next());
            node.set_pressure(Pressure::MOST);
            shown.as_ref().is_some_and(|shown| shown.weight == 200)
        });
        let shown = shown.unwrap();
        assert_eq!(shown.pid, program.0.id());
        assert!(shown.carried > 20.0 && shown.carried <= 64.0, "{shown:?}");
        // With few calls on a busy machine, some periods have no pressure, so the weight falls again.
        call_until(&peer, "the program has the nice value of its largest weight", || {
            node.set_pressure(Pressure::MOST);
            program.nice() == -3
        });
        call_until(&peer, "the program is lowered", || {
            node.set_pressure(Pressure::NONE);
            program.nice() == 0
        });
        drop((peer, node));
        // A node that does not carry pressure has none in its headers, whatever its program sets.
        let node = Node::builder(3).wait(WaitPolicy::Block).peer(1, &address).start().unwrap();
        let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
        let ticks = status(&state).unwrap().ticks;
        call_until(&peer, "the program has sampled often", || {
            node.set_pressure(Pressure::MOST);
            assert_eq!(program.nice(), 0);
            status(&state).is_some_and(|status| status.ticks > ticks + 200)
        });
        drop(program);
        std::fs::remove_dir_all(&state).unwrap();
    }
}

/// Shows: operations.coschedule-headers
#[test]
fn messages_of_this_process_count_for_the_policies_that_count_sent_data() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (policy, local, counted, in_headers) in [
        (Policy::Carried, 9, 9.0, 9),
        (Policy::Predictive, 9, 9.0, 0),
        (Policy::Dynamic, 9, 0.0, 0),
        (Policy::Off, 9, 0.0, 0),
        (Policy::Carried, 0, 0.0, 0),
    ] {
        let state = folder(&format!("{policy}-{local}"));
        // No weight is set: the largest one is the ordinary one, so that this process keeps its own.
        let settings = Settings {
            most: Weight::ORDINARY,
            actuator: Choice::Only(ActuatorKind::Slice),
            ..settings(policy, state.clone())
        };
        let mut coscheduler = match Coscheduler::begin(settings) {
            Ok((coscheduler, _)) => coscheduler,
            Err(error) => {
                assert!(error.to_string().contains("slices"), "{error}");
                return pronto_skip::because("this kernel has no time slices of single threads");
            }
        };
        for _ in 0..8 {
            coscheduler.receive_own(OwnMessages { local, of_peers: 0 });
            coscheduler.receive_own(OwnMessages { local: 1.min(local), of_peers: 64 });
            coscheduler.tick();
        }
        let shown = coscheduler.status().processes.remove(0);
        assert_eq!((shown.pid, shown.weight), (std::process::id(), 100));
        assert_eq!(shown.frequency, counted, "{policy}");
        assert_eq!(shown.carried, if policy == Policy::Carried { 64.0 } else { 0.0 }, "{policy}");
        assert_eq!(coscheduler.own_messages(), in_headers, "{policy}");
        // Not repeated, so forgotten.
        for _ in 0..64 {
            coscheduler.tick();
        }
        let shown = coscheduler.status().processes.remove(0);
        assert!(shown.frequency < 0.001 && shown.carried < 0.001, "{shown:?}");
        assert_eq!(coscheduler.own_messages(), 0);
        drop(coscheduler);
        std::fs::remove_dir_all(&state).unwrap();
    }
}

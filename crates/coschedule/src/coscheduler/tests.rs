//! The coscheduler on real processes, which never read the data that the tests send them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto_expedite::schedule;
use pronto_sched_policy::policy::share::Share;

use super::*;
use crate::actuator::Choice;
use crate::process::Stat;
use crate::settings::Group;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A process that never reads its connection, and the other end.
fn reader() -> (Killed, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(OwnedFd::from(theirs)).spawn();
    (Killed(child.unwrap()), ours)
}

fn settings(name: &str, policy: Policy, pids: &[u32]) -> Settings {
    let folder = std::env::temp_dir().join(format!("pronto-coschedule-{}-{name}", std::process::id()));
    let group = |pid: &u32| Group { name: format!("g{pid}"), members: Members::Family(*pid) };
    Settings {
        policy,
        period: Settings::PERIOD,
        past: Past::Fixed(Share::HALF),
        most: Settings::MOST,
        sensor: Default::default(),
        actuator: Choice::Only(ActuatorKind::Nice),
        groups: pids.iter().map(group).collect(),
        state: folder,
    }
}

/// Begins, unless this user may not lower nice values.
fn begin(settings: Settings) -> Option<Coscheduler> {
    match Coscheduler::begin(settings) {
        Ok((coscheduler, _)) => Some(coscheduler),
        Err(StartError::Actuator(ActuateError::NicePermission)) => {
            pronto_skip::because("this user may not lower nice values");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn remove(settings: &Settings) {
    std::fs::remove_dir_all(&settings.state).unwrap();
}

/// Lets other processes run for a millisecond.
fn pause() {
    poll(&mut [], PollTimeout::from(1_u8)).unwrap();
}

/// Waits until `holds`, a millisecond between two attempts.
fn until(mut holds: impl FnMut() -> bool) {
    let mut tries = 0;
    while !holds() {
        tries += 1;
        assert!(tries < 30_000, "never");
        pause();
    }
}

fn nice(pid: u32) -> i32 {
    schedule::nice(pid.cast_signed()).unwrap()
}

/// Shows: operations.coschedule-bound
#[test]
fn a_full_queue_raises_its_process_up_to_the_bound_and_an_empty_one_lowers_it() {
    let (child, mut ours) = reader();
    let pid = child.0.id();
    let settings = Settings { most: Weight::hundredths(200), ..settings("bound", Policy::Dynamic, &[pid]) };
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!((nice(pid), coscheduler.status().processes[0].weight), (0, 100));
    // It floods its own queue: the weight is bounded, so n local tasks keep n / (n + 2) of a CPU.
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[1; 1 << 16]).is_ok() {}
    // Data may take a moment, even over the loopback device.
    while coscheduler.status().with_received < 20 {
        coscheduler.tick();
        assert!(coscheduler.status().processes[0].weight <= 200);
    }
    assert_eq!((nice(pid), coscheduler.status().processes[0].weight), (-3, 200));
    let status = coscheduler.status();
    assert!(status.changes >= 1, "{status:?}");
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 1, gone: 0, left: 0, refused: 0 });
    assert_eq!(nice(pid), 0);
    remove(&settings);
}

/// Shows: operations.coschedule-dyn
#[test]
fn sent_data_count_for_pred_and_not_for_dyn() {
    // The peer is this process, which does not read: data stay in the send queue of the child.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_ours, _) = listener.accept().unwrap();
    let child = Command::new("cat").arg("/dev/zero").stdout(OwnedFd::from(theirs)).spawn();
    let child = Killed(child.unwrap());
    let pid = child.0.id();
    for (policy, raised) in [(Policy::Predictive, true), (Policy::Dynamic, false)] {
        let settings = settings(&format!("sent-{policy}"), policy, &[pid]);
        let Some(mut coscheduler) = begin(settings.clone()) else { return };
        // Until the queues are full.
        let mut ticks = 0;
        loop {
            coscheduler.tick();
            ticks += 1;
            let status = coscheduler.status();
            if status.with_sent > 20 {
                assert_eq!(nice(pid) < 0, raised, "{status:?}");
                break;
            }
            assert!(ticks < 30_000, "the child sends nothing: {status:?}");
            pause();
        }
        drop(coscheduler);
        assert_eq!(nice(pid), 0, "dropping restores");
        remove(&settings);
    }
}

/// Shows: operations.coschedule-restored
#[test]
fn a_killed_coscheduler_is_cleaned_up_by_the_next_one() {
    let (child, _ours) = reader();
    let pid = child.0.id();
    schedule::set_nice(pid.cast_signed(), 5).unwrap();
    let settings = settings("killed", Policy::Static, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    assert_eq!(nice(pid), -1);
    // As if it were killed: its lock ends, and nothing is restored. Its number was another one.
    let others = settings.state.join("coschedule-1.journal");
    std::fs::rename(journal::own(&settings.state), &others).unwrap();
    coscheduler.journal = Journal::open(&settings.state.join("none")).unwrap().0;
    core::mem::forget(coscheduler);
    let (coscheduler, restored) =
        Coscheduler::begin(Settings { policy: Policy::Off, ..settings.clone() }).unwrap();
    assert_eq!(restored, Restored { restored: 1, gone: 0, left: 0, refused: 0 });
    assert_eq!(nice(pid), 5);
    drop(coscheduler);
    remove(&settings);
}

/// Shows: operations.coschedule-left
#[test]
fn values_of_somebody_else_are_left() {
    let (child, _ours) = reader();
    let pid = child.0.id();
    let settings = settings("left", Policy::Static, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    assert_eq!(nice(pid), -6);
    schedule::set_nice(pid.cast_signed(), 10).unwrap();
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 0, gone: 0, left: 1, refused: 0 });
    assert_eq!(nice(pid), 10);
    remove(&settings);
}

/// Shows: operations.coschedule-inherited
#[test]
fn children_of_a_raised_process_do_not_keep_the_weight() {
    if !pronto_expedite::process::has_children_lists() {
        return pronto_skip::because("the kernel does not list the children of processes");
    }
    let shell = Command::new("sh").args(["-c", "read go; sleep 1000 & wait"]).stdin(Stdio::piped()).spawn();
    let mut shell = Killed(shell.unwrap());
    let pid = shell.0.id();
    let settings = settings("children", Policy::Static, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    assert_eq!(nice(pid), -6);
    writeln!(shell.0.stdin.take().unwrap(), "go").unwrap();
    let mut tries = 0;
    let sleeper = loop {
        if let Some(sleeper) = pronto_expedite::process::descendants(pid).first() {
            break *sleeper;
        }
        tries += 1;
        assert!(tries < 30_000, "the shell has started nothing");
        pause();
    };
    assert_eq!(nice(sleeper), -6, "inherited");
    let restored = coscheduler.end().unwrap();
    assert_eq!((nice(pid), nice(sleeper), restored.restored), (0, 0, 2), "{restored:?}");
    schedule::set_nice(sleeper.cast_signed(), 0).unwrap();
    kill(Pid::from_raw(sleeper.cast_signed()), Signal::SIGKILL).unwrap();
    remove(&settings);
}

#[test]
fn reports_of_a_peer_raise_a_process_with_empty_queues_and_are_forgotten() {
    let (child, ours) = reader();
    let pid = child.0.id();
    let settings = settings("carried", Policy::Carried, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    assert_eq!(coscheduler.reports(), [], "it is quiet");
    let connection =
        Connection { protocol: 6, local: ours.peer_addr().unwrap(), remote: ours.local_addr().unwrap() };
    // A forged report is worth no more than full queues.
    for _ in 0..20 {
        coscheduler.receive(2, [(connection, Level::MOST)]);
        coscheduler.tick();
        assert!(coscheduler.status().processes[0].weight <= 400);
    }
    assert_eq!(nice(pid), -6);
    for _ in 0..100 {
        coscheduler.tick();
    }
    assert_eq!(nice(pid), 0, "{:?}", coscheduler.status());
    drop(coscheduler);
    remove(&settings);
}

/// Periods of 100 ms in a day.
const DAY: usize = 24 * 3_600 * 10;

/// A process is raised and lowered again and again: weights, the journal and the state of the coscheduler are those of the first time.
#[test]
fn a_day_of_changes_leaves_no_drift() {
    const RAISED: usize = 20;
    const LOWERED: usize = 100;
    let (child, ours) = reader();
    let pid = child.0.id();
    let settings = settings("day", Policy::Carried, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    let connection =
        Connection { protocol: 6, local: ours.peer_addr().unwrap(), remote: ours.local_addr().unwrap() };
    let files = || {
        let lengths = std::fs::read_dir(&settings.state).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name(), entry.metadata().unwrap().len())
        });
        lengths.collect::<BTreeMap<_, _>>()
    };
    let mut first = None;
    for round in 0..DAY / (RAISED + LOWERED) {
        let mut weights = Vec::with_capacity(RAISED + LOWERED);
        let mut highest = 0;
        for period in 0..RAISED + LOWERED {
            if period < RAISED {
                coscheduler.receive(2, [(connection, Level::MOST)]);
            }
            assert_eq!(coscheduler.tick(), Vec::<String>::new());
            let [process] = &*coscheduler.status().processes else { panic!("there is one process") };
            weights.push(process.weight);
            highest = highest.min(nice(pid));
        }
        assert_eq!((highest, nice(pid)), (-6, 0), "round {round}");
        let seen = (weights, files());
        assert_eq!(&seen, first.get_or_insert_with(|| seen.clone()), "round {round}");
    }
    let changes = coscheduler.status().changes;
    assert_eq!(changes % (DAY / (RAISED + LOWERED)) as u64, 0, "{changes} changes, as many in each round");
    drop(coscheduler);
    assert_eq!(nice(pid), 0);
    remove(&settings);
}

#[test]
fn a_process_that_communicates_is_reported_as_its_peer_sees_it() {
    let (child, mut ours) = reader();
    let settings = settings("reports", Policy::Carried, &[child.0.id()]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    ours.write_all(&[1; 8_192]).unwrap();
    // Data may take a moment, even over the loopback device.
    while coscheduler.status().processes.first().is_none_or(|process| process.frequency < 2.0) {
        coscheduler.tick();
    }
    let expected =
        Connection { protocol: 6, local: ours.local_addr().unwrap(), remote: ours.peer_addr().unwrap() };
    let reports = coscheduler.reports();
    assert_eq!(reports.iter().map(|(connection, _)| *connection).collect::<Vec<_>>(), [expected]);
    assert!(reports[0].1 >= Level::packets(2));
    drop(coscheduler);
    remove(&settings);
}

#[test]
fn a_group_without_control_group_and_a_second_coscheduler_are_refused() {
    let (child, _ours) = reader();
    let slices = Choice::Only(ActuatorKind::Slice);
    let settings = Settings { actuator: slices, ..settings("refused", Policy::Predictive, &[child.0.id()]) };
    let groups = Settings { actuator: Choice::Only(ActuatorKind::ControlGroup), ..settings.clone() };
    let error = Coscheduler::begin(groups).unwrap_err();
    assert!(matches!(error, StartError::Actuator(ActuateError::NeedsControlGroup)), "{error}");
    let (first, _) = Coscheduler::begin(settings.clone()).unwrap();
    let error = Coscheduler::begin(settings.clone()).unwrap_err();
    assert!(matches!(error, StartError::Journal(JournalError::InUse(_))), "{error}");
    drop(first);
    remove(&settings);
}

/// Shows: operations.coschedule-taken
#[test]
fn a_process_that_another_coscheduler_has_changed_is_left_out() {
    let (child, _ours) = reader();
    let pid = child.0.id();
    let settings = settings("taken", Policy::Static, &[pid]);
    let Some(mut first) = begin(settings.clone()) else { return };
    first.tick();
    assert_eq!(nice(pid), -6);
    // The journal of this process would be the same one.
    std::fs::rename(journal::own(&settings.state), settings.state.join("coschedule-1.journal")).unwrap();
    let (mut second, _) = Coscheduler::begin(settings.clone()).unwrap();
    let problems = second.tick();
    assert!(problems.len() == 1 && problems[0].contains("another coscheduler"), "{problems:?}");
    assert_eq!(second.tick(), Vec::<String>::new(), "reported once");
    assert_eq!(second.end().unwrap(), Restored::default());
    assert_eq!(nice(pid), -6);
    first.end().unwrap();
    assert_eq!(nice(pid), 0);
    remove(&settings);
}

#[test]
fn a_process_that_ends_after_it_was_sampled_is_forgotten() {
    let (mut child, mut ours) = reader();
    let pid = child.0.id();
    let settings = settings("ends", Policy::Predictive, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    ours.write_all(&[1; 60_000]).unwrap();
    while coscheduler.status().processes.first().is_none_or(|process| process.weight == 100) {
        assert_eq!(coscheduler.tick(), Vec::<String>::new());
    }
    // Its sockets are sampled once more, and there is a weight to set.
    coscheduler.processes.get_mut(&pid).unwrap().weight = Weight::ORDINARY;
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!(coscheduler.end().unwrap(), Restored::default(), "it was forgotten");
    remove(&settings);
}

#[test]
fn a_process_with_the_number_of_an_ended_one_is_left() {
    let (child, _ours) = reader();
    let pid = child.0.id();
    let settings = settings("reused", Policy::Static, &[pid]);
    schedule::set_nice(pid.cast_signed(), 2).unwrap();
    let thread = Identity { id: pid, started: 1 };
    let before = journal::ThreadBefore { process: pid, thread, nice: 5, slice_ns: None };
    journal::make_folder(&settings.state).unwrap();
    let path = settings.state.join("coschedule-1.journal");
    Journal::open(&path).unwrap().0.write(&journal::Entry::Thread(before)).unwrap();
    let restored = actuator::restore_abandoned(&settings.state).unwrap();
    assert_eq!((restored, nice(pid)), (Restored { restored: 0, gone: 1, left: 0, refused: 0 }, 2));
    remove(&settings);
}

#[test]
fn a_child_of_a_raised_process_is_lowered_when_it_does_not_communicate() {
    if !pronto_expedite::process::has_children_lists() {
        return pronto_skip::because("the kernel does not list the children of processes");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    // The shell keeps the socket, and its child closes it.
    let script = "read go; sleep 1000 >&- & wait";
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(OwnedFd::from(theirs)).spawn();
    let mut shell = Killed(shell.unwrap());
    let pid = shell.0.id();
    let settings = settings("child", Policy::Dynamic, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    ours.write_all(&[1; 60_000]).unwrap();
    until(|| {
        coscheduler.tick();
        nice(pid) != 0
    });
    writeln!(shell.0.stdin.take().unwrap(), "go").unwrap();
    let mut children = Vec::new();
    until(|| {
        children = pronto_expedite::process::descendants(pid);
        !children.is_empty()
    });
    let sleeper = children[0];
    until(|| {
        coscheduler.tick();
        nice(sleeper) == 0
    });
    assert!(nice(pid) < 0, "the parent still communicates");
    drop(coscheduler);
    kill(Pid::from_raw(sleeper.cast_signed()), Signal::SIGKILL).unwrap();
    remove(&settings);
}

/// A process makes itself the child of another one, as a daemon does.
///
/// Shows: operations.coschedule-inherited
#[test]
fn a_process_whose_parent_has_ended_does_not_keep_the_weight() {
    if !pronto_expedite::process::has_children_lists() {
        return pronto_skip::because("the kernel does not list the children of processes");
    }
    let name = format!("sh-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    std::fs::copy("/bin/sh", &path).unwrap();
    let script = "read go; (while :; do sleep 1000; done) & echo $!";
    let mut shell = Command::new(&path);
    let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut shell = Killed(shell.unwrap());
    std::fs::remove_file(path).unwrap();
    let mut settings = settings("orphan", Policy::Static, &[]);
    settings.groups = vec![Group { name: "job".into(), members: Members::Named(name) }];
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    let pid = shell.0.id();
    until(|| {
        coscheduler.tick();
        nice(pid) == -6
    });
    writeln!(shell.0.stdin.take().unwrap(), "go").unwrap();
    let mut line = String::new();
    BufReader::new(shell.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let orphan: u32 = line.trim().parse().unwrap();
    shell.0.wait().unwrap();
    let mut sleepers = Vec::new();
    until(|| {
        sleepers = pronto_expedite::process::descendants(orphan);
        !sleepers.is_empty()
    });
    assert_eq!((nice(orphan), nice(sleepers[0])), (-6, -6), "inherited");
    until(|| {
        coscheduler.tick();
        coscheduler.status().processes.len() == 2
    });
    assert_eq!((nice(orphan), nice(sleepers[0])), (-6, -6), "not more than the weight");
    let restored = coscheduler.end().unwrap();
    assert_eq!((nice(orphan), nice(sleepers[0])), (0, 0), "{restored:?}");
    for pid in [orphan, sleepers[0]] {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    }
    remove(&settings);
}

/// Fills or empties the queue of a process, and waits until its nice value follows.
fn follow(coscheduler: &mut Coscheduler, pid: u32, connection: Option<Connection>, expected: i32) {
    until(|| {
        if let Some(connection) = connection {
            coscheduler.receive(2, [(connection, Level::MOST)]);
        }
        coscheduler.tick();
        nice(pid) == expected
    });
}

/// Shows: operations.coschedule-own
#[test]
fn a_value_that_somebody_sets_meanwhile_is_the_one_that_is_restored() {
    let (child, ours) = reader();
    let pid = child.0.id();
    let settings = settings("meanwhile", Policy::Carried, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    let connection =
        Connection { protocol: 6, local: ours.peer_addr().unwrap(), remote: ours.local_addr().unwrap() };
    follow(&mut coscheduler, pid, Some(connection), -6);
    follow(&mut coscheduler, pid, None, 0);
    schedule::set_nice(pid.cast_signed(), 5).unwrap();
    follow(&mut coscheduler, pid, Some(connection), -1);
    follow(&mut coscheduler, pid, None, 5);
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 1, ..Restored::default() });
    assert_eq!(nice(pid), 5);
    remove(&settings);
}

#[test]
fn a_thread_that_is_real_time_for_a_while_is_lowered_nevertheless() {
    let (child, ours) = reader();
    let pid = child.0.id();
    let actuator = Choice::Only(ActuatorKind::NiceAndSlice);
    let settings = Settings { actuator, ..settings("real-time", Policy::Carried, &[pid]) };
    let mut coscheduler = match Coscheduler::begin(settings.clone()) {
        Ok((coscheduler, _)) => coscheduler,
        Err(StartError::Actuator(ActuateError::NicePermission | ActuateError::NoSlices)) => {
            return pronto_skip::because("this user may not lower nice values, or the kernel has no slices");
        }
        Err(error) => panic!("{error}"),
    };
    let slice = || schedule::slice(pid.cast_signed()).unwrap();
    let before = slice();
    let connection =
        Connection { protocol: 6, local: ours.peer_addr().unwrap(), remote: ours.local_addr().unwrap() };
    follow(&mut coscheduler, pid, Some(connection), -6);
    if schedule::schedule(pid.cast_signed(), schedule::Class::Fifo(1)).is_err() {
        return pronto_skip::because("this user may not use real-time classes");
    }
    follow(&mut coscheduler, pid, None, 0);
    assert_eq!(schedule::policy(pid.cast_signed()), Ok(1), "its class is its own");
    // Each scan tries to give it its slice, too.
    for _ in 0..3 {
        coscheduler.last_scan = None;
        coscheduler.tick();
    }
    schedule::schedule(pid.cast_signed(), schedule::Class::Normal).unwrap();
    coscheduler.last_scan = None;
    coscheduler.tick();
    assert_eq!((nice(pid), slice()), (0, before));
    follow(&mut coscheduler, pid, Some(connection), -6);
    assert!(slice() < before);
    coscheduler.end().unwrap();
    assert_eq!((nice(pid), slice()), (0, before));
    remove(&settings);
}

#[test]
fn a_process_that_two_coschedulers_claim_is_left_and_claimed_again() {
    let (child, mut ours) = reader();
    let pid = child.0.id();
    let settings = settings("claimed", Policy::Dynamic, &[pid]);
    let Some(mut coscheduler) = begin(settings.clone()) else { return };
    coscheduler.tick();
    // The other one has read the same values, and has written its line first.
    let thread = Stat::of(pid).unwrap().identity;
    let before = journal::ThreadBefore { process: pid, thread, nice: 0, slice_ns: None };
    let (mut other, _) = Journal::open(&settings.state.join("coschedule-1.journal")).unwrap();
    ours.write_all(&[1; 60_000]).unwrap();
    let mut problems = Vec::new();
    until(|| {
        // Every scan would leave the process out.
        coscheduler.last_scan = Some(now());
        other.write(&journal::Entry::Thread(before)).unwrap();
        problems = coscheduler.tick();
        !problems.is_empty()
    });
    assert!(problems[0].contains("another coscheduler"), "{problems:?}");
    assert_eq!((nice(pid), coscheduler.status().processes[0].is_refused), (0, true));
    other.write(&journal::Entry::Released(thread)).unwrap();
    until(|| {
        assert_eq!(coscheduler.tick(), Vec::<String>::new());
        nice(pid) < 0
    });
    assert!(!coscheduler.status().processes[0].is_refused);
    drop(coscheduler);
    assert_eq!(nice(pid), 0);
    remove(&settings);
}

#[test]
fn slices_are_shortened_by_the_weight_and_restored() {
    let (child, _ours) = reader();
    let pid = child.0.id();
    let slice = || schedule::slice(pid.cast_signed()).unwrap();
    let before = slice();
    let actuator = Choice::Only(ActuatorKind::Slice);
    let settings = Settings { actuator, ..settings("slices", Policy::Static, &[pid]) };
    let mut coscheduler = match Coscheduler::begin(settings.clone()) {
        Ok((coscheduler, _)) => coscheduler,
        Err(StartError::Actuator(ActuateError::NoSlices)) => {
            return pronto_skip::because("this kernel has no time slices of single threads");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!((slice(), nice(pid)), ((before / 4).max(Duration::from_micros(100)), 0));
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 1, gone: 0, left: 0, refused: 0 });
    assert_eq!(slice(), before);
    remove(&settings);
}

#[test]
fn automatic_p_follows_the_waits_of_a_process() {
    // Its main thread sleeps until each child has ended.
    let child = Command::new("sh").args(["-c", "while :; do /bin/true; done"]).spawn();
    let child = Killed(child.unwrap());
    let pid = child.0.id();
    if Stat::of(pid).unwrap().identity.waiting().is_err() {
        return pronto_skip::because("the kernel does not account for waits (CONFIG_SCHED_INFO)");
    }
    let actuator = Choice::Only(ActuatorKind::Slice);
    let settings = Settings { past: Past::Auto, actuator, ..settings("auto", Policy::Predictive, &[pid]) };
    let mut coscheduler = match Coscheduler::begin(settings.clone()) {
        Ok((coscheduler, _)) => coscheduler,
        Err(StartError::Actuator(ActuateError::NoSlices)) => {
            return pronto_skip::because("this kernel has no time slices of single threads");
        }
        Err(error) => panic!("{error}"),
    };
    // An interval with enough waits begins a trial of another P.
    until(|| {
        coscheduler.tick();
        coscheduler.processes.get(&pid).is_some_and(|process| process.auto != Auto::NEW)
    });
    drop(coscheduler);
    remove(&settings);
}

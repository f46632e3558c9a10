//! The coscheduler on a stock kernel: control groups of version 2, network namespaces, and the share that local tasks keep.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::poll::{PollTimeout, poll};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::unistd::Pid;
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::{ActuatorKind, Choice, Restored, restore_abandoned};
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::Sensor;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Killed {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

fn state(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pronto-lab-{name}-{}", std::process::id()))
}

fn settings(name: &str, policy: Policy, actuator: ActuatorKind, members: Members) -> Settings {
    Settings {
        policy,
        period: Settings::PERIOD,
        past: Past::Fixed(Settings::PAST),
        most: Settings::MOST,
        actuator: Choice::Only(actuator),
        groups: vec![Group { name: name.into(), members }],
        state: state(name),
    }
}

/// Makes a control group with a weight.
fn control_group(name: &str) -> PathBuf {
    let all = Path::new("/sys/fs/cgroup");
    fs::write(all.join("cgroup.subtree_control"), "+cpu").unwrap();
    let folder = all.join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn idle() -> Killed {
    Killed::start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()))
}

/// Shows: operations.coschedule-cgroup
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_weight_of_a_control_group_is_set_and_restored() {
    let folder = control_group("pronto-job");
    let weight = || fs::read_to_string(folder.join("cpu.weight")).unwrap().trim().to_owned();
    let child = idle();
    fs::write(folder.join("cgroup.procs"), child.pid().to_string()).unwrap();
    fs::write(folder.join("cpu.weight"), "50").unwrap();
    let members = Members::ControlGroup(folder.clone());
    let settings = settings("group", Policy::Static, ActuatorKind::ControlGroup, members);
    let (mut coscheduler, _) = Coscheduler::begin(settings.clone()).unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!(weight(), "200", "four times the weight before");
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 1, gone: 0, left: 0 });
    assert_eq!(weight(), "50");
    // Its processes have ended: the group is ordinary again.
    let (mut coscheduler, _) = Coscheduler::begin(settings.clone()).unwrap();
    coscheduler.tick();
    assert_eq!(weight(), "200");
    drop(child);
    while weight() != "50" {
        coscheduler.tick();
        poll(&mut [], PollTimeout::from(10_u8)).unwrap();
    }
    // One that is killed restores nothing; its journal does. Another process has its number then.
    fs::write(folder.join("cpu.weight"), "200").unwrap();
    let own = fs::read_dir(&settings.state).unwrap().next().unwrap().unwrap().path();
    fs::copy(own, settings.state.join("coschedule-1.journal")).unwrap();
    assert_eq!(restore_abandoned(&settings.state).unwrap(), Restored { restored: 1, gone: 0, left: 0 });
    assert_eq!(weight(), "50");
    drop(coscheduler);
    fs::remove_dir_all(&settings.state).unwrap();
    fs::remove_dir(&folder).unwrap();
}

/// Shows: operations.coschedule-namespaces
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn queues_in_another_network_namespace_are_read() {
    assert!(Command::new("ip").args(["netns", "add", "pronto-other"]).status().unwrap().success());
    let child = std::thread::spawn(|| {
        setns(File::open("/run/netns/pronto-other").unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = OwnedFd::from(listener.accept().unwrap().0);
        ours.write_all(&[1; 5_000]).unwrap();
        (Killed::start(Command::new("cat").stdin(Stdio::piped()).stdout(theirs)), ours)
    });
    let (child, _ours) = child.join().unwrap();
    let mut sensor = Sensor::default();
    let pids = BTreeSet::from([child.pid(), std::process::id()]);
    assert!(sensor.scan(&pids).is_empty());
    while sensor.queues(child.pid()).first().is_none_or(|queue| queue.received.bytes < 5_000) {
        sensor.sample().unwrap();
    }
    drop(child);
    assert!(Command::new("ip").args(["netns", "delete", "pronto-other"]).status().unwrap().success());
}

/// Returns the CPU time of a process, in nanoseconds.
fn cpu_ns(pid: u32) -> u64 {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    schedstat.split(' ').next().unwrap().parse().unwrap()
}

/// A process that computes on CPU 0.
fn computing() -> Killed {
    let child = Killed::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let mut cpus = CpuSet::new();
    cpus.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(child.pid().cast_signed()), &cpus).unwrap();
    child
}

/// Shows: operations.coschedule-bound
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn local_tasks_keep_their_bounded_share() {
    // The largest weight, as of a process that floods its queues: one local task keeps at least a fifth of the CPU.
    let (favoured, local) = (computing(), computing());
    let settings = settings("share", Policy::Static, ActuatorKind::Nice, Members::Family(favoured.pid()));
    let (mut coscheduler, _) = Coscheduler::begin(settings.clone()).unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    let before = [favoured.pid(), local.pid()].map(cpu_ns);
    let mut used = [0; 2];
    while used.iter().sum::<u64>() < Duration::from_secs(3).as_nanos().try_into().unwrap() {
        poll(&mut [], PollTimeout::from(100_u8)).unwrap();
        let now = [favoured.pid(), local.pid()].map(cpu_ns);
        used = [now[0] - before[0], now[1] - before[1]];
    }
    // Nice -6 has 3.8 times the weight of nice 0.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = used[0] as f64 / used[1] as f64;
    assert!((3.0..=4.2).contains(&ratio), "{used:?}");
    coscheduler.end().unwrap();
    fs::remove_dir_all(&settings.state).unwrap();
}

//! The coscheduler on a stock kernel: control groups of version 2, network namespaces, and the share that local tasks keep.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::fcntl::OFlag;
use nix::poll::{PollTimeout, poll};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::unistd::Pid;
use pronto_bpf::OpenError;
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::{ActuatorKind, Choice, Restored, restore_abandoned};
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::{Choice as Means, SenseError, Sensor};
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::socket::Socket;
use pronto_sched_policy::policy::occupancy::Queue;

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

/// Returns the sensor by BPF, with the program for the running kernel.
fn bpf() -> Means {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    Means::Bpf(target.join("lab-bpf").join(release.trim()).join("queues/pronto_queues.bpf.o"))
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
        sensor: Means::SockDiag,
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
    assert_eq!(coscheduler.end().unwrap(), Restored { restored: 1, gone: 0, left: 0, refused: 0 });
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
    assert_eq!(
        restore_abandoned(&settings.state).unwrap(),
        Restored { restored: 1, gone: 0, left: 0, refused: 0 }
    );
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
    for means in [Means::SockDiag, bpf()] {
        let mut sensor = Sensor::new(&means).unwrap();
        let pids = BTreeSet::from([child.pid(), std::process::id()]);
        assert!(sensor.scan(&pids).is_empty());
        while sensor.queues(child.pid()).first().is_none_or(|queue| queue.received.bytes < 5_000) {
            sensor.sample().unwrap();
        }
    }
    drop(child);
    assert!(Command::new("ip").args(["netns", "delete", "pronto-other"]).status().unwrap().success());
}

/// Returns the inode of a socket of this process.
fn inode(socket: &impl AsRawFd) -> u64 {
    let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    link.to_str().unwrap().strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap().parse().unwrap()
}

/// Shows: operations.coschedule-bpf
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn both_sensors_see_the_same_queues_and_bpf_counts_messages() {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tcp = [(); 3].map(|()| {
        let ours = TcpStream::connect(("127.0.0.1", port)).unwrap();
        (ours, listener.accept().unwrap().0)
    });
    (&tcp[0].0).write_all(&[1; 3_000]).unwrap();
    let udp = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (stream, datagrams) = (UnixStream::pair().unwrap(), UnixDatagram::pair().unwrap());
    (&stream.0).write_all(&[1; 500]).unwrap();
    for _ in 0..3 {
        udp[0].send_to(&[2; 100], udp[1].local_addr().unwrap()).unwrap();
        datagrams.0.send(&[3; 50]).unwrap();
    }
    let own = std::process::id();
    let mut sensors = [Means::SockDiag, bpf()].map(|means| Sensor::new(&means).unwrap());
    for sensor in &mut sensors {
        assert!(sensor.scan(&[own].into()).is_empty());
        // Data may take a moment, even over the loopback device. sock_diag reports UDP and Unix sockets only with kernel modules of their own.
        let of = |sensor: &Sensor, inode| {
            let found = sensor.sockets(own).into_iter().find(|socket| socket.inode == inode);
            found.map(|socket| socket.occupancy.received.bytes)
        };
        while of(sensor, inode(&tcp[0].1)).unwrap() < 3_000
            || of(sensor, inode(&udp[1])).is_some_and(|bytes| bytes < 300)
        {
            sensor.sample().unwrap();
        }
        sensor.sample().unwrap();
    }
    // Other tests of this process have sockets, too.
    let mut inodes: Vec<u64> = tcp.iter().flat_map(|(ours, theirs)| [inode(ours), inode(theirs)]).collect();
    inodes.extend(udp.iter().map(inode));
    inodes.extend([inode(&stream.0), inode(&stream.1), inode(&datagrams.0), inode(&datagrams.1)]);
    let [diag, with_bpf] = sensors.map(|sensor| {
        let ours = |socket: &Socket| inodes.contains(&socket.inode);
        sensor.sockets(own).into_iter().filter(ours).collect::<Vec<_>>()
    });
    println!("sock_diag reports {} sockets, BPF {}", diag.len(), with_bpf.len());
    assert!(diag.len() >= 2 * tcp.len() && with_bpf.len() == inodes.len());
    for seen in &diag {
        let also = with_bpf.iter().find(|socket| socket.inode == seen.inode).unwrap();
        assert_eq!(seen.connection, also.connection);
        let bytes = |socket: &Socket| [socket.occupancy.received.bytes, socket.occupancy.sent.bytes];
        // sock_diag reports only the first of several datagrams of a Unix socket.
        if seen.inode != inode(&datagrams.1) {
            assert_eq!(bytes(seen), bytes(also), "{seen:?} {also:?}");
        }
        assert!(also.occupancy.received.messages >= seen.occupancy.received.messages, "{seen:?} {also:?}");
    }
    let received = |inode| with_bpf.iter().find(|socket| socket.inode == inode).unwrap().occupancy.received;
    assert_eq!(received(inode(&udp[1])).messages, 3);
    assert_eq!(received(inode(&datagrams.1)), Queue { bytes: 150, messages: 3 });
    assert_eq!(received(inode(&stream.1)).bytes, 500);
}

/// Shows: operations.coschedule-bpf
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn bpf_follows_queues_of_sockets_among_many_files() {
    let own = std::process::id();
    let mut sensor = Sensor::new(&bpf()).unwrap();
    let received = |sensor: &Sensor, inode: u64| {
        let found = sensor.sockets(own).into_iter().find(|socket| socket.inode == inode);
        found.map(|socket| socket.occupancy.received)
    };
    let _files: Vec<File> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    // Two descriptors of a socket, and one of its path, which is no socket.
    let _again = theirs.try_clone().unwrap();
    let path = std::env::temp_dir().join(format!("pronto-lab-socket-{own}"));
    let _bound = UnixDatagram::bind(&path).unwrap();
    let _named = File::options().read(true).custom_flags(OFlag::O_PATH.bits()).open(&path).unwrap();
    assert!(sensor.scan(&[own].into()).is_empty());
    assert_eq!(received(&sensor, inode(&theirs)), Some(Queue::default()));
    for round in 1..=3 {
        ours.send(&[0; 100]).unwrap();
        sensor.sample().unwrap();
        let expected = Queue { bytes: 100 * round, messages: round };
        assert_eq!(received(&sensor, inode(&theirs)), Some(expected));
    }
    for _ in 0..3 {
        theirs.recv(&mut [0; 100]).unwrap();
    }
    sensor.sample().unwrap();
    assert_eq!(received(&sensor, inode(&theirs)), Some(Queue::default()));
    // Made after the scan.
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    sensor.sample().unwrap();
    assert_eq!(received(&sensor, inode(&theirs)), None, "it has no data yet");
    ours.send(&[0; 100]).unwrap();
    sensor.sample().unwrap();
    assert_eq!(received(&sensor, inode(&theirs)), Some(Queue { bytes: 100, messages: 1 }));
    fs::remove_file(path).unwrap();
}

/// Shows: operations.coschedule-bpf
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_process_is_raised_by_queues_that_bpf_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let theirs = OwnedFd::from(listener.accept().unwrap().0);
    // It never reads its connection.
    let child = Killed::start(Command::new("cat").stdin(Stdio::piped()).stdout(theirs));
    let nice = || {
        let text = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        text.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let members = Members::Family(child.pid());
    let settings =
        Settings { sensor: bpf(), ..settings("bpf", Policy::Predictive, ActuatorKind::Nice, members) };
    let (mut coscheduler, _) = Coscheduler::begin(settings).unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!(nice(), 0);
    ours.write_all(&[1; 32 << 10]).unwrap();
    while nice() == 0 {
        assert_eq!(coscheduler.tick(), Vec::<String>::new());
    }
    let status = coscheduler.status();
    assert_eq!((status.sensor.as_str(), status.sockets), ("bpf", 1));
    assert!(nice() < 0 && status.with_received > 0);
    coscheduler.end().unwrap();
    assert_eq!(nice(), 0);
}

/// Shows: operations.coschedule-bpf
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn what_bpf_lacks_is_an_error_at_the_start() {
    let missing = Means::Bpf("/nowhere.bpf.o".into());
    assert!(matches!(Sensor::new(&missing), Err(SenseError::Open(OpenError::NoObject { .. }))));
    let other = Means::Bpf("/proc/self/exe".into());
    assert!(matches!(Sensor::new(&other), Err(SenseError::Open(_))));
    // A process that ends is no error.
    let mut sensor = Sensor::new(&bpf()).unwrap();
    let child = idle();
    let pids = BTreeSet::from([child.pid()]);
    assert!(sensor.scan(&pids).is_empty());
    drop(child);
    sensor.sample().unwrap();
    assert!(sensor.scan(&pids).is_empty() && sensor.is_empty());
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

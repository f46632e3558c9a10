//! The nodes of the lab: each has a device that supports verbs, and the links between them can be made slow and lossy.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit for a single reply, also on a busy host. A datagram without a reply by then is lost.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// Number of attempts of a client to connect until its server listens. One attempt takes tens of milliseconds.
const TRIES: usize = 500;
/// Number of attempts with a tool that may end without a message if packets are lost. Of 300 rounds with 5 % loss, three attempts of six
/// hung for ever, in the devices of the kernel; of 60 rounds about two of ten.
const SILENT_ENDS: usize = 8;
/// Time limit of an attempt, seconds. It takes a second or two, and more with retransmissions. The limit ends a hang.
const ATTEMPT_S: &str = "30";

const PORT: u16 = 4_711;

/// A line of the output of `lab-nodes`.
#[derive(Debug)]
struct Node {
    space: String,
    device: String,
    address: Ipv4Addr,
    gid: usize,
}

/// Nodes that are removed on drop.
#[derive(Debug)]
struct Nodes(Vec<Node>);

impl Nodes {
    fn make(count: usize) -> Self {
        let lines = run("lab-nodes", &[&count.to_string()]);
        let nodes = lines.lines().map(|line| {
            let [space, device, address, gid] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("not a node: {line}")
            };
            Node {
                space: space.to_owned(),
                device: device.to_owned(),
                address: address.parse().unwrap(),
                gid: gid.parse().unwrap(),
            }
        });
        Self(nodes.collect())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        run("lab-nodes", &["0"]);
    }
}

impl Node {
    /// Calls `work` in the node's network namespace.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.space)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                setns(space, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]).args(words);
        command
    }

    /// Sets the queueing discipline for packets that the node sends.
    fn shape(&self, discipline: &[&str]) {
        let add = ["tc", "qdisc", "replace", "dev", "eth0", "root"];
        checked(&mut self.command(&[&add, discipline].concat()));
    }

    /// Returns the number of packets that the discipline dropped.
    fn dropped(&self) -> usize {
        let text = checked(&mut self.command(&["tc", "-s", "qdisc", "show", "dev", "eth0"]));
        let number = text.split("(dropped ").nth(1).and_then(|rest| rest.split(',').next());
        number.unwrap_or_else(|| panic!("no drop count: {text}")).parse().unwrap()
    }

    fn datagrams(&self) -> UdpSocket {
        let socket = self.enter(|| UdpSocket::bind((self.address, PORT)).unwrap());
        socket.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
        socket
    }

    fn pingpong(&self, words: &[&str]) -> Command {
        let gid = self.gid.to_string();
        let mut command =
            self.command(&["timeout", ATTEMPT_S, "ibv_rc_pingpong", "-d", &self.device, "-g", &gid]);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn run(program: &str, words: &[&str]) -> String {
    checked(Command::new(program).args(words))
}

fn checked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a link delays in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the round-trip time of one datagram.
fn round_trip(a: &UdpSocket, b: &UdpSocket) -> Duration {
    let start = now();
    a.send_to(b"there", b.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 16];
    let (length, from) = b.recv_from(&mut bytes).unwrap();
    b.send_to(&bytes[..length], from).unwrap();
    let (length, _) = a.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"there");
    start.elapsed()
}

/// Returns the time for sending `length` bytes from one node to the other over TCP.
fn transfer(from: &Node, to: &Node, length: usize) -> Duration {
    let listener = to.enter(|| TcpListener::bind((to.address, PORT)).unwrap());
    let mut sender = from.enter(|| TcpStream::connect((to.address, PORT)).unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    let start = now();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![7; length]).unwrap());
        let mut bytes = Vec::new();
        receiver.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), length);
    });
    start.elapsed()
}

/// Runs `ibv_rc_pingpong` between two nodes and returns the client's output. The tool reports failures of the devices. If packets are
/// lost, it may also end without a message: it hangs in the devices or in its TCP exchange, or a signal ends it. Such a run is
/// repeated, up to `attempts` times.
fn pingpong(server: &Node, client: &Node, rounds: usize, attempts: usize) -> String {
    let mut silent = Vec::new();
    while silent.len() < attempts {
        match try_pingpong(server, client, rounds) {
            Ok(stdout) => return stdout,
            Err(end) => {
                println!("{end:?}");
                silent.push(end);
            }
        }
    }
    panic!("the tool ended without a message: {silent:#?}");
}

/// Runs `ibv_rc_pingpong` once. The error contains the outputs of client and server if neither reports a reason.
fn try_pingpong(server: &Node, client: &Node, rounds: usize) -> Result<String, [Output; 2]> {
    let rounds = rounds.to_string();
    let words = ["-n", &rounds, "-s", "64"];
    let mut serving: Child = server.pingpong(&words).spawn().unwrap();
    for _ in 0..TRIES {
        let called = client.pingpong(&words).arg(server.address.to_string()).output().unwrap();
        let refused = String::from_utf8_lossy(&called.stderr).contains("Couldn't connect");
        if refused && serving.try_wait().unwrap().is_none() {
            continue;
        }
        let answered = called.status.success();
        if !answered {
            // timeout(1) passes the signal on. The next server needs the port.
            let _ended = kill(Pid::from_raw(i32::try_from(serving.id()).unwrap()), Signal::SIGTERM);
        }
        let served = serving.wait_with_output().unwrap();
        if answered && served.status.success() {
            return Ok(String::from_utf8(called.stdout).unwrap());
        }
        let why = if answered { &served.stderr } else { &called.stderr };
        assert!(why.is_empty(), "the client {called:?}, the server {served:?}");
        return Err([called, served]);
    }
    let _ = serving.kill();
    panic!("the server does not listen: {:?}", serving.wait_with_output());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn every_node_has_an_active_device_whose_gid_is_its_address() {
    for count in [1, 2, 3, 5] {
        let nodes = Nodes::make(count);
        assert_eq!(nodes.0.len(), count);
        for Node { device, address, gid, .. } in &nodes.0 {
            let port = format!("/sys/class/infiniband/{device}/ports/1");
            let read = |name: String| fs::read_to_string(format!("{port}/{name}")).unwrap().trim().to_owned();
            assert_eq!(read("state".to_owned()), "4: ACTIVE");
            let [a, b, c, d] = address.octets();
            let wanted = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
            assert_eq!(read(format!("gids/{gid}")), wanted);
            assert_eq!(read(format!("gid_attrs/types/{gid}")), "RoCE v2");
        }
    }
    assert!(!fs::exists("/sys/class/infiniband/rxe0").unwrap(), "a device was not removed");
    assert!(!fs::exists("/run/netns/n0").unwrap(), "a namespace was not removed");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn every_node_reaches_every_other_by_ip_and_by_verbs() {
    let Nodes(nodes) = &Nodes::make(3);
    let sockets: Vec<_> = nodes.iter().map(Node::datagrams).collect();
    for (a, from) in sockets.iter().enumerate() {
        for (b, to) in sockets.iter().enumerate() {
            if a != b {
                round_trip(from, to);
                let stdout = pingpong(&nodes[a], &nodes[b], 20, 1);
                assert!(stdout.contains("20 iters in"), "{stdout}");
            }
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn tbf_limits_the_rate() {
    const LENGTH: usize = 512 * 1_024;
    let Nodes(nodes) = &Nodes::make(2);
    let free = transfer(&nodes[0], &nodes[1], LENGTH);
    nodes[0].shape(&["tbf", "rate", "2mbit", "burst", "32kb", "latency", "500ms"]);
    let limited = transfer(&nodes[0], &nodes[1], LENGTH);
    // The burst is sent immediately, and the packet in flight when the last byte arrives does not count.
    let least = Duration::from_secs_f64((LENGTH - 64 * 1_024) as f64 * 8.0 / 2e6);
    assert!(limited >= least, "{LENGTH} bytes took {limited:?}, at least {least:?} were expected");
    assert!(limited > free, "with the limit {limited:?}, without it {free:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn netem_delays() {
    let Nodes(nodes) = &Nodes::make(2);
    let (a, b) = (nodes[0].datagrams(), nodes[1].datagrams());
    let least = || (0..5).map(|_| round_trip(&a, &b)).min().unwrap();
    let free = least();
    nodes[0].shape(&["netem", "delay", "300ms"]);
    let delayed = least();
    assert!(delayed >= Duration::from_millis(300), "{delayed:?}");
    assert!(delayed > free, "with the delay {delayed:?}, without it {free:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn netem_loses() {
    const SENT: usize = 200;
    let Nodes(nodes) = &Nodes::make(2);
    let (a, b) = (nodes[0].datagrams(), nodes[1].datagrams());
    // So that no ARP request is among the lost packets.
    round_trip(&a, &b);
    nodes[0].shape(&["netem", "loss", "30%"]);
    for number in 0..SENT {
        a.send_to(&number.to_le_bytes(), b.local_addr().unwrap()).unwrap();
    }
    b.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut bytes = [0; 16];
    let arrived = core::iter::from_fn(|| b.recv(&mut bytes).ok()).take(SENT).count();
    let lost = SENT - arrived;
    assert!(lost > 0 && arrived > 0, "{arrived} of {SENT} arrived");
    assert!(nodes[0].dropped() >= lost, "{lost} were lost, netem dropped {}", nodes[0].dropped());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn verbs_work_over_a_lossy_link() {
    let Nodes(nodes) = &Nodes::make(2);
    nodes[0].shape(&["netem", "loss", "5%"]);
    nodes[1].shape(&["netem", "loss", "5%"]);
    let stdout = pingpong(&nodes[0], &nodes[1], 60, SILENT_ENDS);
    assert!(stdout.contains("60 iters in"), "{stdout}");
    let dropped = nodes[0].dropped() + nodes[1].dropped();
    assert!(dropped > 0, "nothing was lost");
}

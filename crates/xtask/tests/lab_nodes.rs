//! The nodes of the lab: each has a device that speaks verbs, and the links between them can be made slow and bad.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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

/// No single answer takes longer, also on a busy host; what does is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a client asks whether its server listens already; one try takes tens of milliseconds.
const TRIES: usize = 500;
/// How often a tool may end without a word where packets are lost. Of 300 rounds with one loss in twenty, three attempts of six hung
/// for good, in the devices that the kernel makes; of 60 rounds some two of ten.
const SILENT_ENDS: usize = 8;
/// An attempt takes a second or two, and more where losses are made up for. A hang is ended by then.
const ATTEMPT_S: &str = "30";

const PORT: u16 = 4_711;

/// One line of `lab-nodes`.
#[derive(Debug)]
struct Node {
    space: String,
    device: String,
    address: Ipv4Addr,
    gid: usize,
}

/// Nodes that go away with this.
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
    /// Does something in the node's network.
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

    /// Puts a queueing discipline on what the node sends.
    fn shape(&self, discipline: &[&str]) {
        let add = ["tc", "qdisc", "replace", "dev", "eth0", "root"];
        checked(&mut self.command(&[&add, discipline].concat()));
    }

    /// Packets that the discipline dropped.
    fn dropped(&self) -> usize {
        let text = checked(&mut self.command(&["tc", "-s", "qdisc", "show", "dev", "eth0"]));
        let number = text.split("(dropped ").nth(1).and_then(|rest| rest.split(',').next());
        number.unwrap_or_else(|| panic!("no count of drops: {text}")).parse().unwrap()
    }

    fn datagrams(&self) -> UdpSocket {
        let socket = self.enter(|| UdpSocket::bind((self.address, PORT)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
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

#[expect(clippy::disallowed_methods, reason = "what a link delays is real time")]
fn now() -> Instant {
    Instant::now()
}

/// The round trip of one datagram.
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

/// How long it takes to send so many bytes from one node to the other over TCP.
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

/// `ibv_rc_pingpong` between two nodes; returns what the client printed. What fails between the devices it says. Where packets are
/// lost it has also ended without a word: hung in the devices, or in what it exchanges over TCP first, or by a signal. That is tried
/// again, so many times in all.
fn pingpong(server: &Node, client: &Node, rounds: usize, attempts: usize) -> String {
    let mut silent = Vec::new();
    while silent.len() < attempts {
        match try_pingpong(server, client, rounds) {
            Ok(said) => return said,
            Err(end) => {
                println!("{end:?}");
                silent.push(end);
            }
        }
    }
    panic!("the tool ends without a word: {silent:#?}");
}

/// The same once. An error is how the client and the server ended if neither says why.
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
            // A signal that timeout(1) passes on: the next server wants the port.
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
                let said = pingpong(&nodes[a], &nodes[b], 20, 1);
                assert!(said.contains("20 iters in"), "{said}");
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
    // The burst goes at once, and the packet that is on its way when the last byte arrives counts for nothing.
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
    // So that no question for an address is among what is lost.
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
fn verbs_come_through_a_link_that_loses() {
    let Nodes(nodes) = &Nodes::make(2);
    nodes[0].shape(&["netem", "loss", "5%"]);
    nodes[1].shape(&["netem", "loss", "5%"]);
    let said = pingpong(&nodes[0], &nodes[1], 60, SILENT_ENDS);
    assert!(said.contains("60 iters in"), "{said}");
    let dropped = nodes[0].dropped() + nodes[1].dropped();
    assert!(dropped > 0, "nothing was lost");
}

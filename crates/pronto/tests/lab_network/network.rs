//! The network between the two nodes of the lab: how it disturbs packets, how it breaks connections, and what the kernel counted.

use core::net::Ipv4Addr;
use std::collections::HashMap;
use std::fs::{self, File};
use std::process::{Child, Command};

use nix::sched::{CloneFlags, setns};

use crate::rig::is_so_in_time;

/// The counters of netem itself.
const OF_NETEM: [&str; 2] = ["dropped", "requeues"];

/// The network namespace of a node.
#[derive(Debug)]
pub(crate) struct Space {
    name: String,
    pub(crate) address: Ipv4Addr,
}

impl Space {
    /// Calls `work` on a thread in the namespace. Threads that it starts are also in the namespace.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                setns(space, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Starts a program in the namespace.
    pub(crate) fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        self.enter(|| command.spawn())
    }

    fn run(&self, words: &str) -> String {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = self.enter(|| command.args(words).output()).unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the counters of this namespace's IP and TCP (`TcpRetransSegs`, `TcpExtTCPOFOQueue`, ...), and those of netem.
    fn counters(&self) -> HashMap<String, u64> {
        let mut counters = HashMap::new();
        for file in ["snmp", "netstat"] {
            // `/proc/net` is of the process, whose first thread is in another namespace.
            let text = self.enter(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap());
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.chunks_exact(2) {
                let (kind, names) = pair[0].split_once(": ").unwrap();
                let (_, values) = pair[1].split_once(": ").unwrap();
                let named = names.split(' ').zip(values.split(' '));
                // `TcpMaxConn` is -1.
                let named = named.filter_map(|(name, value)| Some((name, value.parse().ok()?)));
                counters.extend(named.map(|(name, value)| (format!("{kind}{name}"), value)));
            }
        }
        // `Sent 2658 bytes 9 pkt (dropped 2, overlimits 0 requeues 2)`
        let text = self.run("tc -s qdisc show dev eth0");
        let words: Vec<&str> = text.split([' ', '(', ')', ',']).collect();
        for name in OF_NETEM {
            let at = words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("{name}: {text}"));
            counters.insert(name.to_owned(), words[at + 1].parse().unwrap());
        }
        counters
    }
}

/// The two nodes and the network between them.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) spaces: [Space; 2],
    before: [HashMap<String, u64>; 2],
}

impl Network {
    pub(crate) fn new() -> Self {
        let nodes = fs::read_to_string("/run/lab/nodes").unwrap();
        let space = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            Space { name: words[0].to_owned(), address: words[2].parse().unwrap() }
        };
        let spaces: Vec<Space> = nodes.lines().map(space).collect();
        for space in &spaces {
            // netem must see packets as they would be on a wire, not the 64 KiB that TCP leaves to the device to divide.
            space.run("ip link set dev eth0 mtu 1500 gso_max_segs 1");
        }
        Self { spaces: spaces.try_into().unwrap(), before: Default::default() }
    }

    /// Disturbs the packets in both directions from now on, with options of tc-netem(8).
    pub(crate) fn disturb(&mut self, netem: &str) {
        // The second node first: in a partition, it answers what still arrives from the first one, and so its packets are lost too. The
        // first node dials if its link ends, but the second one may then have nothing to send.
        for (space, seed) in self.spaces.iter().zip([1, 2]).rev() {
            let former = space.run("tc qdisc show dev eth0 root");
            if former.contains("netem") {
                space.run("tc qdisc del dev eth0 root");
            }
            space.run(&format!("tc qdisc add dev eth0 root netem limit 1000 seed {seed} {netem}"));
        }
        self.before = self.spaces.each_ref().map(Space::counters);
        for before in &mut self.before {
            // netem is new, and has counted from zero.
            before.extend(OF_NETEM.map(|name| (name.to_owned(), 0)));
        }
    }

    /// Waits until the kernels of both nodes have noticed the present disturbance: until these counters have grown.
    pub(crate) fn wait_until_noticed(&self, counters: &[&str]) {
        let mut grown = Vec::new();
        let grow = || {
            let now = self.spaces.each_ref().map(Space::counters);
            let by = |counter: &str| {
                [0, 1].map(|node| now[node][counter].saturating_sub(self.before[node][counter]))
            };
            grown = counters.iter().map(|counter| (*counter, by(counter))).collect();
            grown.iter().all(|(_, by)| by.iter().all(|by| *by > 0))
        };
        let was_disturbed = is_so_in_time(grow);
        eprintln!("network: {grown:?}");
        assert!(was_disturbed, "the network was not disturbed: {grown:?}");
    }

    /// Breaks all TCP connections of the first node, as a firewall does that has lost its state. The packet that reports this to the
    /// second node may be lost as any other. Returns the number of connections: one, if the node closed the other one meanwhile.
    pub(crate) fn break_connections(&self) -> usize {
        let [first, second] = &self.spaces;
        first.run(&format!("ss --no-header --tcp --kill dst {}", second.address)).lines().count()
    }
}

//! Coscheduling by a daemon: a thread that runs the coscheduler, and exchanges frequencies with the daemons of other nodes.
//!
//! A daemon reports the frequencies of its processes to the node at the other end of each connection. It does not know which node has an
//! address until that node has reported one of its own connections; until then it reports to all nodes.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use pronto::rpc::Peer;
use pronto::{
    Builder, Config, CoscheduleConfig, CoscheduleGroup, Message, Node, NodeHost, NodeId, PastConfig, Payload,
};
use pronto_coschedule::actuator::Restored;
use pronto_coschedule::group::Members;
use pronto_coschedule::sensor::Choice as Sensor;
use pronto_coschedule::service::default_state;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_coschedule::socket::Connection;
use pronto_coschedule::{Service, check};
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::weight::Weight;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Frequencies of the processes of a node, by connection. Empty ones make a node known to the others.
#[derive(Debug, Message)]
#[message(name = "prontod.pressure")]
struct Pressure {
    reports: Vec<Report>,
}

/// The frequency of a process, for one of its connections.
#[derive(Clone, Copy, Debug, Payload)]
struct Report {
    /// Protocol number of IP.
    protocol: u8,
    /// Address of the receiver's process.
    to: EndPoint,
    /// Address of the sender's process.
    from: EndPoint,
    /// Frequency, in units of 2^-32 of a packet.
    level: u64,
}

/// An address; that of IPv4 is mapped.
#[derive(Clone, Copy, Debug, Payload)]
struct EndPoint {
    ip: [u8; 16],
    port: u16,
}

/// Largest number of reports in a message, which fits the smallest configured payload of a peer.
const PER_MESSAGE: usize = 256;

/// Messages of peers that wait for the coscheduler. Further ones are dropped: the next period brings others.
const QUEUE: usize = 256;

/// Periods after which a daemon without anything to report makes itself known again.
const GREETING: u64 = 100;

/// Periods after which a node is no longer taken for the place of an address, unless it reports a connection of it again.
const LIFE_OF_PLACE: u64 = 1_000;

/// Largest number of addresses whose nodes are remembered. Reports about others go to all nodes.
const PLACES: usize = 4_096;

/// Longest sleep, after which a stop is noticed.
const SLEEP: Duration = Duration::from_millis(100);

/// The part of coscheduling that has to exist before the node starts.
pub(crate) struct Prepared {
    settings: Settings,
    received: Receiver<(Peer<NodeHost>, Pressure)>,
}

/// The running thread.
pub(crate) struct Coscheduling {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Reads and checks the settings; `None` if the policy is `off`. Adds the handler of reports to the node.
pub(crate) fn prepare(config: &Config, builder: Builder) -> anyhow::Result<(Builder, Option<Prepared>)> {
    let Some(config) = &config.coschedule else { return Ok((builder, None)) };
    let settings = settings(config).context("coschedule")?;
    if settings.policy == Policy::Off {
        return Ok((builder, None));
    }
    if settings.groups.is_empty() {
        bail!(
            "coschedule: policy = \"{}\" needs groups, as [{{ name = \"job\", command = \"program\" }}]",
            settings.policy
        );
    }
    check(&settings).context("coschedule")?;
    let (sender, received) = sync_channel(QUEUE);
    let builder = if settings.policy == Policy::Carried { with_handler(builder, sender) } else { builder };
    Ok((builder, Some(Prepared { settings, received })))
}

fn with_handler(builder: Builder, sender: SyncSender<(Peer<NodeHost>, Pressure)>) -> Builder {
    builder.on(move |context, pressure: Pressure| {
        // Full: a later report replaces this one.
        let _dropped = sender.try_send((context.peer(), pressure));
    })
}

fn settings(config: &CoscheduleConfig) -> anyhow::Result<Settings> {
    let past = match &config.past {
        PastConfig::Number(number) => number.to_string().parse::<Past>()?,
        PastConfig::Word(word) => word.parse()?,
    };
    if !(1..=60_000).contains(&config.period_ms) {
        bail!("period_ms = {}: it is from 1 to 60000", config.period_ms);
    }
    let most = Weight::hundredths(config.max_weight);
    if most.as_hundredths() != config.max_weight {
        let (least, limit) = (Weight::ORDINARY.as_hundredths(), Weight::LIMIT.as_hundredths());
        bail!("max_weight = {}: it is from {least} to {limit}", config.max_weight);
    }
    let names: BTreeSet<_> = config.groups.iter().map(|group| &group.name).collect();
    if names.len() < config.groups.len() {
        bail!("two groups have the same name");
    }
    if config.sensor_program.is_some() && config.sensor != "bpf" {
        bail!("sensor_program is for sensor = \"bpf\"");
    }
    Ok(Settings {
        policy: config.policy.parse()?,
        period: Duration::from_millis(config.period_ms),
        past,
        most,
        sensor: Sensor::named(
            &config.sensor,
            config.sensor_program.clone().unwrap_or_else(|| Sensor::PROGRAM.into()),
        )?,
        actuator: config.actuator.parse()?,
        groups: config.groups.iter().map(group).collect::<Result<_, _>>()?,
        state: config.state.clone().unwrap_or_else(default_state),
    })
}

fn group(config: &CoscheduleGroup) -> anyhow::Result<Group> {
    let name = &config.name;
    let members = match (&config.command, &config.cgroup) {
        (Some(command), None) if command.contains('/') || command.is_empty() => {
            bail!(
                "group {name}: command = {command:?}: write the name of the processes, as `ps -o comm` shows it, without folders"
            )
        }
        (Some(command), None) => Members::Named(command.clone()),
        (None, Some(folder)) if folder.is_dir() => Members::ControlGroup(folder.clone()),
        (None, Some(folder)) => bail!("group {name}: {} is not a folder", folder.display()),
        _ => bail!("group {name} needs exactly one of command and cgroup"),
    };
    Ok(Group { name: name.clone(), members })
}

impl Prepared {
    /// Starts the thread.
    pub(crate) fn start(self, node: &Node, config: &Config) -> anyhow::Result<Coscheduling> {
        let (policy, sensor) = (self.settings.policy, self.settings.sensor.name());
        let groups = self.settings.groups.len();
        let (mut service, restored) = Service::begin(self.settings).context("coschedule")?;
        if let Some(words) = restored.in_words() {
            eprintln!("prontod: coschedule: an earlier process was killed: {words}");
        }
        let actuator = service.coscheduler().actuator();
        eprintln!(
            "prontod: coschedule: policy {policy}, by {actuator}, queues by {sensor}, groups: {groups}"
        );
        let known = config.peer.iter().filter_map(|peer| node.peer(NodeId(peer.node)));
        let mut exchange = Exchange {
            peers: known.map(|peer| (peer.node().0, peer)).collect(),
            places: BTreeMap::new(),
            periods: 0,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let received = self.received;
        let thread = std::thread::Builder::new().name("coschedule".into());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                exchange.receive(&received, &mut service);
                if !service.pause().is_zero() {
                    continue;
                }
                for problem in service.work() {
                    eprintln!("prontod: coschedule: {problem}");
                }
                if policy == Policy::Carried {
                    exchange.send(service.coscheduler().reports());
                }
            }
            match service.end() {
                Ok((_, Restored { refused: 0, .. })) => {}
                Ok((_, restored)) => {
                    let words = restored.in_words().unwrap_or_default();
                    eprintln!("prontod: coschedule: {words}");
                }
                Err(error) => eprintln!("prontod: coschedule: weights may be left changed: {error}"),
            }
        });
        Ok(Coscheduling { stop, thread: thread.context("starting a thread")? })
    }
}

impl Coscheduling {
    /// Stops the thread, which restores all weights.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            eprintln!("prontod: coschedule: the thread has panicked; the next start restores the weights");
        }
    }
}

/// The exchange of reports with other nodes.
struct Exchange {
    peers: BTreeMap<u16, Peer<NodeHost>>,
    /// The nodes that have reported connections from an address, usually one, each with the period of its last report.
    places: BTreeMap<IpAddr, BTreeMap<u16, u64>>,
    periods: u64,
}

impl Exchange {
    /// Passes reports that arrive until the next period to the coscheduler, for a short time and a number of messages: however many arrive,
    /// the period begins.
    fn receive(&mut self, received: &Receiver<(Peer<NodeHost>, Pressure)>, service: &mut Service) {
        for _ in 0..QUEUE {
            let pause = service.pause().min(SLEEP);
            let (peer, pressure) = match received.recv_timeout(pause) {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) => return,
                // There is no handler: the policy needs no reports.
                Err(RecvTimeoutError::Disconnected) => return std::thread::park_timeout(pause),
            };
            let node = peer.node().0;
            self.peers.entry(node).or_insert(peer);
            let reports = pressure.reports.iter().map(|report| {
                let connection = Connection {
                    protocol: report.protocol,
                    local: report.to.address(),
                    remote: report.from.address(),
                };
                (connection, Level::fixed(report.level))
            });
            let reports: Vec<_> = reports.collect();
            reports.iter().for_each(|(connection, _)| self.place(connection.remote.ip(), node));
            service.coscheduler().receive(node, reports);
        }
    }

    /// Remembers that a node has an address.
    fn place(&mut self, address: IpAddr, node: u16) {
        if self.places.len() < PLACES || self.places.contains_key(&address) {
            self.places.entry(address).or_default().insert(node, self.periods);
        }
    }

    /// Forgets the nodes that have not reported an address for long: it may have moved.
    fn forget_places(&mut self) {
        let oldest = self.periods.saturating_sub(LIFE_OF_PLACE);
        self.places.retain(|_, nodes| {
            nodes.retain(|_, last| *last >= oldest);
            !nodes.is_empty()
        });
    }

    /// Sends reports to the nodes at the other ends of the connections.
    fn send(&mut self, reports: Vec<(Connection, Level)>) {
        let greets = self.periods.is_multiple_of(GREETING);
        self.periods += 1;
        if greets {
            self.forget_places();
        }
        let mut by_node: BTreeMap<u16, Vec<Report>> = BTreeMap::new();
        for (connection, level) in reports {
            let report = Report {
                protocol: connection.protocol,
                to: EndPoint::of(connection.local),
                from: EndPoint::of(connection.remote),
                level: level.as_fixed(),
            };
            let places = self.places.get(&connection.local.ip());
            let all = || self.peers.keys().copied().collect();
            let nodes: Vec<_> = places.map_or_else(all, |nodes| nodes.keys().copied().collect());
            nodes.into_iter().for_each(|node| by_node.entry(node).or_default().push(report));
        }
        for (node, peer) in &self.peers {
            let reports = by_node.remove(node).unwrap_or_default();
            if !peer.is_up() || !peer.handles::<Pressure>() || (reports.is_empty() && !greets) {
                continue;
            }
            let messages = if reports.is_empty() {
                vec![Vec::new()]
            } else {
                reports.chunks(PER_MESSAGE).map(<[_]>::to_vec).collect()
            };
            for reports in messages {
                // The peer is down or slow: the next period brings other reports.
                let _lost = peer.notify(&Pressure { reports });
            }
        }
    }
}

impl EndPoint {
    fn of(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }

    fn address(self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.ip).to_canonical(), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<Settings> {
        let config = Config::parse(&format!("node = 1\n[coschedule]\n{text}"))?;
        settings(&config.coschedule.expect("the section is there"))
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_library() {
        let settings = of("").expect("no key is required");
        assert_eq!(settings.policy, Policy::Off);
        assert_eq!(settings.period, Settings::PERIOD);
        assert_eq!(settings.past, Past::Fixed(Settings::PAST));
        assert_eq!(settings.most, Settings::MOST);
        assert_eq!(settings.actuator, Default::default());
        assert_eq!(settings.sensor, Sensor::SockDiag);
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, named) in [
            ("policy = \"gang\"", "gang"),
            ("period_ms = 0", "period_ms"),
            ("past = 1.5", "1.5"),
            ("past = \"never\"", "never"),
            ("max_weight = 99", "max_weight"),
            ("max_weight = 1001", "1000"),
            ("actuator = \"fast\"", "fast"),
            ("sensor = \"eyes\"", "eyes"),
            ("sensor_program = \"x.bpf.o\"", "is for sensor"),
            ("groups = [{ name = \"x\" }]", "exactly one of"),
            ("groups = [{ name = \"x\", command = \"a\", cgroup = \"/\" }]", "exactly one of"),
            ("groups = [{ name = \"x\", command = \"/bin/cat\" }]", "without folders"),
            ("groups = [{ name = \"x\", command = \"\" }]", "without folders"),
            ("groups = [{ name = \"x\", cgroup = \"/nowhere\" }]", "/nowhere"),
            ("groups = [{ name = \"x\", command = \"a\" }, { name = \"x\", command = \"b\" }]", "same name"),
        ] {
            let error = format!("{:#}", of(text).expect_err(text));
            assert!(error.contains(named), "{text}: {error}");
        }
        let groups =
            of("policy = \"carried\"\npast = \"auto\"\ngroups = [{ name = \"x\", command = \"a\" }]");
        assert_eq!(groups.expect("it is valid").groups.len(), 1);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_before_the_start() {
        for (text, named) in [
            ("policy = \"pred\"", "needs groups"),
            (
                "policy = \"pred\"\nstate = \"/etc/passwd\"\ngroups = [{ name = \"x\", command = \"a\" }]",
                "/etc/passwd",
            ),
            (
                "policy = \"pred\"\nactuator = \"cgroup\"\ngroups = [{ name = \"x\", command = \"a\" }]",
                "control group",
            ),
        ] {
            let config = Config::parse(&format!("node = 1\n[coschedule]\n{text}")).expect("it is TOML");
            let error = prepare(&config, Node::builder(1)).err().expect(text);
            assert!(format!("{error:#}").contains(named), "{error:#}");
        }
    }

    #[test]
    fn places_are_bounded_and_forgotten() {
        let mut exchange = Exchange { peers: BTreeMap::new(), places: BTreeMap::new(), periods: 0 };
        let address = |number: usize| IpAddr::from(u128::try_from(number).expect("small").to_be_bytes());
        for number in 0..PLACES + 10 {
            exchange.place(address(number), 2);
        }
        assert_eq!(exchange.places.len(), PLACES);
        exchange.periods = LIFE_OF_PLACE;
        // It has moved to another node.
        exchange.place(address(0), 3);
        exchange.periods += 1;
        exchange.forget_places();
        assert_eq!(exchange.places, [(address(0), [(3, LIFE_OF_PLACE)].into())].into());
    }

    #[test]
    fn addresses_of_both_families_travel() {
        for address in ["10.0.0.1:5", "[fd00::1]:65535"] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(EndPoint::of(address).address(), address);
        }
    }
}

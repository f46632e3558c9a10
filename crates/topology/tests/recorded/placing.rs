//! Placement decisions for each machine.

use pronto_topology::{
    Anywhere, Cpu, Cpus, Device, DeviceClass, Memory, NotSeated, NumaNode, Seat, Topology, Vector,
    VectorReason, Wish, memory_for, seat, vector_for,
};

use crate::machine::{LAPTOP, Machine, ODD_NODES, TWO_SOCKETS, cpus};

fn net<'a>(topology: &'a Topology, name: &str) -> &'a Device {
    topology.device(DeviceClass::Net, name).expect("it is there")
}

/// Returns the automatic placement of threads whose messages the named devices carry.
fn auto(topology: &Topology, allowed: &Cpus, names: &[&str]) -> Seat {
    let devices: Vec<_> = names.iter().map(|name| net(topology, name)).collect();
    seat(topology, allowed, &Wish::Auto, &devices).expect("nothing was named")
}

/// Shows: operations.one-numa-node
#[test]
fn one_node_has_nothing_to_choose() {
    let topology = Machine::new("one", LAPTOP).topology();
    let all = cpus("0-7");
    let decided = auto(&topology, &all, &["wlan0"]);
    assert_eq!(decided, Seat::Anywhere(Anywhere::OneNode));
    assert_eq!(
        decided.to_string(),
        "anywhere: this machine has one NUMA node, so there is nothing to choose"
    );
    assert_eq!(memory_for(&topology, Some(net(&topology, "wlan0"))), Memory::OneNode);
    let vector = vector_for(&topology, None, &[], 8, (None, &all), 3);
    assert_eq!(vector, Vector { number: 0, reason: VectorReason::NothingToChoose });
}

/// Shows: operations.serving-place, operations.auto-unbound
#[test]
fn threads_go_where_the_card_is() {
    let topology = Machine::new("card", TWO_SOCKETS).topology();
    let all = cpus("0-15");
    let decided = auto(&topology, &all, &["ens1f0", "ens1f1"]);
    assert_eq!(decided.cpus(), Some(&cpus("8-15")));
    assert_eq!(decided.to_string(), "on CPUs 8-15: node 1, near ens1f0");
    assert_eq!(auto(&topology, &all, &["eno1"]).cpus(), Some(&cpus("0-7")));
    assert_eq!(auto(&topology, &all, &[]), Seat::Anywhere(Anywhere::NoDevice));
    let both = auto(&topology, &all, &["eno1", "ens1f0"]);
    assert_eq!(both.to_string(), "anywhere: devices carry messages on node 0 and node 1");
}

/// Shows: operations.own-cpus, operations.auto-unbound
#[test]
fn a_process_stays_on_its_own_cpus() {
    let topology = Machine::new("allowed", TWO_SOCKETS).topology();
    assert_eq!(auto(&topology, &cpus("6-9"), &["ens1f0"]).cpus(), Some(&cpus("8-9")));
    let elsewhere = auto(&topology, &cpus("0-7"), &["ens1f0"]);
    assert_eq!(elsewhere.to_string(), "anywhere: this process may use none of the CPUs 8-15 near ens1f0");
    let there = auto(&topology, &cpus("9-10"), &["ens1f0"]);
    assert_eq!(there, Seat::Anywhere(Anywhere::There { device: "ens1f0".into() }));
}

/// Shows: operations.listed-cpus
#[test]
fn named_cpus_are_used_or_rejected() {
    let topology = Machine::new("named", TWO_SOCKETS).topology();
    let named = |allowed: &str, wanted: &str| seat(&topology, &cpus(allowed), &Wish::On(cpus(wanted)), &[]);
    assert_eq!(named("0-15", "3"), Ok(Seat::Named(cpus("3"))));
    for wanted in ["8-9", "6-9"] {
        let refused = NotSeated::NotAllowed { wanted: cpus(wanted), allowed: cpus("0-7") };
        assert_eq!(named("0-7", wanted), Err(refused));
    }
    let said = named("0-7", "6-9").map_err(|error| error.to_string());
    assert_eq!(said, Err("\"6-9\": this process may not use CPUs 8-9: name some of 0-7".into()));
    assert_eq!(named("0-7", ""), Err(NotSeated::NoneNamed { allowed: cpus("0-7") }));
    let off = seat(&topology, &cpus("0-15"), &Wish::Off, &[net(&topology, "ens1f0")]);
    assert_eq!(off, Ok(Seat::Anywhere(Anywhere::NotAsked)));
}

/// Shows: operations.serving-place
#[test]
fn isolated_cpus_are_left_alone_unless_named() {
    let topology = Machine::new("isolated", ODD_NODES).topology();
    let all = cpus("0-2,4-6");
    assert_eq!(auto(&topology, &all, &["eth1"]).cpus(), Some(&cpus("4,6")));
    assert_eq!(seat(&topology, &all, &Wish::On(cpus("5")), &[]), Ok(Seat::Named(cpus("5"))));
    let only = auto(&topology, &cpus("0,5"), &["eth1"]);
    assert!(matches!(only, Seat::Anywhere(Anywhere::NotAllowed { .. })), "{only}");
}

/// Shows: operations.memory-place
#[test]
fn nodes_without_cpus_or_memory_are_served_by_their_neighbours() {
    let topology = Machine::new("neighbours", ODD_NODES).topology();
    let all = cpus("0-2,4-6");
    assert_eq!(auto(&topology, &all, &["eth2"]).cpus(), Some(&cpus("4,6")), "14 is nearer than 17");
    let memory = |name| memory_for(&topology, Some(net(&topology, name)));
    assert_eq!(memory("eth0"), Memory::Prefer(NumaNode(0)));
    assert_eq!(memory("eth1"), Memory::Prefer(NumaNode(2)), "14 is nearer than 21");
    assert_eq!(memory("eth2"), Memory::Prefer(NumaNode(2)));
    assert_eq!(memory_for(&topology, None), Memory::UnknownDevice);
}

#[test]
fn a_node_that_is_not_there_decides_nothing() {
    let machine = Machine::new("missing", TWO_SOCKETS);
    machine.write("sys/class/net/eno1/device/numa_node", "7\n");
    let topology = machine.topology();
    assert_eq!(auto(&topology, &cpus("0-15"), &["eno1"]), Seat::Anywhere(Anywhere::NoDevice));
    assert_eq!(memory_for(&topology, Some(net(&topology, "eno1"))), Memory::UnknownDevice);
}

/// Shows: operations.vector
#[test]
fn a_vector_is_chosen_by_its_interrupt() {
    let machine = Machine::new("vector", TWO_SOCKETS);
    let topology = machine.topology();
    let card = topology.device(DeviceClass::Infiniband, "mlx5_0");
    let interrupts = topology.interrupts(card.expect("it is there")).expect("they are described well");
    let choose = |seated: Option<&str>, allowed: &str, spread| {
        let seated = seated.map(cpus);
        vector_for(&topology, card, &interrupts, 10, (seated.as_ref(), &cpus(allowed)), spread)
    };
    let by = |number, cpu| Vector { number, reason: VectorReason::Interrupt(Cpu(cpu)) };
    assert_eq!(choose(Some("11"), "0-15", 0), by(3, 11));
    assert_eq!(choose(Some("0"), "0-15", 0), by(8, 0));
    assert_eq!(choose(Some("8-15"), "0-15", 5), by(5, 13), "spread over equally good vectors");
    assert_eq!(choose(Some("8-15"), "0-15", 13), by(5, 13), "and over no others");
    assert_eq!(choose(None, "0-15", 9), by(1, 9), "near the device if threads are not placed");
    assert_eq!(choose(None, "1-4", 0), by(9, 1), "within the CPUs of the process");
    assert_eq!(choose(Some("5"), "0-15", 0), Vector { number: 0, reason: VectorReason::NoneNear });
    // A device with fewer vectors than interrupts of that name.
    let few = vector_for(&topology, card, &interrupts, 3, (Some(&cpus("8-15")), &cpus("0-15")), 4);
    assert_eq!(few, by(1, 9));
}

#[test]
fn a_vector_is_chosen_by_its_order_if_interrupts_are_not_reported() {
    let topology = Machine::new("turn", TWO_SOCKETS).topology();
    let card = topology.device(DeviceClass::Infiniband, "mlx5_0");
    let choose = |vectors, seated: &str| {
        vector_for(&topology, card, &[], vectors, (Some(&cpus(seated)), &cpus("0-15")), 0)
    };
    let turn = |number, cpu| Vector { number, reason: VectorReason::Turn(Cpu(cpu)) };
    assert_eq!(choose(16, "11"), turn(3, 11), "CPUs near the device come first");
    assert_eq!(choose(16, "2"), turn(10, 2));
    assert_eq!(choose(4, "2"), Vector { number: 0, reason: VectorReason::NoneNear });
    assert_eq!(choose(1, "11"), Vector { number: 0, reason: VectorReason::Only });
    assert_eq!(choose(0, "11"), Vector { number: 0, reason: VectorReason::Only });
}

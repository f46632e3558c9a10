//! The topology read from each machine.

use std::path::Path;

use pronto_topology::{Cpu, Cpus, DeviceClass, NumaNode, Topology, allowed};

use crate::machine::{LAPTOP, Machine, ODD_NODES, TWO_SOCKETS, cpus};

#[test]
fn threads_of_a_core_are_known() {
    let machine = Machine::new("laptop", LAPTOP);
    let topology = machine.topology();
    let cores = topology.cores().expect("they are described well");
    assert_eq!((topology.online.len(), cores.count(), topology.nodes.len()), (8, 4, 1));
    assert_eq!(cores.of(Cpu(5)), cpus("1,5"));
    assert!(cores.of(Cpu(8)).is_empty(), "there is none");
    machine.write("sys/devices/system/cpu/online", "0-5\n");
    let cores = machine.topology().cores().expect("they are described well");
    assert_eq!((cores.count(), cores.of(Cpu(2))), (4, cpus("2")));
    let card = topology.device(DeviceClass::Net, "wlan0").expect("it has one");
    assert_eq!((card.node, card.is_hardware), (None, true));
    assert!(!topology.device(DeviceClass::Net, "lo").expect("it is there").is_hardware);
    assert!(topology.device(DeviceClass::Infiniband, "wlan0").is_none());
}

/// Shows: operations.topology
#[test]
fn devices_are_where_they_are_attached() {
    let topology = Machine::new("devices", TWO_SOCKETS).topology();
    let node = |class, name| topology.device(class, name).expect("it is there").node;
    assert_eq!(node(DeviceClass::Net, "eno1"), Some(NumaNode(0)));
    assert_eq!(node(DeviceClass::Net, "ens1f1"), Some(NumaNode(1)));
    assert_eq!(node(DeviceClass::Infiniband, "mlx5_0"), Some(NumaNode(1)));
    assert_eq!(node(DeviceClass::Infiniband, "rxe_eno1"), Some(NumaNode(0)), "where its interface is");
    assert_eq!(topology.node(NumaNode(1)).expect("it is there").cpus, cpus("8-15"));
}

/// A virtio device has no `numa_node` of its own, so its carrier on the PCI bus is used.
#[test]
fn a_virtual_device_is_where_its_carrier_is() {
    const CARRIER: &str = "sys/devices/pci0000:80/0000:81:00.0";
    let machine = Machine::new("virtio", TWO_SOCKETS);
    machine.write(&format!("{CARRIER}/numa_node"), "1\n");
    machine.write(&format!("{CARRIER}/local_cpulist"), "8-15\n");
    machine.write(&format!("{CARRIER}/msi_irqs/121"), "msix\n");
    machine.write(&format!("{CARRIER}/virtio3/vendor"), "0x1af4\n");
    machine.link("sys/class/net/eth0/device", &format!("{CARRIER}/virtio3"));
    let topology = machine.topology();
    let device = topology.device(DeviceClass::Net, "eth0").expect("it is there");
    assert_eq!((device.node, device.cpus.clone()), (Some(NumaNode(1)), cpus("8-15")));
    let interrupts = topology.interrupts(device).expect("they are described well");
    assert_eq!(interrupts.iter().map(|interrupt| interrupt.number).collect::<Vec<_>>(), [121]);
}

#[test]
fn interrupts_have_cpus_and_vectors() {
    let machine = Machine::new("interrupts", TWO_SOCKETS);
    let topology = machine.topology();
    let card = topology.device(DeviceClass::Infiniband, "mlx5_0").expect("it is there");
    let interrupts = topology.interrupts(card).expect("they are described well");
    assert_eq!(interrupts.len(), 11);
    assert_eq!(
        (interrupts[0].number, interrupts[0].vector, interrupts[0].cpus.clone()),
        (120, None, cpus("0"))
    );
    assert_eq!(
        (interrupts[3].number, interrupts[3].vector, interrupts[3].cpus.clone()),
        (123, Some(2), cpus("10"))
    );
    let soft = topology.device(DeviceClass::Infiniband, "rxe_eno1").expect("it is there");
    assert!(topology.interrupts(soft).expect("it has no folder").is_empty());
}

#[test]
fn offline_cpus_are_left_out() {
    let topology = Machine::new("odd", ODD_NODES).topology();
    assert_eq!((topology.online.clone(), topology.isolated.clone()), (cpus("0-2,4-6"), cpus("5")));
    let [zero, one, two] = &*topology.nodes else { panic!("three nodes: {:?}", topology.nodes) };
    assert!(zero.has_memory && !one.has_memory && two.has_memory);
    assert_eq!((one.cpus.clone(), two.cpus.clone()), (cpus("4-6"), Cpus::default()));
    assert_eq!(two.distances, [17, 14, 10]);
}

#[test]
fn a_kernel_that_reports_nothing_has_one_node() {
    let machine = Machine::new("silent", LAPTOP);
    machine.remove("sys/devices/system/node");
    let topology = machine.topology();
    assert_eq!((topology.nodes.len(), topology.nodes[0].cpus.clone()), (1, cpus("0-7")));
    machine.remove("sys");
    let topology = machine.topology();
    assert_eq!((topology.nodes.len(), topology.online.len(), topology.devices.len()), (1, 1, 0));
    assert_eq!(topology.cores().expect("none is told").of(Cpu(0)), cpus("0"));
}

#[test]
fn the_older_name_of_a_file_will_do() {
    let machine = Machine::new("older", LAPTOP);
    machine.remove("sys/devices/system/cpu/cpu5/topology/core_cpus_list");
    machine.write("sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "1,5\n");
    assert_eq!(machine.topology().cores().expect("they are described well").of(Cpu(5)), cpus("1,5"));
}

#[test]
fn the_machine_that_this_runs_on_is_read() {
    let topology = Topology::read(Path::new("/")).expect("the kernel describes it well");
    assert!(allowed().expect("it tells").is_within(&topology.online));
    assert!(!topology.nodes.is_empty() && topology.cores().expect("and its cores").count() >= 1);
}

//! Malformed descriptions: each is reported as an error that names its file, and none causes a panic.

use std::os::unix::ffi::OsStrExt as _;

use pronto_topology::{ListFault, TopologyError};

use crate::machine::{Machine, TWO_SOCKETS};

/// Reads a recorded machine in which one file holds `content`.
fn with(test: &str, path: &str, content: &str) -> Result<(), String> {
    let machine = Machine::new(test, TWO_SOCKETS);
    machine.write(path, content);
    let read = machine.read();
    let read = read.and_then(|topology| topology.cores().map(|_| topology));
    match &read {
        Err(TopologyError::List { path: found, .. } | TopologyError::Number { path: found, .. }) => {
            assert!(found.as_os_str().as_bytes().ends_with(path.as_bytes()), "{found:?}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => {}
    }
    let interrupts = read.and_then(|topology| {
        topology.devices.iter().try_for_each(|device| topology.interrupts(device).map(drop))
    });
    interrupts.map_err(|error| error.to_string())
}

#[test]
fn malformed_lists_are_rejected_with_their_file() {
    for path in [
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/isolated",
        "sys/devices/system/cpu/cpu3/topology/core_cpus_list",
        "sys/devices/system/node/online",
        "sys/devices/system/node/has_memory",
        "sys/devices/system/node/node1/cpulist",
        "sys/class/net/ens1f0/device/local_cpulist",
    ] {
        for wrong in ["many\n", "3-1\n", "0,,1\n", "0-99999999\n", "\u{0}", "-1\n"] {
            assert!(with("lists", path, wrong).is_err(), "{path}: {wrong:?}");
        }
        assert_eq!(with("lists", path, "0\n"), Ok(()), "{path}");
    }
}

#[test]
fn malformed_numbers_are_rejected_with_their_file() {
    for path in ["sys/class/net/eno1/device/numa_node", "sys/class/infiniband/mlx5_0/device/numa_node"] {
        for wrong in ["", "one\n", "-2\n", "1 2\n", "9999999999999999999\n", "100000\n"] {
            assert!(with("numbers", path, wrong).is_err(), "{path}: {wrong:?}");
        }
        assert_eq!(with("numbers", path, "-1\n"), Ok(()));
    }
    assert!(with("numbers", "sys/devices/system/node/node1/distance", "10 far\n").is_err());
    assert!(with("numbers", "sys/devices/system/node/node1/distance", "10 -1\n").is_err());
}

#[test]
fn an_interrupt_with_a_malformed_list_is_rejected() {
    let machine = Machine::new("irq", TWO_SOCKETS);
    machine.write("proc/irq/121/effective_affinity_list", "somewhere\n");
    let topology = machine.topology();
    let errors = topology.devices.iter().filter_map(|device| topology.interrupts(device).err());
    let errors: Vec<_> = errors.collect();
    assert!(
        matches!(
            &*errors,
            [TopologyError::List { fault: ListFault::NotANumber { part }, .. }] if part == "somewhere"
        ),
        "{errors:?}"
    );
}

#[test]
fn a_folder_in_the_place_of_a_file_is_an_error() {
    let machine = Machine::new("folder", TWO_SOCKETS);
    machine.remove("sys/devices/system/cpu/online");
    machine.write("sys/devices/system/cpu/online/what", "0\n");
    assert!(matches!(machine.read(), Err(TopologyError::Read { .. })));
}

/// A device on a node that the machine does not have is treated as a device of unknown node.
#[test]
fn a_device_on_a_node_that_is_not_there_is_nowhere() {
    assert_eq!(with("nowhere", "sys/class/net/eno1/device/numa_node", "7\n"), Ok(()));
}

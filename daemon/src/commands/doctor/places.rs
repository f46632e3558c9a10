//! Topology: NUMA nodes, cores and CPUs, the CPUs that this process may use, and the places of devices.

use pronto_topology::{Cpus, Topology, allowed};

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "topology";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    match Topology::read(&machine.root) {
        Ok(topology) => findings(&topology, &allowed().unwrap_or_else(|_| topology.online.clone())),
        Err(error) => vec![Finding::problem(
            SUBJECT,
            error.to_string(),
            "please report this: the kernel's description is not as expected",
        )],
    }
}

fn findings(topology: &Topology, allowed: &Cpus) -> Vec<Finding> {
    let (nodes, cpus) = (topology.nodes.len(), topology.online.len());
    // If the kernel does not describe cores, each CPU counts as one.
    let cores = topology.cores().map_or(cpus, |cores| cores.count());
    let mut found = vec![Finding::ok(SUBJECT, format!("NUMA nodes: {nodes}, cores: {cores}, CPUs: {cpus}"))];
    let may = topology.online.and(allowed);
    found.push(if may.len() < 2 {
        Finding::problem(
            SUBJECT,
            format!("this process may use only CPU {may}: a polling thread would delay the thread that it waits for"),
            "allow it at least two CPUs; until then nodes do not poll",
        )
    } else if may != topology.online {
        Finding::note(
            SUBJECT,
            format!("this process may use the CPUs {may}"),
            "check taskset -p and the cpuset of its control group",
        )
    } else {
        Finding::ok(SUBJECT, "this process may use all CPUs")
    });
    if !topology.isolated.is_empty() {
        found.push(Finding::note(
            SUBJECT,
            format!("the scheduler places no threads on the isolated CPUs {}", topology.isolated),
            "nodes use them only if they are listed: [placement] serving = \"LIST\"",
        ));
    }
    let places = topology.devices.iter().filter(|device| device.is_hardware || device.node.is_some());
    let places: Vec<_> = places.map(ToString::to_string).collect();
    if nodes < 2 {
        found.push(Finding::ok(SUBJECT, "one NUMA node: nothing to place"));
    } else if !places.is_empty() {
        found.push(Finding::note(
            SUBJECT,
            format!("devices: {}", places.join(", ")),
            "[placement] serving = \"auto\" puts a node's serving thread near the device that the node uses",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const TWO_NODES: [(&str, &str); 7] = [
        ("sys/devices/system/cpu/online", "0-3"),
        ("sys/devices/system/node/online", "0-1"),
        ("sys/devices/system/node/node0/cpulist", "0-1"),
        ("sys/devices/system/node/node1/cpulist", "2-3"),
        ("sys/class/net/eth1/device/numa_node", "1"),
        ("sys/class/net/lo/ifindex", "1"),
        ("sys/devices/system/cpu/isolated", "3"),
    ];

    fn of(name: &str, files: &[(&str, &str)], allowed: &str) -> Vec<Finding> {
        let machine = Machine::recorded(name, files);
        let topology = Topology::read(&machine.root).expect("the description is valid");
        findings(&topology, &allowed.parse().expect("a list"))
    }

    #[test]
    fn devices_on_nodes_are_shown() {
        let found = of("nodes", &TWO_NODES, "0-3");
        let levels: Vec<_> = found.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Ok, Level::Note, Level::Note]);
        assert_eq!(found[3].text, "devices: eth1 (node 1)");
    }

    #[test]
    fn few_cpus_are_noted() {
        assert_eq!(of("few", &TWO_NODES, "1-2")[1].level, Level::Note);
        let one = &of("one", &TWO_NODES, "2,7")[1];
        assert!(one.level == Level::Problem && one.text.contains("only CPU 2:"), "{one:?}");
    }

    #[test]
    fn a_malformed_file_is_a_problem_not_an_error() {
        let found = probe(&Machine::recorded("bad", &[("sys/devices/system/cpu/online", "all of them")]));
        assert!(found.len() == 1 && found[0].level == Level::Problem, "{found:?}");
    }
}

//! RDMA: devices, their ports, the library, and whether this program supports RDMA.

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "rdma";
/// Usual folders of libraries (ld.so(8), and the multi-architecture folders of Debian).
const FOLDERS: [&str; 7] = [
    "usr/lib",
    "usr/lib64",
    "usr/local/lib",
    "lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/riscv64-linux-gnu",
];
const LIBRARY: &str = "libibverbs.so.1";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    findings(machine, cfg!(feature = "verbs"))
}

fn findings(machine: &Machine, is_built_in: bool) -> Vec<Finding> {
    const DEVICES: &str = "sys/class/infiniband";
    let devices = machine.names(DEVICES);
    if devices.is_empty() {
        return vec![Finding::ok(SUBJECT, "no device: links between hosts go over TCP")];
    }
    let mut found = Vec::new();
    for device in devices {
        for port in machine.names(&format!("{DEVICES}/{device}/ports")) {
            let state = machine.text(&format!("{DEVICES}/{device}/ports/{port}/state")).unwrap_or_default();
            // NUMBER: NAME (Documentation/ABI/stable/sysfs-class-infiniband)
            let text =
                format!("{device} port {port}: {}", state.split_once(": ").map_or(&*state, |(_, name)| name));
            found.push(if state.starts_with("4:") {
                Finding::ok(SUBJECT, text)
            } else {
                Finding::note(
                    SUBJECT,
                    text,
                    "check the cable, the interface (ip link) and the subnet manager",
                )
            });
        }
    }
    let library = FOLDERS
        .iter()
        .map(|folder| format!("{folder}/{LIBRARY}"))
        .find(|path| machine.root.join(path).exists());
    found.push(match library {
        Some(path) => Finding::ok(SUBJECT, format!("{LIBRARY} is at /{path}")),
        None => Finding::problem(
            SUBJECT,
            format!("{LIBRARY} was not found in the usual folders"),
            "apt install libibverbs1 ibverbs-providers",
        ),
    });
    found.push(if is_built_in {
        Finding::ok(SUBJECT, "this program supports RDMA")
    } else {
        Finding::note(
            SUBJECT,
            "this program was built without RDMA",
            "cargo build --release --features verbs",
        )
    });
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn ports_and_the_library_are_inspected() {
        let files = [
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
            ("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN"),
            ("usr/lib64/libibverbs.so.1", ""),
        ];
        let levels = |name: &str, files: &[(&str, &str)], is_built_in| {
            let found = findings(&Machine::recorded(name, files), is_built_in);
            found.into_iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels("ports", &files, true), [Level::Ok, Level::Note, Level::Ok, Level::Ok]);
        assert_eq!(levels("library", &files[..1], false), [Level::Ok, Level::Problem, Level::Note]);
        assert_eq!(
            levels("library", &files[2..], false),
            [Level::Ok],
            "without a device no library is needed"
        );
    }
}

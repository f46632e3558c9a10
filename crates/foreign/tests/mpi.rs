//! A long message between two processes of Open MPI or MPICH: with the source it leaves the sender while the receiver computes.

use std::process::Command;

/// Length of the message in `mpi-ranks`, bytes.
const LENGTH: usize = 4 << 20;

/// An MPI, its command that starts processes, and the beginning of its version.
#[derive(Clone, Copy)]
struct Mpi {
    /// Folder of the C half that was built for this MPI.
    name: &'static str,
    start: &'static [&'static str],
    version: &'static str,
}

const BOTH: [Mpi; 2] = [
    Mpi {
        name: "openmpi",
        start: &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
        version: "Open MPI v",
    },
    Mpi { name: "mpich", start: &["mpirun.mpich"], version: "MPICH Version:" },
];

/// Runs two ranks. Returns what the receiver printed.
fn run(mpi: Mpi, how: &str) -> String {
    let Mpi { name, start, version } = mpi;
    // Two runs at a time would both create the folder that Open MPI names by host and user, and one would fail.
    let folder = std::env::temp_dir().join(format!("pronto-{name}-{how}-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of this run");
    let others = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let output = Command::new(start[0])
        .args(&start[1..])
        .args(["-np", "2", env!("CARGO_BIN_EXE_mpi-ranks")])
        .arg(folder.join("socket"))
        .arg(how)
        .env("LD_LIBRARY_PATH", format!("{}/{name}:{others}", env!("OUT_DIR")))
        .env("TMPDIR", &folder)
        .output()
        .expect("mpirun starts");
    std::fs::remove_dir_all(&folder).expect("the folder is removed");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with(&format!("library {version}")), "{text}");
    text.lines().skip(1).map(|line| format!("{line}\n")).collect()
}

/// Shows: sources.timerfd, sources.other-libraries, sources.mpi-timer
#[test]
fn a_rendezvous_completes_while_the_receiver_computes() {
    let expected = format!("end computation\ncallback node\nbytes {LENGTH}\ncounters 0 0 0\n");
    for mpi in BOTH {
        for engine in ["idle", "timer"] {
            assert_eq!(run(mpi, engine), expected, "{}, engine {engine}", mpi.name);
        }
    }
}

/// Shows: sources.other-libraries
#[test]
fn without_the_source_it_waits_for_the_receivers_own_progress() {
    let expected = format!("end progress\ncallback program\nbytes {LENGTH}\ncounters 0 0 0\n");
    for mpi in BOTH {
        assert_eq!(run(mpi, "alone"), expected, "{}", mpi.name);
    }
}

//! With the feature `mpi`, builds the C half of `src/comm/mpi.rs` and links Open MPI.

use std::env;
use std::path::Path;
use std::process::Command;

/// Open MPI's compiler on Debian, which also has MPICH's.
const COMPILER: &str = "mpicc.openmpi";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c/mpi.c");
    if env::var_os("CARGO_FEATURE_MPI").is_none() {
        return;
    }
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let (object, archive) = (Path::new(&out).join("mpi.o"), Path::new(&out).join("libjobs_mpi.a"));
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c", "c/mpi.c", "-o"];
    run(Command::new(COMPILER).args(flags).arg(&object));
    run(Command::new("ar").arg("crs").args([&archive, &object]));
    println!("cargo::rustc-link-search=native={out}");
    println!("cargo::rustc-link-lib=static=jobs_mpi");
    for folder in run(Command::new(COMPILER).arg("--showme:libdirs")).split_whitespace() {
        println!("cargo::rustc-link-search=native={folder}");
    }
    for library in run(Command::new(COMPILER).arg("--showme:libs")).split_whitespace() {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> String {
    match command.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => panic!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("cannot start {command:?}: {error}; Debian has it in libopenmpi-dev"),
    }
}

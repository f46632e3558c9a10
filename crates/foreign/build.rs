//! Builds the C half of each enabled adapter as a shared library, which links the foreign library.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    if env::var_os("CARGO_FEATURE_UCX").is_some() {
        let folder = Path::new(&out).join("ucx");
        build("cc", "ucx", &["-lucp", "-lucs"], &folder);
        link("ucx", &folder);
    }
    if env::var_os("CARGO_FEATURE_MPI").is_some() {
        // The compilers know the folders of their MPI. A program finds one of the two libraries by LD_LIBRARY_PATH.
        let folder = |mpi| Path::new(&out).join(mpi);
        build("mpicc.openmpi", "mpi", &[], &folder("openmpi"));
        build("mpicc.mpich", "mpi", &[], &folder("mpich"));
        link("mpi", &folder("openmpi"));
    }
}

/// Compiles `c/NAME.c` to a shared library in `folder`.
fn build(compiler: &str, name: &str, libraries: &[&str], folder: &Path) {
    let source = Path::new("c").join(name).with_extension("c");
    println!("cargo::rerun-if-changed={}", source.display());
    std::fs::create_dir_all(folder).expect("cargo's folder is writable");
    let status = Command::new(compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"])
        .args([&folder.join(format!("libforeign_{name}.so")), &source])
        .args(libraries)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not build {}: {status}", source.display()),
        Err(error) => panic!("cannot start {compiler} for {}: {error}", source.display()),
    }
}

fn link(name: &str, folder: &Path) {
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=dylib=foreign_{name}");
}

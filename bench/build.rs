//! Hands the compiler's version and the build profile to the program, so that every result names them.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_default();
    println!("cargo::rustc-env=PRONTO_BENCH_RUSTC={}", version.trim());
    println!("cargo::rustc-env=PRONTO_BENCH_PROFILE={}", env::var("PROFILE").unwrap_or_default());
}

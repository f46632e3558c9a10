//! Hands the optimisation level to the crate: an unoptimised build runs fewer seeds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=PRONTO_SIM_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
}

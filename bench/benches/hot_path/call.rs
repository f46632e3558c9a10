//! A whole call: 32 bytes to another process and back over shared memory, both sides spinning, an inline handler.

use criterion::Criterion;
use pronto::WaitPolicy;
use pronto_bench::echo::{Provider, Server, Wait, call_32};
use pronto_bench::placement::Placement;

/// Measures a whole call. Skipped on a machine with one CPU.
///
/// # Errors
/// If the echo service does not start.
pub(crate) fn benches(criterion: &mut Criterion, placement: Placement) -> anyhow::Result<()> {
    let Some(cpus) = placement.pair() else {
        eprintln!("call/shm-32 skipped: needs two CPUs, but this process may use only one");
        return Ok(());
    };
    let wait = Wait(WaitPolicy::Spin);
    let server = Server::spawn(Provider::Shm, wait, cpus.server)?;
    let (_client, peer) = server.meet(wait)?;
    let mut group = criterion.benchmark_group("call");
    group.bench_function("shm-32", |bencher| bencher.iter(|| call_32(&peer).expect("the service lives")));
    group.finish();
    Ok(())
}

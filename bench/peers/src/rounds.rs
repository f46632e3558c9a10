//! One round: single calls and calls with several open of the first length, then single calls of the other lengths; printed for the
//! experiment.
//!
//! The instrument is that of Pronto's experiments (`bench/src/sample.rs`): a short warm-up, calls timed singly, then batches of
//! about 100 us between two clock readings.

use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context as _;

use crate::SIZES;

const WARM_UP: u32 = 32;
const BATCH_NS: u128 = 100_000;
const MOST_IN_A_BATCH: u128 = 10_000;

/// Makes single calls of `size` bytes for their part of a round of `budget`, and, with the first length, calls with several open.
///
/// # Errors
/// Any error of `call` and `calls`.
pub async fn all(
    budget: Duration,
    size: usize,
    call: impl AsyncFnMut() -> anyhow::Result<()>,
    calls: impl AsyncFnMut(u64) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    if size != SIZES[0] {
        return singly(budget / 4, call).await;
    }
    singly(budget / 2, call).await?;
    load(budget / 2, calls).await
}

/// Makes single calls for `budget`.
///
/// # Errors
/// Any error of `call`.
async fn singly(budget: Duration, mut call: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    for _ in 0..WARM_UP {
        call().await?;
    }
    let started = Instant::now();
    let mut singles: BTreeMap<u128, u64> = BTreeMap::new();
    while started.elapsed() < budget / 2 {
        let before = Instant::now();
        call().await?;
        *singles.entry(before.elapsed().as_nanos()).or_default() += 1;
    }
    let middle = singles.values().sum::<u64>() / 2;
    let mut below = 0;
    let median = singles.iter().find(|(_, count)| {
        below += **count;
        below > middle
    });
    let (median, _) = median.context("a round in which nothing was called")?;
    let calls = (BATCH_NS / median.max(&1)).clamp(1, MOST_IN_A_BATCH);
    while started.elapsed() < budget {
        let before = Instant::now();
        for _ in 0..calls {
            call().await?;
        }
        println!("batch {calls} {}", before.elapsed().as_nanos());
    }
    for (ns, count) in singles {
        println!("single {ns} {count}");
    }
    Ok(())
}

/// Makes calls with several open for `budget`; `calls` makes about as many calls as its argument, and returns their number.
///
/// # Errors
/// Any error of `calls`.
async fn load(
    budget: Duration,
    mut calls: impl AsyncFnMut(u64) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    calls(AT_A_TIME).await?;
    let started = Instant::now();
    let mut made = 0;
    while started.elapsed() < budget {
        made += calls(AT_A_TIME).await?;
    }
    println!("load {made} {}", started.elapsed().as_nanos());
    Ok(())
}

/// Large enough that filling and draining the window are negligible.
const AT_A_TIME: u64 = 2_000;

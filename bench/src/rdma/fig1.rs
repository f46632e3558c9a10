//! Registration compared with transfer: the breakdown of the paper's Fig. 1, from the lab and from a model.
//!
//! Under virtual time, a duration is a number of instructions, and soft-RoCE moves every byte by instructions, so its transfer
//! dominates registration. The paper's share therefore comes from a model, and is named so: the measured instructions of registering
//! and deregistering, at a stated rate, compared with a stated wire.

use core::hint::black_box;
use core::time::Duration;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context as _;
use nix::sys::prctl;
use pronto_core::buf::{RingConfig, SendRing};
use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, HeapMemory, Operation, QueuePair as _, Region, Rights, SendWork, Signal,
    Status, WrId,
};
use pronto_fabric_verbs::{Device, Link, Offer};
use pronto_mapping::Mapping;

use super::nodes::Two;
use crate::claim::{Claim, Verdict};
use crate::clock;
use crate::experiment::Run;
use crate::experiments::comm_fig1::SIZES;
use crate::experiments::threshold::{SMALL, copy_is_cheap};
use crate::report::{Fields, Report, decimals};
use crate::sample::a_to_a;

/// The wire of the paper's machines (section 4): 56 Gbit/s; a one-way latency of such hardware.
const WIRE_BYTES_PER_US: f64 = 7_000.0;
const WIRE_LATENCY_US: f64 = 1.0;
/// A current CPU on kernel code, in instructions per nanosecond. The lab's virtual time takes 2 ns for each.
const INSTRUCTIONS_PER_NS: f64 = 3.0;
const LAB_NS_PER_INSTRUCTION: f64 = 2.0;

const ROUNDS: usize = 20;
const QUICK_ROUNDS: usize = 5;
/// Number of loans of a ring for one timing.
const LOANS: u32 = 1_000;
const HUGE_PAGE: usize = 2 << 20;
/// Time after which a transfer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 16,
    receive_depth: 16,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 1 << 20,
};

/// One row, in microseconds of the lab.
#[derive(Clone, Debug, Default)]
struct Row {
    size: usize,
    huge: bool,
    huge_kib: u64,
    register: f64,
    deregister: f64,
    transfer: f64,
    /// A/A of registering and deregistering, on which the claims are based.
    aa: f64,
    memcpy: f64,
    /// `None` for sizes longer than a chunk of the ring.
    ring_slot: Option<f64>,
}

impl Row {
    /// Returns the time of the stated CPU for a time of the lab, in microseconds.
    fn modelled(lab_us: f64) -> f64 {
        lab_us / LAB_NS_PER_INSTRUCTION / INSTRUCTIONS_PER_NS
    }

    /// Returns the share of registering and deregistering in a transfer with both.
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    fn share(&self) -> f64 {
        let setup = Self::modelled(self.register + self.deregister);
        let wire = WIRE_LATENCY_US + self.size as f64 / WIRE_BYTES_PER_US;
        setup / (setup + wire)
    }

    /// Returns registering and deregistering as a multiple of a copy.
    fn setup_per_copy(&self) -> f64 {
        (self.register + self.deregister) / self.memcpy
    }

    fn fields(&self) -> Fields {
        Fields::default()
            .with("size", self.size)
            .with("pages", pages(self.huge))
            .with("huge_kib", self.huge_kib)
            .with("register_us", decimals(self.register, 2))
            .with("deregister_us", decimals(self.deregister, 2))
            .with("transfer_us", decimals(self.transfer, 1))
            .with("memcpy_us", decimals(self.memcpy, 2))
            .with("ring_slot_us", self.ring_slot.map(|slot| decimals(slot, 3)))
            .with("aa", decimals(self.aa, 3))
            .with("modelled_share", decimals(self.share(), 3))
    }
}

fn pages(huge: bool) -> &'static str {
    if huge { "huge" } else { "small" }
}

/// Measures the selected rows. Runs only in the lab.
pub(crate) fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let rounds = if params.quick { QUICK_ROUNDS } else { ROUNDS };
    let mut wanted: Vec<(usize, bool)> = Vec::new();
    for size in SIZES.into_iter().filter(|size| params.keeps("size", size)) {
        let size: usize = size.parse().context("a size is a number")?;
        wanted.extend(
            [false, true]
                .into_iter()
                .filter(|huge| params.keeps("pages", pages(*huge)) && (!huge || size >= HUGE_PAGE))
                .map(|huge| (size, huge)),
        );
    }
    run.progress.begin(wanted.len() as u64);
    let nodes = Two::make()?;
    let mut pair = Pair::new(&nodes)?;
    // Enable huge pages on this machine for all processes that do not disable them.
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always").context("asking for huge pages")?;
    let mut rows = Vec::new();
    for (size, huge) in wanted {
        run.progress.step(&format!("{size} B in {} pages", pages(huge)));
        prctl::set_thp_disable(!huge).context("choosing the pages")?;
        rows.push(measure(&mut pair, size, huge, rounds)?);
    }
    prctl::set_thp_disable(false).context("choosing the pages")?;
    let mut report = Report {
        params: Fields::default()
            .with("rounds", rounds)
            .with("statistic", "median")
            .with("pinned", "yes: registered memory is")
            .with("model_wire_bytes_per_us", decimals(WIRE_BYTES_PER_US, 0))
            .with("model_wire_latency_us", decimals(WIRE_LATENCY_US, 1))
            .with("model_instructions_per_ns", decimals(INSTRUCTIONS_PER_NS, 1)),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    };
    report.note(
        "times are instructions of the emulated machine, 2 ns each; transfer_us is soft-RoCE's, which moves every byte with \
         the CPU. modelled_share is a model: registering and deregistering at the stated rate of instructions, compared with \
         the stated wire",
    );
    report.note("ring_slot_us is a loan of the send ring and its return, which replaces registering");
    Ok(report)
}

/// Two linked devices in this process; the first reads from the second.
struct Pair {
    near: Device,
    near_link: Link,
    far_link: Link,
    _far: Device,
    next: u32,
}

impl Pair {
    fn new(nodes: &Two) -> anyhow::Result<Self> {
        let open = |node: usize| -> anyhow::Result<Device> {
            let address = nodes.0[node].address.parse().context("the node's address")?;
            Device::for_address(address).context("opening a device")
        };
        let (near, far) = (open(0)?, open(1)?);
        let (a, b) = (Offer::new(&near, [LIMITS; 2])?, Offer::new(&far, [LIMITS; 2])?);
        let (of_a, of_b) = (a.bytes(), b.bytes());
        let (mut near_link, mut far_link) = (a.connect(&of_b)?, b.connect(&of_a)?);
        let (a1, b1) = UnixStream::pair().context("a pair of sockets")?;
        let (a2, b2) = UnixStream::pair().context("a pair of sockets")?;
        near_link.attach([a1, a2].map(OwnedFd::from))?;
        far_link.attach([b1, b2].map(OwnedFd::from))?;
        near_link.reaches(PATIENCE)?;
        Ok(Self { near, near_link, far_link, _far: far, next: 0 })
    }

    /// Reads the granted range of the far side.
    fn read(&mut self, local: &Region, from: &Region) -> anyhow::Result<Duration> {
        let len = u64::try_from(from.len()).context("a length")?;
        let grant = self.far_link.bulk.grant(from, 0..len, Rights::READ).context("granting")?;
        self.next += 1;
        let wr = WrId { slot: 0, generation: self.next };
        let operation = Operation::Read { local, local_offset: 0, remote: grant.remote };
        let queue = &mut self.near_link.bulk;
        let before = clock::now();
        queue.post(SendWork { signal: Signal::Signalled(wr), operation }).context("posting a read")?;
        queue.ring_doorbell(DoorbellEvent::Solicited).context("posting a read")?;
        let done = loop {
            if let Some(done) = queue.poll_send() {
                break done;
            }
            anyhow::ensure!(before.elapsed() < PATIENCE, "a read does not end");
        };
        let took = before.elapsed();
        anyhow::ensure!(matches!(done.status, Status::Done(_)), "a read failed: {:?}", done.status);
        self.far_link.bulk.revoke(grant.id).context("revoking")?;
        Ok(took)
    }
}

fn measure(pair: &mut Pair, size: usize, huge: bool, rounds: usize) -> anyhow::Result<Row> {
    let bytes = u32::try_from(size).context("a size")?;
    let before = huge_pages_kib()?;
    let memory = Arc::new(Mapping::new(bytes)?);
    // Fault in every page, because the registration of present memory is measured.
    drop(pair.near.register(&memory, 0..size)?);
    let huge_kib = huge_pages_kib()?.saturating_sub(before);
    let (mut register, mut deregister, mut transfer, mut memcpy) = (vec![], vec![], vec![], vec![]);
    let regions = [(); 2].map(|()| Region::new(Arc::new(HeapMemory::new(size))));
    for region in &regions {
        pair.near_link.bulk.register(region).context("registering")?;
    }
    let (source, mut target) = (vec![1_u8; size], vec![0_u8; size]);
    for _ in 0..rounds {
        let before = clock::now();
        let registered = pair.near.register(&memory, 0..size)?;
        let between = clock::now();
        drop(registered);
        let after = clock::now();
        register.push(between - before);
        deregister.push(after - between);
        transfer.push(pair.read(&regions[0], &regions[1])?);
        let before = clock::now();
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
        memcpy.push(before.elapsed());
    }
    Ok(Row {
        size,
        huge,
        huge_kib,
        aa: a_to_a(
            &register
                .iter()
                .zip(&deregister)
                .map(|(up, down)| (*up + *down).as_secs_f64())
                .collect::<Vec<_>>(),
        ),
        register: median_us(register),
        deregister: median_us(deregister),
        transfer: median_us(transfer),
        memcpy: median_us(memcpy),
        ring_slot: ring_slot_us(size)?,
    })
}

/// Returns the time of a loan and its return, from a ring with memory registered in advance; `None` if `size` exceeds its loans.
fn ring_slot_us(size: usize) -> anyhow::Result<Option<f64>> {
    const RING: u32 = 32 << 20;
    let ring = Arc::new(SendRing::new(Arc::new(Mapping::new(RING)?), RingConfig::default())?);
    if size > ring.max_len() {
        return Ok(None);
    }
    while let Some(chunk) = ring.commit_next() {
        ring.open(chunk);
    }
    let before = clock::now();
    for _ in 0..LOANS {
        let loan = Arc::clone(&ring).loan(size, 0).context("a loan")?;
        drop(black_box(loan));
    }
    Ok(Some(before.elapsed().as_secs_f64() * 1e6 / f64::from(LOANS)))
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Returns the anonymous memory of this process in huge pages, in KiB.
fn huge_pages_kib() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("reading smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.context("smaps_rollup names no huge pages")
}

/// Share from which setting up is most of a transfer.
const HALF: f64 = 0.5;
/// Share of setting up in the paper (section 3.1).
const PUBLISHED: f64 = 0.98;

fn claims(rows: &[Row]) -> Vec<Claim> {
    let small: Vec<&Row> = rows.iter().filter(|row| !row.huge).collect();
    let shares = || small.iter().map(|row| row.share());
    let (most, least) = (shares().fold(0.0, f64::max), shares().fold(1.0, f64::min));
    let copies = small.iter().filter(|row| row.size <= SMALL).map(|row| row.setup_per_copy());
    let copied = copies
        .min_by(f64::total_cmp)
        .map(|times| copy_is_cheap("over verbs, in instructions of the emulated machine", times));
    let shared = (small.len() >= 2).then(|| {
        let detail = "largest share of any size, by a model: measured instructions of registering, a stated rate, a stated wire";
        let whole = Verdict::graded(most >= PUBLISHED, most > HALF);
        let of_any = "least share of any size, by the same model";
        [
            Claim::new("K11", detail, decimals(most, 3), whole).bar(HALF),
            Claim::new("K12", of_any, decimals(least, 3), least > HALF).bar(HALF),
        ]
    });
    shared.into_iter().flatten().chain(copied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_compares_setup_with_the_wire() {
        // 42 us of the lab are 21,000 instructions, 7 us at the stated rate; 42,000 bytes take 1 + 6 us.
        let row = Row { size: 42_000, register: 36.0, deregister: 6.0, ..Row::default() };
        assert!((row.share() - 0.5).abs() < 1e-9, "{}", row.share());
        assert_eq!(Row { aa: 0.5, ..row.clone() }.fields().value("aa"), Some(&serde_json::json!(0.5)));
    }

    #[test]
    fn verdicts_follow_the_largest_and_the_least_share_and_the_copy() {
        let row = |size, register, memcpy| Row { size, register, memcpy, ..Row::default() };
        let verdicts = |rows: &[Row]| {
            claims(rows).into_iter().map(|claim| (claim.id, claim.verdict)).collect::<Vec<_>>()
        };
        let (holds, part, fails) = (Verdict::Holds, Verdict::InPart, Verdict::DoesNotHold);
        // One microsecond of the stated CPU is 6 us of the lab.
        let rows = [row(4096, 900.0, 1.0), row(65536, 900.0, 20.0)];
        assert_eq!(verdicts(&rows), [("K11", holds), ("K12", holds), ("K32", holds)]);
        let rows = [row(4096, 30.0, 20.0), row(42_000_000, 42.0, 20.0)];
        assert_eq!(verdicts(&rows), [("K11", part), ("K12", fails), ("K32", part)]);
        let rows = [row(4096, 4.0, 20.0), row(42_000_000, 42.0, 20.0)];
        assert_eq!(verdicts(&rows), [("K11", fails), ("K12", fails), ("K32", fails)]);
        assert!(verdicts(&[row(65536, 900.0, 20.0)]).is_empty());
    }
}

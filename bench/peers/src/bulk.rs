//! Long messages over iceoryx2, for `pronto-bench bulk`: copied into a loan, read in place, and answered with their sum.
//!
//! `pronto-peers bulk iceoryx2 ROUND_MS SENDER_CPU RECEIVER_CPU SIZE:OPEN...`; `bench/src/bulk/round.rs` in Pronto has the format of the
//! output, and `bench/peers/c/bulk.h` the same round in C.

use core::hint::black_box;
use core::time::Duration;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context as _;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use crate::{server, version_of};

#[path = "../../src/bulk/sum.rs"]
mod sum;

/// Messages of one length, and the number of them under way.
#[derive(Clone, Copy)]
struct Cell {
    bytes: usize,
    open: usize,
}

/// Receives messages until the sender has ended.
///
/// # Errors
/// If a service cannot be created, or fails.
pub fn serve(open: usize, bytes: usize) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let cell = Cell { bytes, open };
    let name = format!("pronto-peers/{}", std::process::id());
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    let messages = messages(&node, &name, cell)?.subscriber_builder().create().context("a subscriber")?;
    let sums = sums(&node, &name, cell)?.publisher_builder().create().context("a publisher")?;
    server::say(&name)?;
    while !server::ENDS.load(Ordering::Relaxed) {
        if let Some(message) = messages.receive()? {
            let sum = sum::of(&message);
            drop(message);
            sums.loan_uninit()?.write_payload(sum).send()?;
        }
    }
    Ok(())
}

/// Sends the cells of a round.
///
/// # Errors
/// If an argument is invalid, or a message fails.
pub fn send(budget: Duration, cpu: &str, cells: &[&str]) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    println!("version iceoryx2 {}", version_of("iceoryx2"));
    let bytes = vec![7; READ];
    let time = |_| {
        let started = Instant::now();
        black_box(sum::of(black_box(&bytes)));
        started.elapsed().as_nanos()
    };
    println!("read {READ} {}", (0..READ_TIMES).map(time).min().unwrap_or_default());
    for argument in cells {
        let (bytes, open) = argument.split_once(':').context("expected SIZE:OPEN")?;
        let server = server::Server::spawn(["bulk", open, cpu, bytes])?;
        let cell = Cell { bytes: bytes.parse()?, open: open.parse()? };
        let (count, time) = send_cell(&server.address, cell, budget)?;
        println!("cell {bytes} {open} {count} {}", time.as_nanos());
    }
    Ok(())
}

fn send_cell(name: &str, cell: Cell, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    let publisher = messages(&node, name, cell)?
        .publisher_builder()
        .initial_max_slice_len(cell.bytes)
        .create()
        .context("a publisher")?;
    let subscriber = sums(&node, name, cell)?.subscriber_builder().create().context("a subscriber")?;
    let byte = |at: usize, slot: usize| (at * 7 + at / 4096 + slot).to_le_bytes()[0];
    let message = |slot| {
        let mut message: Vec<u8> = (0..cell.bytes).map(|at| byte(at, slot)).collect();
        stamp(&mut message, 0);
        message
    };
    let mut sources: Vec<_> = (0..cell.open).map(message).collect();
    let expected: Vec<_> = sources.iter().map(|source| sum::of(source)).collect();
    let (mut sent, mut answered) = (0_u64, 0_u64);
    let slot =
        |number: u64| usize::try_from(number % cell.open as u64).expect("less than the number of slots");
    let mut pass = |least: u64, budget: Duration| {
        let (first, started) = (sent, Instant::now());
        loop {
            let is_over = sent - first >= least && started.elapsed() >= budget;
            if is_over && answered == sent {
                return anyhow::Ok(sent - first);
            }
            if is_over || sent - answered == cell.open as u64 {
                let sum = loop {
                    if let Some(sum) = subscriber.receive()? {
                        break *sum;
                    }
                };
                let right = expected[slot(answered)].wrapping_add(answered);
                anyhow::ensure!(sum == right, "message {answered} was changed on its way");
                answered += 1;
            }
            if !is_over {
                let source = &mut sources[slot(sent)];
                stamp(source, sent);
                publisher.loan_slice_uninit(cell.bytes)?.write_from_slice(black_box(source)).send()?;
                sent += 1;
            }
        }
    };
    let least = 2 * cell.open as u64;
    pass(least, Duration::ZERO)?;
    let started = Instant::now();
    let count = pass(least, budget)?;
    Ok((count, started.elapsed()))
}

/// Sets the number of a message, its second word.
fn stamp(message: &mut [u8], number: u64) {
    message[8..16].copy_from_slice(&number.to_le_bytes());
}

fn messages(
    node: &Node<ipc::Service>,
    name: &str,
    cell: Cell,
) -> anyhow::Result<PortFactory<ipc::Service, [u8], ()>> {
    node.service_builder(&format!("{name}/message").as_str().try_into()?)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(cell.open)
        .enable_safe_overflow(false)
        .open_or_create()
        .context("a service for messages")
}

fn sums(
    node: &Node<ipc::Service>,
    name: &str,
    cell: Cell,
) -> anyhow::Result<PortFactory<ipc::Service, u64, ()>> {
    node.service_builder(&format!("{name}/sum").as_str().try_into()?)
        .publish_subscribe::<u64>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(cell.open)
        .enable_safe_overflow(false)
        .open_or_create()
        .context("a service for sums")
}

/// Length of the buffer of which the sum alone is timed, and number of sums.
const READ: usize = 1 << 20;
const READ_TIMES: u32 = 16;

//! A peer of fabric-verbs that shares no code with it or with the rest of Pronto, implemented with the `ibverbs` crate
//! from docs/protocol.md only.
//!
//! `verbs-peer ADDRESS` opens the device whose port has that address, and reads lines from stdin:
//!
//! | line | response |
//! |---|---|
//! | `connect OFFER` (hexadecimal) | `offer OFFER KEY ADDRESS`: this side's offer, and the key and address of a region of 4,096 bytes |
//! | `echo CLASS N` | receives N messages of that class (0 or 1), and responds to each with its payload reversed, or with "taken" to a payload that waits; `echoed BYTES`, their lengths |
//! | `claim CLASS LEN WINDOW` | offers a payload of that length, with a key that grants no access; `claimed` |
//! | `show` | `region BYTES` (hexadecimal) |
//!
//! It ends at the end of stdin, and at the first error.

mod connection;
mod wire;

use core::net::Ipv4Addr;
use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result, bail};
use ibverbs::{Context, ibv_gid_type};

use connection::Connection;
use wire::{Offer, hex, unhex};

/// Length of the region that the other side may read and write, in 64-bit words.
const WORDS: usize = 512;
/// `IBV_GID_TYPE_ROCE_V2`, which the crate does not export.
const ROCE_V2: ibv_gid_type = 2;

/// Returns the device whose port has this address, with the index of the address in the port's table.
fn open(address: Ipv4Addr) -> Result<(Context, u32)> {
    // An IPv4 address in RoCE's format: ::ffff:a.b.c.d.
    let interface = 0xffff_0000_0000 | u64::from(u32::from(address));
    for device in &ibverbs::devices().context("no RDMA devices")? {
        let Ok(context) = device.open() else { continue };
        let found = context.gid_table().iter().find(|entry| {
            entry.gid_type == ROCE_V2
                && (entry.gid.subnet_prefix(), entry.gid.interface_id()) == (0, interface)
        });
        if let Some(index) = found.map(|entry| entry.gid_index) {
            return Ok((context, index));
        }
    }
    bail!("no RDMA port has the address {address}")
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("usage: verbs-peer ADDRESS")?;
    let address: Ipv4Addr = address.parse().context("not an IPv4 address")?;
    let (context, gid_index) = open(address)?;
    let domain = context.alloc_pd()?;
    let queues = [context.create_cq(256, 0)?, context.create_cq(256, 1)?];
    let mut region = domain.allocate::<u64>(WORDS)?;
    for (number, word) in region.iter_mut().enumerate() {
        *word = number as u64;
    }
    let mut connections: Vec<Connection<'_>> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> Result<usize> {
            words.get(at).context("missing argument")?.parse().context("not a number")
        };
        let answer = match words[..] {
            ["connect", offer] => {
                let theirs = Offer::read(&unhex(offer)?)?;
                let mut ends = Vec::new();
                for (class, queue) in queues.iter().enumerate() {
                    let (connection, end) = Connection::new(&domain, queue, gid_index, &theirs, class)?;
                    connections.push(connection);
                    ends.push(end);
                }
                let ours = Offer { ends, address, ..theirs };
                format!("offer {} {} {}", hex(&ours.bytes()), region.rkey().key, region.as_ptr() as u64)
            }
            ["echo", ..] => {
                let connection = connections.get_mut(number(1)?).context("invalid class")?;
                let lengths = (0..number(2)?).map(|_| connection.echo().map(|len| format!(" {len}")));
                format!("echoed{}", lengths.collect::<Result<String>>()?)
            }
            ["claim", ..] => {
                let [len, window] = [number(2)?, number(3)?].map(u32::try_from);
                let connection = connections.get_mut(number(1)?).context("invalid class")?;
                connection.claim(len?, window?)?;
                "claimed".to_owned()
            }
            ["show"] => {
                let bytes: Vec<u8> = region.iter().flat_map(|word| word.to_le_bytes()).collect();
                format!("region {}", hex(&bytes))
            }
            _ => bail!("unknown command: {line}"),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

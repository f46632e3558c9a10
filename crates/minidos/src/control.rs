//! What the supervisor and its node processes say to each other: one JSON value per line, commands on the node's
//! standard input, notices on its standard output.
//!
//! The end of a node's input means that the supervisor is gone, however it went; the node then ends at once.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::account::{Faults, Traffic};
use crate::data::Source;
use crate::kmeans::Task;

/// To a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// First of all: who it is.
    Setup(Setup),
    /// Say how many messages were sent and received.
    Count,
    /// Say everything.
    Report,
}

/// What a node needs to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Its number, from 1.
    pub node: u16,
    /// How many there are.
    pub nodes: u16,
    /// Where it listens.
    pub listen: Vec<String>,
    /// What carries its links to other hosts, where it may have some.
    pub between_hosts: Option<BetweenHosts>,
    /// Nodes that run already, and where they listen.
    pub peers: Vec<(u16, Vec<String>)>,
    /// Frames of its page cache.
    pub frames: usize,
    /// The data.
    pub source: Source,
    /// What to compute.
    pub task: Task,
}

/// What carries links between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetweenHosts {
    /// RDMA where both ends have it, else TCP.
    Best,
    /// TCP alone.
    Tcp,
    /// RDMA alone.
    Rdma,
}

/// From a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// It listens here.
    Listening(Vec<String>),
    /// All others have said that they are there.
    Joined,
    /// So many iterations are done.
    Iterated(u32),
    /// Its part is done.
    Finished(Option<Found>),
    /// Messages sent and received, by type.
    Counts(Vec<(u64, u64)>),
    /// Everything that it counted.
    Report(Box<NodeReport>),
    /// It cannot go on.
    Failed(String),
}

/// The result, as the origin reads it from shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The bits of the centres, so that not one is lost on the way.
    pub centres: Vec<u64>,
    /// Iterations.
    pub iterations: u32,
}

/// What a node counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Messages by type.
    pub traffic: Traffic,
    /// Causes, in the order of [`crate::account::Cause::ALL`].
    pub causes: Vec<u64>,
    /// What went wrong on the way.
    pub faults: Faults,
    /// Messages that had to wait for room before they were posted.
    pub waits_for_room: u64,
    /// Counters of the communication layer, summed over peers.
    pub counters: Vec<(String, u64)>,
    /// The providers that the links run over.
    pub providers: Vec<String>,
}

/// Writes one line.
///
/// # Errors
/// If the other end is gone.
pub fn say<T: Serialize>(out: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reads one line; `None` at the end.
///
/// # Errors
/// If the other end says something else.
pub fn hear<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let found = Found { centres: vec![0.1_f64.to_bits(), f64::NAN.to_bits()], iterations: 3 };
        let notices = [Notice::Joined, Notice::Finished(Some(found)), Notice::Counts(vec![(1, 2)])];
        let mut wire = Vec::new();
        for notice in &notices {
            say(&mut wire, notice).unwrap();
        }
        let mut input = &*wire;
        for notice in notices {
            assert_eq!(hear(&mut input).unwrap(), Some(notice));
        }
        assert_eq!(hear::<Notice>(&mut input).unwrap(), None);
    }

    #[test]
    fn something_else_is_an_error() {
        assert!(hear::<Notice>(&mut &b"hello\n"[..]).is_err());
        assert!(hear::<Command>(&mut &b"{\"setup\":{}}\n"[..]).is_err());
    }
}

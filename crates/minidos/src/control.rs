//! The control protocol between the supervisor and its node processes: one JSON value per line, commands on the node's
//! standard input, notices on its standard output.
//!
//! The end of a node's input means that the supervisor is gone. The node then exits immediately.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::account::{Faults, Traffic};
use crate::data::Source;
use crate::kmeans::Task;

/// Command to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Configuration of the node; the first command.
    Setup(Setup),
    /// Request for [`Notice::Counts`].
    Count,
    /// Request for [`Notice::Report`].
    Report,
}

/// Configuration of a node process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Number of the node, from 1.
    pub node: u16,
    /// Number of nodes.
    pub nodes: u16,
    /// Addresses at which the node listens.
    pub listen: Vec<String>,
    /// Transport of links to other hosts; `None` if all nodes run on this host.
    pub between_hosts: Option<BetweenHosts>,
    /// Nodes that already run, and their addresses.
    pub peers: Vec<(u16, Vec<String>)>,
    /// Frames of the node's page cache.
    pub frames: usize,
    /// Source of the data.
    pub source: Source,
    /// Computation to run.
    pub task: Task,
}

/// Transport of links between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetweenHosts {
    /// RDMA if both ends support it, TCP otherwise.
    Best,
    /// TCP only.
    Tcp,
    /// RDMA only.
    Rdma,
}

/// Notice from a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// Addresses at which the node listens.
    Listening(Vec<String>),
    /// All other nodes have announced themselves to this one.
    Joined,
    /// Number of iterations completed.
    Iterated(u32),
    /// The node's part is done; the origin includes the result.
    Finished(Option<Found>),
    /// Messages sent and received, by type.
    Counts(Vec<(u64, u64)>),
    /// All counts of the node.
    Report(Box<NodeReport>),
    /// The node failed, with this error.
    Failed(String),
}

/// The result, as the origin reads it from shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Centres as IEEE 754 bit patterns, so that JSON cannot change a bit.
    pub centres: Vec<u64>,
    /// Iterations.
    pub iterations: u32,
}

/// Counts of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Messages by type.
    pub traffic: Traffic,
    /// Causes, in the order of [`crate::account::Cause::ALL`].
    pub causes: Vec<u64>,
    /// Transmission faults.
    pub faults: Faults,
    /// Messages that had to wait for room before they were posted.
    pub waits_for_room: u64,
    /// Counters of the communication layer, summed over peers.
    pub counters: Vec<(String, u64)>,
    /// Names of the providers that carry the links.
    pub providers: Vec<String>,
}

/// Writes one value as a line.
///
/// # Errors
/// I/O errors, for example if the other end is gone.
pub fn write_line<T: Serialize>(out: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reads one value from a line; `None` at the end of the input.
///
/// # Errors
/// I/O errors, or the parser's error if the line is not a `T`.
pub fn read_line<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> io::Result<Option<T>> {
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
    fn values_survive_a_round_trip() {
        let found = Found { centres: vec![0.1_f64.to_bits(), f64::NAN.to_bits()], iterations: 3 };
        let notices = [Notice::Joined, Notice::Finished(Some(found)), Notice::Counts(vec![(1, 2)])];
        let mut wire = Vec::new();
        for notice in &notices {
            write_line(&mut wire, notice).unwrap();
        }
        let mut input = &*wire;
        for notice in notices {
            assert_eq!(read_line(&mut input).unwrap(), Some(notice));
        }
        assert_eq!(read_line::<Notice>(&mut input).unwrap(), None);
    }

    #[test]
    fn malformed_lines_are_errors() {
        assert!(read_line::<Notice>(&mut &b"hello\n"[..]).is_err());
        assert!(read_line::<Command>(&mut &b"{\"setup\":{}}\n"[..]).is_err());
    }
}

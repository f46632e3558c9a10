//! The standard tools for measuring RDMA, run between two nodes: `ibv_rc_pingpong` (libibverbs) and `ib_send_lat`
//! (perftest). They are separate programs that print their results.

use core::time::Duration;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::Context as _;

use super::nodes::{LabNode, Two};
use crate::clock;
use crate::params::{Choice as _, choices};
use crate::placement::{CpuPair, pin};

choices! {
    /// A tool that sends messages of one size in both directions.
    pub(crate) enum Tool {
        /// `ibv_rc_pingpong`; prints the time of a round trip.
        Pingpong = "ibv_rc_pingpong",
        /// `ib_send_lat`; prints half of one.
        SendLat = "ib_send_lat",
    }
}

/// Limit of a tool's start and of its run.
const PATIENCE: Duration = Duration::from_secs(60);

impl Tool {
    const fn port(self) -> u16 {
        match self {
            Self::Pingpong => 18_515,
            Self::SendLat => 18_516,
        }
    }

    fn command(self, node: &LabNode, bytes: usize, rounds: u32, events: bool) -> Command {
        // The tool ends even if this process does not end it.
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(self.name());
        command.args(["-d", &node.device, "-s", &bytes.to_string(), "-n", &rounds.to_string()]);
        command.args(["-p", &self.port().to_string()]);
        match self {
            Self::Pingpong => command.args(["-g", &node.gid]),
            // -F: do not read the CPU's clock rate, which is unknown here.
            Self::SendLat => command.args(["-x", &node.gid, "-F"]),
        };
        if events {
            command.arg("-e");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the mean of `rounds` round trips in microseconds. The first node serves on the server's CPU, the second calls on
    /// the caller's. The calling thread remains in the second node's namespace and on the caller's CPU.
    pub(crate) fn round_trip_us(
        self,
        nodes: &Two,
        cpus: CpuPair,
        bytes: usize,
        rounds: u32,
        events: bool,
    ) -> anyhow::Result<f64> {
        let [server, caller] = &nodes.0;
        server.enter()?;
        pin(cpus.server)?;
        let mut serving =
            Ended(self.command(server, bytes, rounds, events).spawn().context("starting a tool")?);
        self.wait_until_it_listens(&mut serving)?;
        caller.enter()?;
        pin(cpus.caller)?;
        let called = self.command(caller, bytes, rounds, events).arg(&server.address).output();
        let called = called.with_context(|| format!("starting {}", self.name()))?;
        let text = String::from_utf8_lossy(&called.stdout);
        anyhow::ensure!(
            called.status.success(),
            "{} failed: {text}{}",
            self.name(),
            String::from_utf8_lossy(&called.stderr)
        );
        self.parse(&text).with_context(|| format!("{} printed something else: {text}", self.name()))
    }

    /// Waits until the tool's process has a listening socket at its port.
    fn wait_until_it_listens(self, serving: &mut Ended) -> anyhow::Result<()> {
        let until = clock::now() + PATIENCE;
        let port = format!(":{:04X} ", self.port());
        // The tool's process is in the namespace of its sockets.
        let listening = |file: &str| {
            let text = fs::read_to_string(format!("/proc/{}/net/{file}", serving.0.id())).unwrap_or_default();
            text.lines().any(|line| line.contains(&port) && line.split_whitespace().nth(3) == Some(LISTEN))
        };
        while !(listening("tcp") || listening("tcp6")) {
            anyhow::ensure!(clock::now() < until, "{} does not listen", self.name());
            thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }

    fn parse(self, text: &str) -> Option<f64> {
        match self {
            // `300 iters in 0.06 seconds = 201.48 usec/iter`
            Self::Pingpong => {
                let line = text.lines().find(|line| line.ends_with("usec/iter"))?;
                line.rsplit_once('=')?.1.split_whitespace().next()?.parse().ok()
            }
            // `#bytes #iterations t_min t_max t_typical t_avg t_stdev ...`, of half a round trip.
            Self::SendLat => {
                let mut lines = text.lines().skip_while(|line| !line.contains("t_avg"));
                let header = lines.next()?;
                let values = lines.next()?;
                let column = header.split_whitespace().position(|word| word.starts_with("t_avg"))?;
                let half: f64 = values.split_whitespace().nth(column)?.parse().ok()?;
                Some(2.0 * half)
            }
        }
    }
}

/// The kernel's number for a socket that listens, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A tool that is killed when dropped.
#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only if the tool has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_tools_is_parsed() {
        let text =
            "8192 bytes in 0.06 seconds = 1.1 Mbit/sec\n300 iters in 0.06 seconds = 201.48 usec/iter\n";
        assert_eq!(Tool::Pingpong.parse(text), Some(201.48));
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n \
                    64      300          72.31          210.00       80.12     \t       85.5        \t3.02\n";
        assert_eq!(Tool::SendLat.parse(text), Some(171.0));
        assert_eq!(Tool::Pingpong.parse("failed"), None);
    }
}

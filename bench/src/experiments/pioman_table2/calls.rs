//! Calls of 32 bytes between two nodes with the same engine.

use core::time::Duration;

use anyhow::Context as _;
use pronto::WaitPolicy;
use pronto::progress::Engine;

use super::{Kind, Row};
use crate::echo::{Provider, SIZES, Server, Wait};
use crate::placement::{CpuPair, alone};
use crate::sample::Recorder;

/// The echo services of the rows that call.
pub(super) struct Calls {
    servers: Vec<(Provider, Engine, Server)>,
    cpus: Option<CpuPair>,
}

impl Calls {
    pub(super) fn meet(rows: &[Row], cpus: Option<CpuPair>) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        for row in rows {
            if let (Kind::Call(provider, engine), Some(cpus)) = (row.kind, cpus) {
                let server = Server::spawn_with(provider, Wait(WaitPolicy::Spin), engine, cpus.server)?;
                servers.push((provider, engine, server));
            }
        }
        Ok(Self { servers, cpus })
    }

    /// Returns the median time of a call, with the other servers stopped.
    pub(super) fn round(&self, kind: Kind, budget: Duration) -> anyhow::Result<f64> {
        let (Kind::Call(provider, engine), Some(cpus)) = (kind, self.cpus) else {
            anyhow::bail!("this row is not a call, or has only one CPU")
        };
        let is_it = |server: &&(Provider, Engine, Server)| (server.0, server.1) == (provider, engine);
        let mut stopped = Vec::new();
        for other in self.servers.iter().filter(|server| !is_it(server)) {
            stopped.push(other.2.child.stop()?);
        }
        let (_, _, server) = self.servers.iter().find(is_it).context("no server was started for this row")?;
        let size =
            SIZES.iter().find(|size| size.bytes == 32).context("32 bytes is not among the measured sizes")?;
        let mut seen = Recorder::new();
        alone(cpus.caller, || {
            let (_client, peer) = server.meet_with(Wait(WaitPolicy::Spin), engine)?;
            size.measure(&peer, budget, &mut seen)
        })?;
        drop(stopped);
        Ok(seen.sample().batch_ns)
    }
}

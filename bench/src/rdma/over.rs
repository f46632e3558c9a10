//! Transports of an experiment's traffic: those of this host, or RDMA between two nodes of the lab.
//!
//! A run uses one or the other, because the lab is another machine. With `--provider verbs`, the experiment runs there.

use pronto::Rdma;
use pronto_core::session::Doorbells;

use super::VERBS;
use super::nodes::Two;
use crate::echo::{Provider, Wait};
use crate::home::Home;
use crate::lab::Lab;
use crate::params::Params;
use crate::placement::Cpu;
use crate::traffic::receiver::Receiver;

/// Values of the column, in experiments that have both.
pub(crate) const PROVIDERS: [&str; 3] = ["shm", "tcp", VERBS];
/// Help of the column.
pub(crate) const PROVIDER_HELP: &str = "Only these transports; verbs alone, which is measured in the lab";

/// Limit in seconds for boot, nodes, and an experiment of a minute.
const LAB_LIMIT: u32 = 900;

/// A transport.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over<'a> {
    /// A transport of this host.
    Here(Provider),
    /// RDMA from the second node to the first.
    Nodes(&'a Two),
}

/// Returns whether the user selected verbs. Without a choice, the transports of this host are measured.
pub(crate) fn is_asked(params: &Params) -> bool {
    params.chosen().any(|(column, values)| column == "provider" && values.iter().any(|value| value == VERBS))
}

/// Returns the machine for the selected rows; `None` for this host.
pub(crate) fn lab(params: &Params) -> anyhow::Result<Option<Lab>> {
    if !is_asked(params) {
        return Ok(None);
    }
    anyhow::ensure!(
        Provider::ALL.iter().all(|provider| !params.keeps("provider", provider.name())),
        "verbs is measured on another machine than shm and tcp: select it alone"
    );
    Ok(Some(Lab { verbs: true, limit: LAB_LIMIT, ..Lab::PLAIN }))
}

/// Returns the lab's nodes, if verbs was selected.
pub(crate) fn nodes(params: &Params) -> anyhow::Result<Option<Two>> {
    is_asked(params).then(Two::make).transpose()
}

/// Returns the selected transports.
pub(crate) fn all<'a>(params: &Params, nodes: Option<&'a Two>) -> Vec<Over<'a>> {
    let here = Provider::ALL.into_iter().filter(|provider| params.keeps("provider", provider.name()));
    here.map(Over::Here).chain(nodes.map(Over::Nodes)).collect()
}

impl Over<'_> {
    /// Returns the value of the column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Here(provider) => provider.name(),
            Self::Nodes(_) => VERBS,
        }
    }

    /// Starts a receiver. The calling thread, and threads that it starts later, are then in the other node.
    pub(crate) fn spawn(self, wait: Wait, cpu: Cpu, doorbells: Doorbells) -> anyhow::Result<Receiver> {
        match self {
            Self::Here(provider) => Receiver::spawn_with(provider, wait, cpu, doorbells),
            Self::Nodes(Two([there, here])) => {
                there.enter()?;
                let home = Home { listen: format!("tcp:{}:0", there.address), rdma: Rdma::Require };
                let receiver = Receiver::spawn_at(&home, wait, cpu, doorbells);
                here.enter()?;
                receiver
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(providers: &[&str]) -> Params {
        let mut params = Params::new();
        params.choose("provider", providers.iter().map(|&provider| provider.to_owned()).collect());
        params
    }

    #[test]
    fn verbs_is_selected_by_name_and_alone() {
        let names = |params: &Params| all(params, None).into_iter().map(Over::name).collect::<Vec<_>>();
        assert_eq!(names(&Params::new()), ["shm", "tcp"]);
        assert!(lab(&Params::new()).is_ok_and(|lab| lab.is_none()));
        assert_eq!(names(&asked(&["tcp"])), ["tcp"]);
        assert!(names(&asked(&[VERBS])).is_empty(), "its nodes are in the lab");
        assert!(lab(&asked(&[VERBS])).is_ok_and(|lab| lab.is_some_and(|lab| lab.verbs)));
        assert!(lab(&asked(&[VERBS, "tcp"])).is_err());
    }
}

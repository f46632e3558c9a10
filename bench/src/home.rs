//! Addresses of serving children, and the arguments that tell a child its address.

use pronto::Rdma;

use crate::side::Arguments;

/// Address of a server, on this host or on a node of the lab, and the transport of its links.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// The address, as in a node's configuration.
    pub(crate) listen: String,
    /// Whether links that begin over TCP use RDMA.
    pub(crate) rdma: Rdma,
}

impl Home {
    /// An address of this host, without RDMA.
    pub(crate) const fn here(listen: String) -> Self {
        Self { listen, rdma: Rdma::Off }
    }

    /// Reads the arguments `listen` and `rdma` of a child.
    pub(crate) fn of(arguments: &Arguments<'_>) -> anyhow::Result<Self> {
        let rdma = if arguments.text("rdma")? == REQUIRE { Rdma::Require } else { Rdma::Off };
        Ok(Self { listen: arguments.text("listen")?.to_owned(), rdma })
    }

    /// Returns the value of the argument `rdma`.
    pub(crate) fn rdma_argument(&self) -> &'static str {
        if self.rdma == Rdma::Require { REQUIRE } else { "off" }
    }
}

/// Value of the argument `rdma` of a service whose links must use RDMA.
const REQUIRE: &str = "require";

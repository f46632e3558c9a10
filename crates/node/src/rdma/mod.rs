//! RDMA between two nodes: tried once they have greeted each other by TCP, on the device whose port has the address of that
//! connection. TCP carries the link where that does not work out, and says why.
//!
//! ```text
//! dialler                               acceptor
//!   offer, or nothing  ──────────────►
//!                      ◄──────────────  offer, or nothing
//!   tries; verdict     ──────────────►
//!                      ◄──────────────  tries; verdict
//! ```
//!
//! Everything goes as set-up messages of the TCP handshake, and only if both greetings had the feature bit.

#[cfg_attr(feature = "verbs", path = "with_verbs.rs")]
#[cfg_attr(not(feature = "verbs"), path = "without_verbs.rs")]
mod provider;

use serde::Deserialize;

pub(crate) use provider::{Device, Devices, Lifeline, Link};

/// Whether a node's links go over RDMA.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Rdma {
    /// Where both ends have a device that reaches the other.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Between hosts, or there is no link.
    Require,
}

/// What was tried came to a link, or did not, for this reason.
pub(crate) type Tried = Result<Link, String>;

//! RDMA between two nodes. It is tried after the greetings over TCP, on the device whose port has the address of that connection. If it
//! fails, TCP carries the link, and the reason is recorded.
//!
//! ```text
//! dialler                               acceptor
//!   offer, or nothing  ──────────────►
//!                      ◄──────────────  offer, or nothing
//!   tries; verdict     ──────────────►
//!                      ◄──────────────  tries; verdict
//! ```
//!
//! These are set-up messages of the TCP handshake. They are sent only if both greetings had the feature bit.

#[cfg_attr(feature = "verbs", path = "with_verbs.rs")]
#[cfg_attr(not(feature = "verbs"), path = "without_verbs.rs")]
mod provider;

use serde::Deserialize;

pub(crate) use provider::{Device, Devices, Lifeline, Link};

/// Use of RDMA for a node's links.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Rdma {
    /// RDMA if both ends have a device that reaches the other end; TCP otherwise.
    #[default]
    Auto,
    /// No RDMA.
    Off,
    /// RDMA for all links between hosts; if it fails, there is no link.
    Require,
}

/// Result of an attempt: the link, or the reason why there is none.
pub(crate) type Tried = Result<Link, String>;

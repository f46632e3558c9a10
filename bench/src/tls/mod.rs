//! TLS over TCP: certificates for the length of a run, and the set-up of links.

pub(crate) mod certificates;
pub(crate) mod links;

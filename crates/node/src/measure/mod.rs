//! Measurements of this host, on which decisions of a node rest.

pub(crate) mod calibrate;
pub(crate) mod threshold;

//! The composition root: picks providers, and owns the threads, the clock and the connections.
//!
//! A [`Node`] has one serving thread, which receives messages, runs inline handlers and does the periodic work; a pool of workers for
//! all other handlers; and a links thread, which dials peers and watches peer processes. Callers poll for themselves.
#![deny(unsafe_code)]

pub mod address;
pub mod admin;
mod attempts;
mod boost;
mod builder;
mod calibrate;
mod checks;
pub mod config;
mod error;
mod events;
mod flight;
mod guard;
mod host;
mod interfaces;
mod links;
mod node;
mod placement;
mod pool;
mod queue_pair;
mod rdma;
pub mod recorder;
mod refusals;
mod sched_class;
mod serving;
mod shape;
mod sink;
mod system;
mod threshold;
mod waiting;
mod waits;

pub use address::Address;
pub use boost::Boost;
pub use builder::{Builder, SPIN_DOWN};
pub use calibrate::wake_up_cost;
pub use config::{Config, ConfigError};
pub use error::NodeError;
pub use events::{Events, HELD as EVENTS_HELD, Missed};
pub use host::NodeHost;
pub use node::{Down, Node, PeerStatus, Status, region};
pub use pronto_progress as progress;
pub use pronto_topology as topology;
pub use queue_pair::{AnyLease, AnyQueuePair};
pub use rdma::Rdma;
pub use sink::ServingSink;
pub use threshold::measure_soon as measure_thresholds;
pub use waits::ContentionCause;

//! The composition root: picks providers, and owns the threads, the clock and the connections.
//!
//! A [`Node`] has one serving thread, which receives messages, runs inline handlers and does the periodic work; a pool of workers for
//! all other handlers; and a links thread, which dials peers and watches peer processes. Callers poll for themselves.
#![deny(unsafe_code)]

mod access;
mod builder;
pub mod config;
mod error;
mod host;
mod links;
mod measure;
mod node;
mod pressure;
mod queue_pair;
mod rdma;
pub mod recorder;
mod serving;
mod status;
mod system;
mod threads;
mod trust;
mod waits;

pub use access::RuleError;
pub use builder::{Builder, SPIN_DOWN};
pub use config::address::{self, Address};
pub use config::coschedule::{CoscheduleConfig, CoscheduleGroup, PastConfig};
pub use config::{Config, ConfigError};
pub use error::NodeError;
pub use host::NodeHost;
pub use links::Connect;
pub use measure::calibrate::wake_up_cost;
pub use measure::threshold::measure_soon as measure_thresholds;
pub use node::{Down, Node, PeerStatus, Status, map_file, region};
pub use pronto_progress as progress;
pub use pronto_topology as topology;
pub use pronto_trust as credentials;
pub use queue_pair::{AnyLease, AnyQueuePair};
pub use rdma::Rdma;
pub use serving::futures::{HandlerFuture, MAX_FUTURES};
pub use serving::sink::ServingSink;
pub use status::admin;
pub use status::events::{Events, HELD as EVENTS_HELD, Missed};
pub use threads::boost::Boost;
pub use waits::contention::ContentionCause;

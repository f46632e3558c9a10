//! Dispatch of handler executions. Lanes keep the order within a type or key, and the ready queue starts control messages before bulk
//! messages.

mod lanes;
mod ready;

pub use lanes::Lanes;
pub use ready::Ready;

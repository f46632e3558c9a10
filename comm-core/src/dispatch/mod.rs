//! Where handlers run and in which order: lanes keep what must be kept in order, of what may run now control goes before bulk.

mod lanes;
mod ready;

pub use lanes::Lanes;
pub use ready::Ready;

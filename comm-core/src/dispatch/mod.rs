//! Where handlers run and in which order: lanes keep what must be kept in order, everything else is free to overtake.

mod lanes;

pub use lanes::Lanes;

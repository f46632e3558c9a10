//! Recorded machines, and some written from the kernel's documentation, read in the same way as the running machine.

mod bad;
mod machine;
mod placing;
mod reading;

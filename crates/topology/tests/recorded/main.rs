//! Machines that were recorded, or written from the kernel's documentation, read as the one that this runs on is.

mod bad;
mod machine;
mod placing;
mod reading;

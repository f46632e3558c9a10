//! Tasks: calls and messages that await room to send, with a hand-made executor that counts the polls and wake-ups of each task.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod dropped;
mod executor;
mod handlers;
mod peers;
mod rig;
mod room;
mod runtimes;
mod transfers;
mod window;

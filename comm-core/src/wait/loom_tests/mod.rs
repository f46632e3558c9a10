//! Waiting under all interleavings, explored by loom.

mod poller_role;
mod sleep;

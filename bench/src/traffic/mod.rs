//! Traffic of one kind at full speed: pipelined calls, one-way messages, synchronous sends, large payloads; and the child that
//! takes it in and counts.
//!
//! | module | what |
//! | --- | --- |
//! | [`messages`] | the payloads, and how many were received |
//! | [`receiver`] | the child: a node with an inline handler for each of them |
//! | [`drive`] | the sender's side |
//! | [`cost`] | processor time and context switches, of this process and of the child |
//! | [`speed`] | rates over rounds |

pub(crate) mod cost;
pub(crate) mod drive;
pub(crate) mod messages;
pub(crate) mod receiver;
pub(crate) mod speed;

pub(crate) use receiver::{SERVE, command, serve_command};

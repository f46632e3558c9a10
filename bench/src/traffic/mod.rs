//! Traffic of one kind at full speed: pipelined calls, one-way messages, synchronous sends, large payloads; and the child that
//! takes it in and counts.
//!
//! | module | what |
//! | --- | --- |
//! | [`messages`] | the payloads, and how many were received |
//! | [`blobs`] | large payloads, copied or by reference |
//! | [`receiver`] | the child: a node with an inline handler for each of them |
//! | [`drive`] | the sender's side |
//! | [`cost`] | processor time and context switches, of this process and of the child |
//! | [`open_loop`] | calls that are due at their times |
//! | [`sends`] | synchronous sends, and the two ways to wait for their completion |
//! | [`speed`] | rates over rounds |

pub(crate) mod blobs;
pub(crate) mod cost;
pub(crate) mod drive;
pub(crate) mod messages;
pub(crate) mod open_loop;
pub(crate) mod receiver;
pub(crate) mod sends;
pub(crate) mod speed;

pub(crate) use receiver::{SERVE, command, serve_command};

//! Traffic of one kind at full speed: pipelined calls, one-way messages, synchronous sends, large payloads; and the child that
//! receives and counts it.
//!
//! | module | content |
//! | --- | --- |
//! | [`messages`] | the payloads, and queries for the number received |
//! | [`blobs`] | large payloads, copied or by reference |
//! | [`receiver`] | the child: a node with an inline handler for each of them |
//! | [`drive`] | the sending side |
//! | [`cost`] | CPU time and context switches, of this process and of the child |
//! | [`open_loop`] | calls at fixed times, in an open loop |
//! | [`sends`] | synchronous sends, and two designs for their completion |
//! | [`speed`] | rates over rounds |

pub(crate) mod blobs;
pub(crate) mod cost;
pub(crate) mod drive;
pub(crate) mod messages;
pub(crate) mod open_loop;
pub(crate) mod receiver;
pub(crate) mod sends;
pub(crate) mod speed;

pub(crate) use receiver::SIDE;

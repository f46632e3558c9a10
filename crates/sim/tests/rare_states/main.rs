//! States of a session that are rare in traffic, each set up on purpose: requests that are due again and find no room,
//! requests that wait for room while time passes, more responses than the submission queue holds, a cancellation that
//! finds this queue full, requests made while there is no link, responses after the loss of their link, a peer that
//! floods a table of this side, a window that grows while it is full, the end of an earlier process of the peer, a panic of the thread that
//! holds an engine, offers whose responses all come together, and credits that two kinds of handlers free.

mod backlog;
mod died;
mod due_again;
mod finished_twofold;
mod flood;
mod full_queue;
mod growing;
mod heartbeats;
mod late_response;
mod many_offers;
mod many_responses;
mod pair;
mod panicked;
mod pressure;
mod while_away;

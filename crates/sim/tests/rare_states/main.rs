//! States of a session that are rare in traffic, each set up on purpose: requests that are due again and find no room,
//! requests that wait for room while time passes, more responses than the submission queue holds, a cancellation that
//! finds this queue full, requests made while there is no link, responses after the loss of their link, a peer that
//! floods a table of this side, a window that grows while it is full, the end of an earlier process of the peer, a panic of the thread that
//! holds an engine, offers whose responses all come together, credits that two kinds of handlers free, turns whose waiter is done, an event
//! that does not occur, a task that does not use its room, a peer that asks for a pause where it must not, send memory that was needed for a
//! moment, requests of which half are held, and a wait without time.

mod backlog;
mod died;
mod done_waiter;
mod due_again;
mod finished_twofold;
mod flood;
mod full_queue;
mod growing;
mod half_held;
mod heartbeats;
mod idle_memory;
mod late_response;
mod many_offers;
mod many_responses;
mod pair;
mod panicked;
mod pressure;
mod safety_net;
mod waiting_tasks;
mod while_away;
mod wrong_pause;
mod zero_timeout;

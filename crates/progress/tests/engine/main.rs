//! Managers with an engine thread: polls, wake-ups, and sources that misbehave.

mod blocking;
mod faults;
mod hung_up;
mod idle;
mod resting;
mod rig;
mod tasklets;
mod triggers;
mod wakes;

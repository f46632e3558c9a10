//! Managers with an engine's thread: who polls, who wakes, and what does not hang the others.

mod blocking;
mod faults;
mod hung_up;
mod idle;
mod rig;
mod tasklets;
mod triggers;
mod wakes;

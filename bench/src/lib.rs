//! The experiments of Pronto: each prints what it measured beside the floor of the same machine in the same run.
//!
//! An [`experiment::Experiment`] is one file in [`experiments`], entered in [`experiments::ALL`]; [`cli`] turns that list
//! into the program `pronto-bench`. What is measured is gathered by a [`sample::Recorder`], the machine's own floor by
//! [`floor`], both with the same instrument; `docs/measuring.md` explains how to read the numbers.

#![deny(unsafe_code)]

mod anatomy;
pub mod child;
pub mod cli;
pub mod clock;
mod compare;
pub mod echo;
mod expedite;
pub mod experiment;
pub mod experiments;
pub mod floor;
pub mod host;
pub mod lab;
pub mod mix;
mod overlap;
mod page;
pub mod pair;
pub mod params;
mod peers;
pub mod placement;
pub mod plot;
pub mod progress;
mod rdma;
mod rendezvous;
pub mod report;
mod results;
pub mod sample;
mod sessions;
mod traffic;
pub mod wakeup;
mod workers;

//! The experiments of Pronto. Each prints its measurements next to the floor of the same machine in the same run.
//!
//! An [`experiment::Experiment`] is declared in one file of [`experiments`] and listed in [`experiments::ALL`]. [`cli`] turns that list
//! into the program `pronto-bench`. A [`sample::Recorder`] collects measurements, and [`floor`] measures the machine itself with the
//! same instrument. `docs/measuring.md` explains how to read the numbers.

#![deny(unsafe_code)]

mod all;
mod anatomy;
mod bulk;
mod child;
mod claim;
pub mod cli;
mod clock;
mod compare;
mod cosched;
pub mod echo;
mod expedite;
mod experiment;
mod experiments;
mod floor;
mod home;
mod host;
mod interval;
mod lab;
mod mix;
mod overlap;
mod page;
pub mod pair;
mod papers;
mod params;
mod peers;
pub mod placement;
mod plot;
mod progress;
mod rdma;
mod rendezvous;
mod report;
mod results;
mod sample;
mod sessions;
mod side;
mod strangers;
mod tls;
mod traffic;
mod wakeup;
mod workers;

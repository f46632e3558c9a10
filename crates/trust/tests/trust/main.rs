//! Credentials and authorities as programs use them.

mod authority;
mod handshakes;
mod keys;
mod loading;
mod world;

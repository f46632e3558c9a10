//! Reports of a node: administrative messages for operators, and events of peers for the program.

pub mod admin;
pub(crate) mod awaiting;
pub(crate) mod events;

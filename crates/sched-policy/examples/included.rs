//! The policy as in the kernel module: included by path, under another name, in another crate. Only compiled, never
//! run.
#![no_std]
#![deny(missing_docs, non_ascii_idents, rust_2018_idioms, unreachable_pub, unsafe_op_in_unsafe_fn)]

#[path = "../src/policy/mod.rs"]
pub mod decisions;

//! The policy as the kernel module has it: included by path, under another name, in another crate. Compiled only.
#![no_std]
#![deny(missing_docs, non_ascii_idents, rust_2018_idioms, unreachable_pub, unsafe_op_in_unsafe_fn)]

#[path = "../src/policy/mod.rs"]
pub mod decisions;

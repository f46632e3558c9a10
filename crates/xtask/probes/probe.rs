//! The module `probe` of the core in a copy of the tree, which adds the constant `PROBES`. It records each probe that is executed for the
//! first time in the file `PRONTO_REACHED`, and panics at the probe whose number is in `PRONTO_PLANTED`. Its atomics are not those of the
//! facade, so that a probe is no switch point.

extern crate std;

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::Write as _;
use std::sync::OnceLock;

static REACHED: [AtomicBool; PROBES] = [const { AtomicBool::new(false) }; PROBES];
static PLANTED: OnceLock<Option<usize>> = OnceLock::new();

pub(crate) fn at(number: usize) {
    let planted = *PLANTED.get_or_init(|| std::env::var("PRONTO_PLANTED").ok()?.parse().ok());
    if planted == Some(number) {
        panic!("planted at probe {number}");
    }
    if !REACHED[number].load(Ordering::Relaxed) && !REACHED[number].swap(true, Ordering::Relaxed) {
        record(number);
    }
}

fn record(number: usize) {
    let Some(file) = std::env::var_os("PRONTO_REACHED") else { return };
    let program = std::env::current_exe().expect("the program is known");
    let program = program.file_name().expect("the program has a name").to_string_lossy();
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
    let line = std::format!("{program} {number}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the record can be written");
}

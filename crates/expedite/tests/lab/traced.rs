//! Tracepoints, which `perf` and `trace-cmd` can record.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use pronto_expedite::{Device, Flag};

use crate::machine::{Module, Numbered, until};
use crate::program::run;
use crate::waiting::{GENEROUS, read, write};

const TRACING: &str = "/sys/kernel/tracing";

/// Records the module's events while this exists.
struct Events;

impl Events {
    fn record() -> Self {
        if !Path::new(TRACING).join("events").exists() {
            run(Command::new("mount").args(["-t", "tracefs", "tracefs", TRACING]));
        }
        set("trace", "");
        set("events/expedite/enable", "1");
        Self
    }

    /// Returns the recorded lines that contain a word.
    fn with(&self, word: &str) -> Vec<String> {
        let text = fs::read_to_string(Path::new(TRACING).join("trace")).unwrap();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        set("events/expedite/enable", "0");
    }
}

fn set(file: &str, value: &str) {
    fs::write(Path::new(TRACING).join(file), value).unwrap();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn arrivals_and_ends_of_boosts_are_traced() {
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let (one, other): (OwnedFd, OwnedFd) = (one.into(), other.into());
    device.flag(&one, Flag::default()).unwrap();
    let events = Events::record();
    let reader = Numbered::spawn(move || read(&one));
    reader.until_it_sleeps();
    write(&other);
    until("the boost has ended", || module.counters()["drops"] == 1);
    let (arrivals, drops) = (events.with("expedite_arrival:"), events.with("expedite_drop:"));
    let of_reader = format!("pid={} ", reader.tid);
    assert!(
        arrivals.len() == 1
            && arrivals[0].contains(&of_reader)
            && arrivals[0].ends_with("way=read result=boost"),
        "{arrivals:?}"
    );
    assert!(
        drops.len() == 1 && drops[0].contains(&of_reader) && drops[0].ends_with("replaced=0"),
        "{drops:?}"
    );
    reader.join();
}

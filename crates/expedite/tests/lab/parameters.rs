//! Parameters that cannot work are refused when the module is loaded.

use std::process::Command;

use pronto_expedite::Device;
use pronto_lab_module::Absent;

use crate::machine::Module;
use crate::program::run;

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn parameters_that_allow_no_boost_are_refused() {
    let absent = Absent::hold();
    for (parameters, reason) in [
        (&["slice_us=1667"][..], "thread_percent=10 never allows a boost of slice_us=1667: at most 1666 us"),
        (&["slice_us=5000", "thread_percent=50"], "user_percent=25 never allows a boost of slice_us=5000"),
        (&["cpu_percent=1"], "cpu_percent=1 never allows a boost of slice_us=200: at most 166 us"),
        (&["slice_us=9"], "slice_us=9 is not between 10 and 5000"),
        (&["slice_us=5001"], "slice_us=5001 is not between 10 and 5000"),
        (&["user_percent=101"], "user_percent=101 is more than 100"),
    ] {
        let output = absent.try_to_load(parameters);
        assert!(!output.status.success(), "{parameters:?}");
        let log = run(&mut Command::new("dmesg"));
        let last = log.lines().rfind(|line| line.contains("expedite: ")).unwrap();
        assert!(last.contains(reason), "{parameters:?}: {last}");
    }
    drop(absent);
    for parameters in [&["slice_us=1666"][..], &["thread_percent=0"], &["sleepers_only=1"]] {
        drop(Module::load(parameters));
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_device_reports_the_parameters() {
    let module = Module::load(&[
        "slice_us=150",
        "user_percent=30",
        "user_flags=7",
        "sleepers_only=1",
        "even_if_idle=0",
    ]);
    let caps = Device::open().unwrap().caps().unwrap();
    assert_eq!(
        (caps.slice.as_micros(), caps.thread_percent, caps.user_percent, caps.cpu_percent),
        (150, 10, 30, 50)
    );
    assert_eq!((caps.user_flags, caps.sleepers_only, caps.even_if_idle), (7, true, false));
    drop(module);
}

/// The trial at load boosts the loading thread with a state of its own.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_trial_leaves_nothing_and_a_real_time_loader_makes_none() {
    let module = Module::load(&[]);
    let counters = module.counters();
    assert!(counters.values().all(|count| *count == 0), "{counters:?}");
    drop(module);
    let messages = || run(&mut Command::new("dmesg")).matches("expedite: no trial").count();
    let before = messages();
    drop(Module::load(&[]));
    assert_eq!(messages(), before, "an ordinary thread makes a trial");
    let absent = Absent::hold();
    let mine = nix::unistd::gettid().to_string();
    run(Command::new("chrt").args(["--fifo", "--pid", "5", &mine]));
    let loaded = absent.load(&[]);
    run(Command::new("chrt").args(["--other", "--pid", "0", &mine]));
    assert_eq!(messages(), before + 1);
    drop(loaded);
}

//! A process with threads that have nice values of their own: that of this test, which is the only one.

mod fixed;

use std::sync::mpsc::channel;

use nix::unistd::{geteuid, gettid};
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::ActuatorKind;
use pronto_coschedule::group::Members;
use pronto_expedite::schedule;

use fixed::settings;

/// Shows: operations.coschedule-own
#[test]
fn threads_with_own_values_keep_them() {
    if !geteuid().is_root() {
        return pronto_skip::because("lower nice values need a privilege");
    }
    let nice = |tid: i32| schedule::nice(tid).unwrap();
    let (ready, is_ready) = channel();
    let (end, ends) = channel::<()>();
    let thread = std::thread::spawn(move || {
        schedule::set_nice(schedule::CALLER, 5).unwrap();
        ready.send(gettid().as_raw()).unwrap();
        let _ended = ends.recv();
    });
    let tid = is_ready.recv().unwrap();
    let settings = settings("own-values", ActuatorKind::Nice, Members::Own);
    let state = settings.state.clone();
    let own = gettid().as_raw();
    let (mut coscheduler, _) = Coscheduler::begin(settings).unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!((nice(own), nice(tid)), (-6, -1));
    coscheduler.end().unwrap();
    assert_eq!((nice(own), nice(tid)), (0, 5));
    drop(end);
    thread.join().unwrap();
    std::fs::remove_dir_all(state).unwrap();
}

//! A process with threads that have nice values of their own: that of this test, which is the only one.

use std::sync::mpsc::channel;

use nix::unistd::{geteuid, gettid};
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::{ActuatorKind, Choice};
use pronto_coschedule::group::Members;
use pronto_coschedule::settings::{Group, Past, Policy, Settings};
use pronto_expedite::schedule;

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
    let state = std::env::temp_dir().join(format!("pronto-own-values-{}", std::process::id()));
    let settings = Settings {
        policy: Policy::Static,
        period: Settings::PERIOD,
        past: Past::Fixed(Settings::PAST),
        most: Settings::MOST,
        sensor: Default::default(),
        actuator: Choice::Only(ActuatorKind::Nice),
        groups: vec![Group { name: "own".into(), members: Members::Own }],
        state: state.clone(),
    };
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

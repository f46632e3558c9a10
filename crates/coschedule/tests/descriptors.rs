//! A coscheduler that cannot open files for a while, in a process of its own: the limit is that of a process.

mod fixed;

use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::ActuatorKind;
use pronto_coschedule::group::Members;
use pronto_expedite::schedule;

use fixed::settings;

/// Shows: operations.coschedule-restored
#[test]
fn processes_that_cannot_be_listed_for_a_while_keep_their_weights_and_are_restored() {
    if !geteuid().is_root() {
        return pronto_skip::because("lower nice values need a privilege");
    }
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let nice = || schedule::nice(pid.cast_signed()).unwrap();
    let settings = settings("descriptors", ActuatorKind::Nice, Members::Family(pid));
    let state = settings.state.clone();
    let (mut coscheduler, _) = Coscheduler::begin(settings).unwrap();
    assert_eq!(coscheduler.tick(), Vec::<String>::new());
    assert_eq!(nice(), -6);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Less than are open: the next one is refused.
    setrlimit(Resource::RLIMIT_NOFILE, 1, hard).unwrap();
    let mut problems = Vec::new();
    let is_reported =
        |problems: &[String]| problems.iter().any(|problem| problem.contains("cannot be listed"));
    while !is_reported(&problems) {
        problems.extend(coscheduler.tick());
        std::thread::park_timeout(core::time::Duration::from_millis(1));
    }
    assert_eq!((nice(), coscheduler.status().processes.len()), (-6, 1), "{problems:?}");
    // It ends in that state: nothing is restored, and nothing is forgotten.
    let restored = coscheduler.end().unwrap();
    assert_eq!((restored.restored, restored.gone, restored.refused, nice()), (0, 0, 1, -6), "{restored:?}");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let journals = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let journal =
        journals.into_iter().find(|path| path.extension().is_some_and(|end| end == "journal")).unwrap();
    // That of an ended process, which another one restores.
    std::fs::rename(journal, state.join("coschedule-1.journal")).unwrap();
    let restored = pronto_coschedule::actuator::restore_abandoned(&state).unwrap();
    assert_eq!((restored.restored, nice()), (1, 0), "{restored:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(state).unwrap();
}

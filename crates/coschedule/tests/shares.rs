//! Control groups of version 1, in a group of the test's own.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod fixed;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::unistd::geteuid;
use pronto_coschedule::Coscheduler;
use pronto_coschedule::actuator::{ActuatorKind, Restored};
use pronto_coschedule::group::Members;

use fixed::settings;

/// A control group; it is removed with its process.
struct ControlGroup {
    folder: PathBuf,
    child: Child,
}

impl ControlGroup {
    fn new() -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/cpu/pronto-test-{}", std::process::id()));
        if !geteuid().is_root() || fs::create_dir(&folder).is_err() || !folder.join("cpu.shares").exists() {
            pronto_skip::because("this user may not use control groups of version 1");
            return None;
        }
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
        Some(Self { folder, child })
    }

    fn shares(&self) -> String {
        fs::read_to_string(self.folder.join("cpu.shares")).unwrap().trim().to_owned()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = fs::remove_dir(&self.folder);
    }
}

/// Shows: operations.coschedule-cgroup, operations.coschedule-left
#[test]
fn shares_are_set_and_restored_unless_somebody_else_has_set_others() {
    let Some(group) = ControlGroup::new() else { return };
    let settings =
        settings("shares", ActuatorKind::ControlGroup, Members::ControlGroup(group.folder.clone()));
    let state = settings.state.clone();
    for (changed, after, restored) in [
        (None, "1024", Restored { restored: 1, gone: 0, left: 0, refused: 0 }),
        (Some("20"), "20", Restored { restored: 0, gone: 0, left: 1, refused: 0 }),
    ] {
        let (mut coscheduler, _) = Coscheduler::begin(settings.clone()).unwrap();
        assert_eq!(coscheduler.tick(), Vec::<String>::new());
        assert_eq!(group.shares(), "4096");
        if let Some(shares) = changed {
            fs::write(group.folder.join("cpu.shares"), shares).unwrap();
        }
        assert_eq!(coscheduler.end().unwrap(), restored);
        assert_eq!(group.shares(), after);
    }
    fs::remove_dir_all(state).unwrap();
}

//! The flag of the paper, with the module: a thread that waits at a file with the flag is boosted.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod program;

use pronto_lab_module::Module;

use program::{O_EXPEDITE, is_inside, under_preload};

/// Returns the policy of a thread of this process: field 41 of stat(5).
fn policy() -> String {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(41 - 3).unwrap().to_owned()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_flag_of_the_paper_boosts() {
    const NAME: &str = "the_flag_of_the_paper_boosts";
    // It is unloaded when the process with the library has ended, with which its device is closed.
    let _module = (!is_inside()).then(|| Module::load(&["slice_us=1600"]));
    under_preload(NAME, |ends| {
        let before = ends.flags().unwrap();
        assert_eq!(ends.set_flags(before | libc::O_APPEND | O_EXPEDITE), Ok(()));
        assert_eq!(ends.flags(), Ok(before | libc::O_APPEND | O_EXPEDITE));
        // The flag belongs to the open file.
        assert_eq!(ends.set_flags(before | O_EXPEDITE), Ok(()));
        let boosted = (0..100).any(|_| {
            let sender = ends.sender.try_clone().unwrap();
            let helper = std::thread::spawn(move || {
                std::thread::park_timeout(core::time::Duration::from_millis(5));
                nix::unistd::write(&sender, b"x").unwrap();
            });
            nix::unistd::read(&ends.receiver, &mut [0; 8]).unwrap();
            let policy = policy();
            helper.join().unwrap();
            // 2 is SCHED_RR.
            policy == "2"
        });
        assert!(boosted, "no boost in 100 messages");
        assert_eq!(ends.set_flags(before), Ok(()));
        assert_eq!(ends.flags(), Ok(before));
        // A file that cannot be flagged.
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        // SAFETY: the call takes numbers only.
        let result =
            unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETFL, O_EXPEDITE) };
        assert_eq!((result, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EOPNOTSUPP)));
    });
}

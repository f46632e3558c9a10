//! Many flags: on one file, through many devices, of one user.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use pronto_expedite::{Device, Flag, Refused};

use crate::machine::{Module, Numbered, now, until};
use crate::program::run;
use crate::users::become_user;
use crate::waiting::{GENEROUS, write};

/// `EXPEDITE_FLAGS_PER_FILE`.
const PER_FILE: usize = 8;

fn unix() -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

/// Opens `count` devices.
fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|_| Device::open().unwrap()).collect()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn many_devices_on_one_file_cost_one_arrival() {
    let module = Module::load(GENEROUS);
    let (one, other) = unix();
    let many = devices(1_000);
    let results: Vec<_> = many.iter().map(|device| device.flag(&one, Flag::default())).collect();
    assert!(results[..PER_FILE].iter().all(Result::is_ok), "{:?}", &results[..PER_FILE]);
    assert!(results[PER_FILE..].iter().all(|result| *result == Err(Refused::Full)));
    assert_eq!(module.counters()["flags"], u64::try_from(PER_FILE).unwrap());
    let reader = Numbered::spawn({
        let one = one.try_clone().unwrap();
        move || nix::unistd::read(&one, &mut [0; 8])
    });
    reader.until_it_sleeps();
    write(&other);
    until("the reader was boosted", || module.counters()["drops"] == 1);
    reader.join().unwrap();
    // With a hook for each flag, the arrival would be counted eight times.
    assert_eq!(module.counters()["calls"], 1, "{:?}", module.counters());
    // A flag that is removed makes room for another one.
    many[3].unflag(&one).unwrap();
    assert_eq!(many[20].flag(&one, Flag::default()), Ok(()));
    assert_eq!(many[21].flag(&one, Flag::default()), Err(Refused::Full));
    drop(many);
    assert_eq!(module.counters()["flags"], 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_pipe_flagged_through_two_devices_closes() {
    let module = Module::load(&[]);
    let devices = devices(2);
    let (reader, writer) = nix::unistd::pipe().unwrap();
    for device in &devices {
        device.flag(&reader, Flag::default()).unwrap();
    }
    drop(reader);
    // Rust's runtime ignores SIGPIPE.
    until("the pipe has no reader", || nix::unistd::write(&writer, b"x") == Err(Errno::EPIPE));
    until("no flag is left", || module.counters()["flags"] == 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_user_has_a_maximum_of_flags() {
    const MAX: usize = 10;
    let module = Module::load(&[&format!("user_flags={MAX}")]);
    run(std::process::Command::new("chmod").args(["666", "/dev/expedite"]));
    let pairs: Vec<_> = (0..=MAX).map(|_| unix()).collect();
    let mine = Device::open().unwrap();
    mine.flag(&pairs[0].0, Flag::default()).unwrap();
    Numbered::spawn(move || {
        become_user(65_534);
        let (first, second) = (Device::open().unwrap(), Device::open().unwrap());
        for (at, (one, _)) in pairs.iter().enumerate() {
            let device = if at % 2 == 0 { &first } else { &second };
            let expected = if at < MAX { Ok(()) } else { Err(Refused::Full) };
            assert_eq!(device.flag(one, Flag::default()), expected, "flag {at}");
        }
        first.unflag(&pairs[0].0).unwrap();
        assert_eq!(second.flag(&pairs[MAX].0, Flag::default()), Ok(()));
        drop((first, second));
        // All of them count until they are removed.
        let third = Device::open().unwrap();
        for (one, _) in &pairs[..MAX] {
            third.flag(one, Flag::default()).unwrap();
        }
    })
    .join();
    until("only one flag is left", || module.counters()["flags"] <= 1);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_request_does_not_depend_on_the_number_of_other_flags() {
    const MANY: usize = 4_000;
    let _module = Module::load(&[]);
    let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
    nix::sys::resource::setrlimit(limit, 20_000, 20_000).unwrap();
    let time = |pairs: &[(OwnedFd, OwnedFd)]| {
        let device = Device::open().unwrap();
        let (one, _other) = unix();
        // Flags through another device, which the requests need not look at.
        let others = devices(pairs.len().div_ceil(1_000));
        for (at, (end, _)) in pairs.iter().enumerate() {
            others[at / 1_000].flag(end, Flag::default()).unwrap();
        }
        let once = || {
            let start = now();
            for _ in 0..100 {
                device.flag(&one, Flag::default()).unwrap();
                device.unflag(&one).unwrap();
            }
            start.elapsed()
        };
        (0..5).map(|_| once()).min().unwrap()
    };
    let pairs: Vec<_> = (0..MANY).map(|_| unix()).collect();
    // Other load of the machine meets both.
    let rounds: Vec<_> = (0..5).map(|_| (time(&pairs[..10]), time(&pairs))).collect();
    let few = rounds.iter().map(|round| round.0).min().unwrap();
    let many = rounds.iter().map(|round| round.1).min().unwrap();
    println!("100 flags set and removed: {few:?} with 10 other flags, {many:?} with {MANY}");
    // A walk over all flags would take many times as long.
    assert!(many < 3 * few, "{few:?} {many:?}");
}

//! Every tier fulfils the contract of a booster, whatever privileges the process has: a thread can be adopted, a descriptor watched,
//! and the thread continues. If a tier is not available, the reason is reported.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![forbid(unsafe_code)]

use std::os::fd::{AsFd as _, AsRawFd as _};

use nix::sys::eventfd::EventFd;
use pronto_core::{Booster, Tier};
use pronto_expedite::schedule::{CALLER, policy, slice};
use pronto_expedite::{Missing, Refused, SLICE, obtain};

/// Runs a thread with this booster; returns its scheduling policy and slice at the end.
fn work(booster: &dyn Booster) -> (i32, core::time::Duration) {
    let (adopted, scheduled) = std::thread::scope(|scope| {
        let handler = scope.spawn(|| {
            let adopted = booster.adopt();
            let channel = EventFd::new().unwrap();
            booster.watch(channel.as_fd().as_raw_fd()).unwrap();
            for _ in 0..10 {
                booster.before_wait();
                channel.write(1).unwrap();
                assert_eq!(channel.read().unwrap(), 1);
                booster.worked();
            }
            booster.before_wait();
            (adopted, (policy(CALLER).unwrap(), slice(CALLER).unwrap()))
        });
        handler.join().unwrap()
    });
    assert_eq!(adopted, Ok(()));
    scheduled
}

/// Shows: operations.tiers, operations.slice
#[test]
fn a_named_tier_is_itself_or_none_with_a_reason() {
    for tier in Tier::ALL {
        let got = obtain(Some(tier));
        if got.booster.tier() != tier {
            assert_eq!(got.booster.tier(), Tier::None);
            assert_eq!(got.missing.len(), 1, "{got:?}");
            assert_eq!(got.missing[0].0, tier);
            let text = got.to_string();
            assert!(text.starts_with(&format!("none ({tier}: ")) && text.ends_with(')'), "{text}");
            continue;
        }
        assert!(got.missing.is_empty() && got.to_string() == tier.name(), "{got}");
        let (policy, slice) = work(&*got.booster);
        match tier {
            Tier::Fifo => assert_eq!(policy, libc::SCHED_FIFO),
            Tier::Deadline => assert_eq!(policy, libc::SCHED_DEADLINE),
            Tier::Slice => assert_eq!((policy, slice), (libc::SCHED_OTHER, SLICE)),
            Tier::Module | Tier::Scx | Tier::None => assert_ne!(policy, libc::SCHED_DEADLINE),
        }
    }
}

/// Shows: operations.tiers
#[test]
fn the_best_tier_is_the_first_available_one() {
    let got = obtain(None);
    let order = [Tier::Module, Tier::Fifo, Tier::Slice, Tier::None];
    let tried: Vec<_> = got.missing.iter().map(|(tier, _)| *tier).chain([got.booster.tier()]).collect();
    assert_eq!(tried, order[..tried.len()]);
    assert!(got.missing.iter().all(|(tier, _)| obtain(Some(*tier)).booster.tier() == Tier::None));
    work(&*got.booster);
}

/// Shows: operations.scx-on-request
#[test]
fn the_bpf_scheduler_is_never_chosen_automatically() {
    let got = obtain(None);
    assert!(got.booster.tier() != Tier::Scx && got.missing.iter().all(|(tier, _)| *tier != Tier::Scx));
}

#[test]
fn a_missing_module_is_reported() {
    if !std::path::Path::new("/dev/expedite").exists() {
        let missing = obtain(Some(Tier::Module)).missing;
        assert_eq!(missing, [(Tier::Module, Missing::Module(Refused::NotLoaded))]);
    }
}

/// Shows: operations.real-time-sleeps
#[test]
fn the_tiers_that_may_be_real_time_are_listed() {
    let may: Vec<_> = Tier::ALL.into_iter().filter(|tier| tier.may_be_real_time()).collect();
    assert_eq!(may, [Tier::Module, Tier::Fifo, Tier::Deadline]);
}

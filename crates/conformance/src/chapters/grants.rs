//! Permission for one-sided access: rights, bounds, one peer, until revoked.

use pronto_core::fabric::{GrantError, GrantId, Operation, QueuePair, Region, RemoteRange, Rights, Status};

use super::one_sided::{Refused, access, bytes_of, granted, part};
use super::tests;
use crate::Harness;
use crate::rig::{End, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "grants",
        tests: tests![
            each_right_allows_nothing_else needs [OneSided],
            nothing_beyond_the_granted_range needs [OneSided],
            nothing_beyond_a_part_of_a_registered_region needs [OneSided],
            an_unknown_key_grants_nothing needs [OneSided],
            a_third_peer_with_the_right_key_is_refused needs [OneSided],
            a_grant_works_in_one_direction needs [OneSided],
            a_revoked_grant_is_over needs [OneSided],
            an_old_key_stays_invalid_after_a_new_grant needs [OneSided],
            grants_do_not_depend_on_each_other needs [OneSided],
            ranges_and_names_are_checked needs [OneSided],
            a_grant_ends_with_its_connection needs [OneSided],
            memory_that_is_given_back_is_there_again_when_it_is_needed needs [OneSided],
        ],
    }
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Add,
    Swap,
}

const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Add, Kind::Swap];

impl Kind {
    /// Returns an operation on eight bytes at the start of `remote`, which always has an effect.
    fn on(self, local: &Region, remote: RemoteRange) -> Operation<'_> {
        match self {
            Self::Read => Operation::Read { local, local_offset: 0, remote },
            Self::Write => Operation::Write { local, local_offset: 0, remote },
            Self::Add => Operation::FetchAdd { remote, add: 1 },
            Self::Swap => Operation::CompareSwap { remote, expected: EXPECTED, desired: 7 },
        }
    }

    fn allowed_by(self, rights: Rights) -> bool {
        match self {
            Self::Read => rights.read,
            Self::Write => rights.write,
            Self::Add | Self::Swap => rights.atomic,
        }
    }
}

/// Initial value at the start of a target.
const EXPECTED: u64 = 0x1234_5678_9abc_def0;

fn local<H: Harness>(harness: &H) -> Region {
    let local = harness.region(64);
    local.write(0, &[0x55; 64]).expect("the region is as long as asked for");
    local
}

/// Returns a pair whose end B has granted 64 bytes, with `EXPECTED` at the start.
fn target<H: Harness>(harness: &H, rights: Rights) -> (Rig<'_, H>, Region, RemoteRange) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 64, rights);
    target.write(0, &EXPECTED.to_ne_bytes()).expect("eight bytes");
    (rig, target, remote)
}

/// Asserts that an access is refused and changes nothing, at either end. The connection may be dead afterwards.
#[track_caller]
fn assert_refused<H: Harness>(
    rig: &mut Rig<'_, H>,
    kind: Kind,
    from: End,
    target: &Region,
    remote: RemoteRange,
) {
    let local = local(rig.harness());
    let before = (bytes_of(target), bytes_of(&local));
    rig.expect_failure();
    assert_eq!(access(rig, from, kind.on(&local, remote)), Err(Refused), "{kind:?} of {remote:?}");
    assert!(
        (bytes_of(target), bytes_of(&local)) == before,
        "{kind:?} of {remote:?} was refused, but had an effect"
    );
}

fn each_right_allows_nothing_else<H: Harness>(harness: &H) {
    let write_only = Rights { read: false, write: true, atomic: false };
    for rights in [Rights::READ, write_only, Rights::READ_WRITE, Rights::ALL] {
        for kind in KINDS {
            let (mut rig, target, remote) = target(harness, rights);
            let remote = part(remote, 0, 8);
            if kind.allowed_by(rights) {
                access(&mut rig, End::A, kind.on(&local(harness), remote)).expect("the right is granted");
                rig.finish();
            } else {
                assert_refused(&mut rig, kind, End::A, &target, remote);
                rig.finish_closed();
            }
        }
    }
}

fn nothing_beyond_the_granted_range<H: Harness>(harness: &H) {
    for (offset, len) in [(64, 8), (57, 8), (u64::MAX, 8), (u64::MAX - 7, 8), (1 << 40, 8), (0, 65)] {
        for kind in [Kind::Read, Kind::Write, Kind::Add] {
            if kind == Kind::Add && len != 8 {
                continue;
            }
            let mut rig = Rig::new(harness);
            let target = harness.region(256);
            let grant = rig.qp(End::B).grant(&target, 64..128, Rights::ALL).expect("a part can be granted");
            let remote = RemoteRange { key: grant.remote.key, offset, len };
            let local = harness.region(128);
            let before = bytes_of(&target);
            rig.expect_failure();
            assert_eq!(
                access(&mut rig, End::A, kind.on(&local, remote)),
                Err(Refused),
                "{kind:?} of {remote:?}"
            );
            assert_eq!(bytes_of(&target), before);
            assert_eq!(bytes_of(&local), [0; 128]);
            rig.finish_closed();
        }
    }
}

/// The whole region is registered with the transport and granted to another peer: this peer can access only its part.
fn nothing_beyond_a_part_of_a_registered_region<H: Harness>(harness: &H) {
    for (offset, len) in [(64, 8), (57, 8), (0, 65), (u64::MAX - 7, 8)] {
        let [mut rig, mut other] = [(); 2].map(|()| Rig::new(harness));
        let target = harness.region(256);
        for rig in [&mut rig, &mut other] {
            rig.qp(End::B).register(&target).expect("a live queue pair readies a region");
        }
        other.qp(End::B).grant(&target, 0..256, Rights::ALL).expect("the whole can be granted");
        let grant = rig.qp(End::B).grant(&target, 64..128, Rights::ALL).expect("a part can be granted");
        let local = local(harness);
        let inside = Operation::Write { local: &local, local_offset: 0, remote: part(grant.remote, 56, 8) };
        access(&mut rig, End::A, inside).expect("the last bytes of the part are granted");
        let before = bytes_of(&target);
        rig.expect_failure();
        let sink = harness.region(128);
        let remote = RemoteRange { key: grant.remote.key, offset, len };
        assert_eq!(access(&mut rig, End::A, Kind::Read.on(&sink, remote)), Err(Refused), "{remote:?}");
        assert_eq!(bytes_of(&sink), [0; 128]);
        assert_eq!(bytes_of(&target), before);
        rig.finish_closed();
        other.finish();
    }
}

fn an_unknown_key_grants_nothing<H: Harness>(harness: &H) {
    for forge in [|_| 0, |_| u64::MAX, |key: u64| key.wrapping_add(1), |key: u64| key ^ (1 << 32)] {
        for kind in KINDS {
            let (mut rig, target, remote) = target(harness, Rights::ALL);
            let forged = RemoteRange { key: forge(remote.key), offset: 0, len: 8 };
            assert_refused(&mut rig, kind, End::A, &target, forged);
            rig.finish_closed();
        }
    }
}

/// The third peer talks to the same owner over its own connection, and uses the right key.
fn a_third_peer_with_the_right_key_is_refused<H: Harness>(harness: &H) {
    for kind in KINDS {
        let (mut rig, target, remote) = target(harness, Rights::ALL);
        let remote = part(remote, 0, 8);
        let mut third = Rig::new(harness);
        assert_refused(&mut third, kind, End::A, &target, remote);
        third.finish_closed();
        let served = access(&mut rig, End::A, kind.on(&local(harness), remote));
        served.expect("the peer with the grant is not affected");
        rig.finish();
    }
}

fn a_grant_works_in_one_direction<H: Harness>(harness: &H) {
    for kind in KINDS {
        let (mut rig, target, remote) = target(harness, Rights::ALL);
        assert_refused(&mut rig, kind, End::B, &target, part(remote, 0, 8));
        rig.finish_closed();
    }
}

/// Shows: calls.revoke
fn a_revoked_grant_is_over<H: Harness>(harness: &H) {
    for kind in KINDS {
        let mut rig = Rig::new(harness);
        let target = harness.region(64);
        target.write(0, &EXPECTED.to_ne_bytes()).expect("eight bytes");
        let grant = rig.qp(End::B).grant(&target, 0..64, Rights::ALL).expect("a region can be granted");
        let remote = part(grant.remote, 0, 8);
        access(&mut rig, End::A, kind.on(&local(harness), remote)).expect("not revoked yet");
        target.write(0, &EXPECTED.to_ne_bytes()).expect("eight bytes");
        rig.qp(End::B).revoke(grant.id).expect("a grant can be revoked");
        assert_eq!(rig.qp(End::B).revoke(grant.id), Err(GrantError::Unknown));
        assert_refused(&mut rig, kind, End::A, &target, remote);
        rig.finish_closed();
    }
}

/// A provider may keep memory for the next grant of a region. It frees it when the connection is idle, except under live grants.
fn memory_that_is_given_back_is_there_again_when_it_is_needed<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, other) = (harness.region(64), harness.region(64));
    let live = rig.qp(End::B).grant(&other, 0..64, Rights::ALL).expect("a region can be granted");
    access(&mut rig, End::A, Kind::Add.on(&local(harness), part(live.remote, 0, 8))).expect("it is granted");
    for round in 1..4_u64 {
        target.write(0, &EXPECTED.to_ne_bytes()).expect("eight bytes");
        let grant = rig.qp(End::B).grant(&target, 0..64, Rights::READ).expect("a region can be granted");
        let into = local(harness);
        access(&mut rig, End::A, Kind::Read.on(&into, part(grant.remote, 0, 8))).expect("it is granted");
        assert_eq!(bytes_of(&into)[..8], EXPECTED.to_ne_bytes());
        rig.qp(End::B).revoke(grant.id).expect("a grant can be revoked");
        for end in [End::A, End::B] {
            rig.qp(end).give_back();
        }
        access(&mut rig, End::A, Kind::Add.on(&into, part(live.remote, 0, 8))).expect("it is still granted");
        assert_eq!(bytes_of(&other)[..8], (1 + round).to_ne_bytes());
    }
    rig.finish();
}

fn an_old_key_stays_invalid_after_a_new_grant<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let target = harness.region(64);
    let old = rig.qp(End::B).grant(&target, 0..64, Rights::ALL).expect("a region can be granted");
    rig.qp(End::B).revoke(old.id).expect("a grant can be revoked");
    for _ in 0..100 {
        let new = rig.qp(End::B).grant(&target, 0..64, Rights::ALL).expect("a region can be granted again");
        assert_ne!(new.remote.key, old.remote.key, "a key was reused");
        rig.qp(End::B).revoke(new.id).expect("a grant can be revoked");
    }
    rig.qp(End::B).grant(&target, 0..64, Rights::ALL).expect("a region can be granted again");
    assert_refused(&mut rig, Kind::Write, End::A, &target, part(old.remote, 0, 8));
    rig.finish_closed();
}

fn grants_do_not_depend_on_each_other<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let target = harness.region(1024);
    let mut grants: Vec<_> = (0..16)
        .map(|i| {
            rig.qp(End::B).grant(&target, i * 64..(i + 1) * 64, Rights::ALL).expect("sixteen grants fit")
        })
        .collect();
    while let Some(revoked) = grants.pop() {
        rig.qp(End::B).revoke(revoked.id).expect("a grant can be revoked");
        for grant in &grants {
            let add = Operation::FetchAdd { remote: part(grant.remote, 0, 8), add: 1 };
            access(&mut rig, End::A, add).expect("this grant was not revoked");
        }
    }
    for i in 0..16_u8 {
        let mut word = [0; 8];
        target.read(usize::from(i) * 64, &mut word).expect("eight bytes");
        assert_eq!(u64::from_ne_bytes(word), u64::from(15 - i), "additions to grant {i}");
    }
    rig.finish();
}

fn ranges_and_names_are_checked<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let region = harness.region(100);
    for (start, end) in [(0, 101), (101, 101), (60, 40), (0, u64::MAX), (u64::MAX, 0)] {
        let refused = rig.qp(End::B).grant(&region, start..end, Rights::READ);
        let expected = GrantError::Range { start, end, len: 100 };
        assert_eq!(refused.err(), Some(expected));
    }
    let grant = rig.qp(End::B).grant(&region, 0..100, Rights::READ).expect("the whole region can be granted");
    for wrong in [GrantId(u32::MAX), GrantId(grant.id.0.wrapping_add(1))] {
        assert_eq!(rig.qp(End::B).revoke(wrong), Err(GrantError::Unknown));
    }
    assert_eq!(rig.qp(End::A).revoke(grant.id), Err(GrantError::Unknown), "only the giver can revoke");
    rig.finish();
}

/// The owner closes the connection: this also ends its grants there, whatever becomes of the request.
///
/// Shows: calls.grant-ends
fn a_grant_ends_with_its_connection<H: Harness>(harness: &H) {
    for kind in [Kind::Write, Kind::Add] {
        let (mut rig, target, remote) = target(harness, Rights::ALL);
        let before = bytes_of(&target);
        rig.expect_failure();
        rig.qp(End::B).close();
        let local = local(harness);
        if let Ok(wr) = rig.one_sided(End::A, kind.on(&local, part(remote, 0, 8))) {
            rig.wait("for the request to end", |rig| rig.at(End::A).ended(wr).is_some());
            let ended = rig.at(End::A).ended(wr);
            assert!(!matches!(ended, Some(Status::Done(_))), "{kind:?} was done after the owner's close");
        }
        assert_eq!(bytes_of(&target), before, "{kind:?} after the owner's close");
        rig.finish_closed();
    }
}

//! The end of a connection: a close, drop or cut is noticed, and everything outstanding completes.

use pronto_core::fabric::{
    Armed, DoorbellEvent, FabricError, GrantError, PostError, QueuePair, Rights, poll_by_value,
};

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "disconnect",
        tests: tests![
            a_closed_peer_is_lost,
            a_dropped_peer_is_lost,
            a_cut_link_ends_every_request needs [LinkCut],
            a_failed_queue_pair_stays_failed,
            a_peer_that_never_took_anything_gives_buffers_back,
            other_connections_are_not_disturbed,
        ],
    }
}

/// Returns a rig whose ends both have messages in flight, before one of them ends.
fn busy<H: Harness>(harness: &H) -> Rig<'_, H> {
    let mut rig = Rig::new(harness);
    for i in 0..8 {
        for from in End::BOTH {
            rig.post(from, Form::ALL[i % 4], 40).expect("eight messages fit");
        }
    }
    rig.ring_both();
    rig.expect_failure();
    rig
}

#[track_caller]
fn wait_for_loss<H: Harness>(rig: &mut Rig<'_, H>, end: End) {
    rig.wait("for the loss to be reported", |rig| rig.at(end).failure.is_some() && rig.at(end).open() == 0);
    assert_eq!(rig.at(end).failure, Some(FabricError::Lost));
}

fn a_closed_peer_is_lost<H: Harness>(harness: &H) {
    let mut rig = busy(harness);
    rig.qp(End::A).close();
    wait_for_loss(&mut rig, End::B);
    rig.finish_closed();
}

fn a_dropped_peer_is_lost<H: Harness>(harness: &H) {
    let mut rig = busy(harness);
    drop(rig.take(End::A));
    wait_for_loss(&mut rig, End::B);
    rig.finish_closed();
}

/// An end that sends must notice the cut; one that only listens may not.
fn a_cut_link_ends_every_request<H: Harness>(harness: &H) {
    let mut rig = busy(harness);
    assert!(rig.harness().break_link(&mut rig.link), "this harness can cut a link");
    rig.wait("for posts to fail", |rig| match rig.post(End::A, Form::Unsignalled, 8) {
        Ok(()) | Err(PostError::Full) => {
            // The doorbell may be the call that fails.
            let _ = rig.qp(End::A).ring_doorbell(DoorbellEvent::Solicited);
            false
        }
        Err(error) => {
            assert_eq!(error, PostError::Failed(FabricError::Lost));
            true
        }
    });
    rig.wait("for everything to complete", |rig| rig.at(End::A).open() == 0);
    rig.finish_closed();
}

fn a_failed_queue_pair_stays_failed<H: Harness>(harness: &H) {
    let mut rig = busy(harness);
    drop(rig.take(End::A));
    wait_for_loss(&mut rig, End::B);
    for _ in 0..10 {
        assert!(matches!(poll_by_value(rig.qp(End::B)), Err(FabricError::Lost)));
        assert!(rig.qp(End::B).poll_send().is_none());
        let posted = rig.post(End::B, Form::Inline, 8);
        assert_eq!(posted, Err(PostError::Failed(FabricError::Lost)));
        let region = rig.harness().region(64);
        let granted = rig.qp(End::B).grant(&region, 0..64, Rights::READ);
        assert!(matches!(granted, Err(GrantError::Failed(_) | GrantError::Unsupported)), "{granted:?}");
        // These calls need not succeed, only return.
        let _ = rig.qp(End::B).arm(Armed::All);
        let _ = rig.qp(End::B).ring_doorbell(DoorbellEvent::Solicited);
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
    }
    rig.finish_closed();
}

fn a_peer_that_never_took_anything_gives_buffers_back<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = rig.qp(End::A).capabilities().send_depth as usize;
    for i in 0..depth {
        rig.post(End::A, [Form::Ring, Form::Region][i % 2], 4096).expect("messages up to the depth fit");
    }
    rig.ring(End::A);
    rig.expect_failure();
    drop(rig.take(End::B));
    wait_for_loss(&mut rig, End::A);
    assert_eq!(rig.at(End::A).done.len(), depth);
    rig.finish_closed();
}

fn other_connections_are_not_disturbed<H: Harness>(harness: &H) {
    let mut other = Rig::new(harness);
    for dropped in [End::A, End::B] {
        let mut rig = busy(harness);
        other.send(End::A, Form::Ring, 5000);
        other.send(End::B, Form::Region, 5000);
        drop(rig.take(dropped));
        wait_for_loss(&mut rig, dropped.other());
        rig.finish_closed();
        for i in 0..20 {
            other.send(End::A, Form::ALL[i % 4], 30);
            other.send(End::B, Form::ALL[i % 4], 30);
        }
        other.wait_idle();
    }
    other.finish();
}

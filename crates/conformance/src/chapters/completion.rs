//! Meaning of a send completion: the buffer may be reused, and nothing else.

use pronto_core::fabric::{QueuePair, Status};

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "completion",
        tests: tests![
            every_signalled_request_completes_once,
            unsignalled_never_completes,
            a_buffer_is_free_once_its_request_is_done,
            done_is_final_though_nothing_was_delivered,
            close_flushes_outstanding_requests,
            close_flushes_messages_without_a_doorbell,
            unsignalled_requests_do_not_fill_the_send_queue,
        ],
    }
}

fn every_signalled_request_completes_once<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let mut signalled = 0;
    for _ in 0..200 {
        let form = Form::ALL[rig.random.below(4)];
        let len = rig.random.below(41);
        signalled += usize::from(form != Form::Unsignalled);
        rig.send(End::A, form, len);
    }
    rig.wait_idle();
    assert_eq!(rig.at(End::A).done.len(), signalled);
    assert!(rig.at(End::A).done.iter().all(|completion| completion.status == Status::Done(0)));
    rig.finish();
}

fn unsignalled_never_completes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for _ in 0..40 {
        rig.send(End::A, Form::Unsignalled, 40);
    }
    rig.wait("for the messages", |rig| rig.at(End::B).received == 40);
    rig.alone(End::A, |_| false);
    assert_eq!(rig.at(End::A).done, []);
    rig.finish();
}

/// The rig overwrites each buffer as soon as its request completes: before the other end polls, while a lease is held,
/// and after the lease was dropped.
fn a_buffer_is_free_once_its_request_is_done<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for round in 0..8 {
        for form in [Form::Ring, Form::Region, Form::Ring, Form::Region] {
            rig.post(End::A, form, 1000 * (round + 1)).expect("four messages fit");
        }
        rig.ring(End::A);
        rig.alone(End::A, |side| side.open() == 0);
        rig.at(End::B).hold = true;
        let before = rig.at(End::B).received;
        rig.wait("for four messages", |rig| rig.at(End::B).received == before + 4);
        rig.alone(End::A, |side| side.open() == 0);
        for held in &rig.at(End::B).held {
            held.check();
        }
        rig.at(End::B).held.clear();
        rig.wait("for the buffers to be free", |rig| rig.at(End::A).open() == 0);
    }
    rig.finish();
}

/// A completion is not an acknowledgement. The other end receives nothing and closes: each request still completes
/// once, and requests that were done stay done.
fn done_is_final_though_nothing_was_delivered<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for form in [Form::Inline, Form::Ring, Form::Region, Form::Unsignalled, Form::Ring] {
        rig.post(End::A, form, 40).expect("five messages fit");
    }
    rig.ring(End::A);
    rig.alone(End::A, |side| side.open() == 0);
    let early = rig.at(End::A).done.clone();
    rig.expect_failure();
    rig.qp(End::B).close();
    rig.wait("for the other end's close to end every request", |rig| rig.at(End::A).open() == 0);
    assert_eq!(rig.at(End::A).done.len(), 4);
    assert_eq!(rig.at(End::A).done[..early.len()], early);
    rig.finish_closed();
}

fn close_flushes_outstanding_requests<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for form in [Form::Ring, Form::Inline, Form::Region, Form::Unsignalled] {
        rig.post(End::A, form, 20).expect("four messages fit");
    }
    rig.ring(End::A);
    close_and_count(rig, 3);
}

fn close_flushes_messages_without_a_doorbell<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for form in [Form::Ring, Form::Inline, Form::Region, Form::Unsignalled] {
        rig.post(End::A, form, 20).expect("four messages fit");
    }
    close_and_count(rig, 3);
}

fn close_and_count<H: Harness>(mut rig: Rig<'_, H>, signalled: usize) {
    rig.expect_failure();
    rig.qp(End::A).close();
    let all = rig.alone(End::A, |side| side.open() == 0);
    assert!(all, "a closed queue pair keeps {} work requests", rig.at(End::A).open());
    assert_eq!(rig.at(End::A).done.len(), signalled);
    rig.qp(End::A).close();
    rig.finish_closed();
}

/// Unsignalled requests fill a send queue on verbs, where only a signalled one frees them. The provider must handle
/// this.
fn unsignalled_requests_do_not_fill_the_send_queue<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = rig.qp(End::A).capabilities().send_depth as usize;
    for _ in 0..20 * depth {
        rig.submit(End::A, Form::Unsignalled, 32);
    }
    rig.ring(End::A);
    rig.send(End::A, Form::Ring, 100);
    rig.finish();
}
